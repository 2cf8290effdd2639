-- Lists the holders of a lock, without changing anything.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  base: of a read-write lock, the name in the form that stands in front of the readers' markers; empty for other kinds
-- Replies
--   DONE  detail: a line for each holder: what is left of its lease in ms, -1 without expiry; its count; the owner, with
--         `:write` behind it where it writes

-- The most holders that are told, and the most markers of readers that are looked at.
local MOST_TOLD = 1000
local MOST_MARKERS = 10000

-- The longest lease left to the first `count` holds of a reader, in ms; -2 when all are over.
local function longest_of_holds(base, reader, count)
  local longest = -2
  for i = 1, count do
    longest = math.max(longest, call('PTTL', base .. ':' .. reader .. ':rwlock_timeout:' .. i))
  end
  return longest
end

local keys, args = 1, 1
local function operation(k, base)
  local lock = KEYS[k]
  local remaining = call('PTTL', lock)
  local mode = call('HMGET', lock, 'mode')[1]
  if base == '' and mode then
    return WRONG_KIND, 'a read-write lock'
  elseif base ~= '' and not mode and remaining ~= -2 then
    return WRONG_KIND, 'a lock without readers and writers'
  end

  local fields, lines, markers = call('HGETALL', lock), {}, 0
  for i = 1, #fields, 2 do
    local owner, count = fields[i], tonumber(fields[i + 1])
    if count and #lines < MOST_TOLD then
      local left = remaining
      local writes = string.sub(owner, -6) == ':write'
      if base ~= '' and not writes and markers + count <= MOST_MARKERS then
        left, markers = longest_of_holds(base, owner, count), markers + count
      end
      -- A line end in a field of another program's is not to look like another holder.
      lines[#lines + 1] = left .. ' ' .. fields[i + 1] .. ' ' .. string.gsub(owner, '%c', '?')
    end
  end
  return DONE, table.concat(lines, '\n')
end
