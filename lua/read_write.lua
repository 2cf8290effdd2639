-- What the scripts of both sides of a read-write lock share; stands behind batch.lua.
--
-- A reader's hold number i has a marker key, `base:owner:rwlock_timeout:i`, which lives as long as that hold's lease:
-- so the lease of each reader can be told although the hash that all share has only one expiry.

-- The most markers of one owner that are looked at. This crate takes no more holds; a larger count comes from another program.
local MOST_HOLDS = 1000

local function markers_of(base, owner)
  return base .. ':' .. owner .. ':rwlock_timeout:'
end

-- For how long a writer that waits keeps new readers out, in ms. Where the server will not say, as the slot is on its way,
-- it does not.
local function intent_left(base)
  local left = redis.pcall('PTTL', base .. ':write_intent')
  return type(left) == 'number' and left or -2
end

-- What is left of a marker, in ms; -2 when it is over. Where the hash has come first, it may still be on its way: then
-- nothing is known, and nothing has been done. (Where the hash is the one that still has to leave, the server itself
-- refuses to look at a key that is not there.)
local function left_of(marker)
  local left = call('PTTL', marker)
  if ARRIVING and left == -2 then
    error({ err = 'TRYAGAIN a lease of a read hold may be on its way to this node' })
  end
  return left
end

-- The longest lease left to the holds of a reader from number `first` to `last`, in ms; -2 when all are over.
local function longest_of(base, owner, first, last)
  local longest, markers = -2, markers_of(base, owner)
  for i = first, math.min(tonumber(last) or 0, MOST_HOLDS) do
    longest = math.max(longest, left_of(markers .. i))
  end
  return longest
end

-- The same over the readers among these fields, except `except`. A reader that has nearly all of the `most` that any can have is
-- enough, if that is known: with equal leases the first one has it, however many read.
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

-- The same over all readers of the lock. A few are looked at before all of them are, where there are many.
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

-- Removes the markers of a reader from number `first` to `last`.
local function remove_markers(base, owner, first, last)
  local markers = markers_of(base, owner)
  for i = first, math.min(tonumber(last) or 0, MOST_HOLDS) do
    call('DEL', markers .. i)
  end
end
