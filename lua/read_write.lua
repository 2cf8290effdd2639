-- Shared by the scripts of both sides of a read-write lock. Follows batch.lua.
--
-- A reader's hold number i has a marker key, `base:owner:rwlock_timeout:i`, which expires with the lease of that hold. The hash of
-- all holders has one expiry only.

-- The largest number of markers of one owner that a script reads. This crate makes no more read holds of one owner; a larger
-- count comes from another program.
local MOST_HOLDS = 1000

local function markers_of(base, owner)
  return base .. ':' .. owner .. ':rwlock_timeout:'
end

-- Returns the remaining time of a writer's intent in ms, negative without one. While the slot moves, the server may refuse to tell:
-- that counts as no intent.
local function intent_left(intent)
  local left = redis.pcall('PTTL', intent)
  return type(left) == 'number' and left or -2
end

-- Returns the remaining time of a marker in ms; -2 if it has expired. While a slot arrives, a missing marker may still be at the
-- other node: then fails, and the client repeats the operation. (At the node that the slot leaves, the server itself refuses to
-- read a missing key.)
local function left_of(marker)
  local left = call('PTTL', marker)
  if ARRIVING and left == -2 then
    error({ err = 'TRYAGAIN a lease of a read hold may be on its way to this node' })
  end
  return left
end

-- Returns the longest remaining lease of a reader's holds from number `first` to `last`, in ms; -2 if all have expired.
local function longest_of(base, owner, first, last)
  local longest, markers = -2, markers_of(base, owner)
  for i = first, math.min(tonumber(last) or 0, MOST_HOLDS) do
    longest = math.max(longest, left_of(markers .. i))
  end
  return longest
end

-- As longest_of, over the readers among these fields, except `except`. `most` is the expiry of the hash, the upper bound. A reader
-- with two thirds of it ends the search with `most`: with equal leases that is the first reader, however many read.
local function longest_among(fields, base, except, most)
  local longest = -2
  for i = 1, #fields, 2 do
    local reader = fields[i]
    if reader ~= 'mode' and reader ~= except and string.sub(reader, -6) ~= ':write' then
      longest = math.max(longest, longest_of(base, reader, 1, fields[i + 1]))
      if most > 0 and longest * 3 >= most * 2 then
        return most
      end
    end
  end
  return longest
end

-- As longest_among, over all readers of the lock. Tries a few readers before it reads all.
local function longest_of_others(lock, base, except, most)
  if most > 0 then
    local some = call('HSCAN', lock, '0', 'COUNT', '8')
    local longest = longest_among(some[2], base, except, most)
    if longest == most or some[1] == '0' then
      return longest
    end
  end
  return longest_among(call('HGETALL', lock), base, except, most)
end

-- Deletes the markers of a reader from number `first` to `last`.
local function remove_markers(base, owner, first, last)
  local markers = markers_of(base, owner)
  for i = first, math.min(tonumber(last) or 0, MOST_HOLDS) do
    call('DEL', markers .. i)
  end
end
