-- Lists the holders of a lock. Changes nothing.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  base: prefix of the marker keys of a read-write lock, `base:owner:rwlock_timeout:i`; empty for other kinds
-- Replies
--   DONE  detail: a line for each holder: its remaining lease in ms, -1 without expiry; its count; the owner, followed by
--         `:write` for a writer

-- The largest number of holders in a reply, and of readers' markers that one call reads.
local MOST_LISTED = 1000
local MOST_MARKERS = 10000

-- Returns the longest remaining lease of the first `count` holds of a reader, in ms; -2 if all have ended.
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
    if count and #lines < MOST_LISTED then
      local left = remaining
      local writes = string.sub(owner, -6) == ':write'
      -- A negative count of another program has no markers.
      local held = math.max(count, 0)
      if base ~= '' and not writes and markers + held <= MOST_MARKERS then
        left, markers = longest_of_holds(base, owner, held), markers + held
      end
      -- A line end in another program's field must not look like another holder.
      lines[#lines + 1] = string.format('%.0f ', left) .. fields[i + 1] .. ' ' .. string.gsub(owner, '%c', '?')
    end
  end
  return DONE, table.concat(lines, '\n')
end
