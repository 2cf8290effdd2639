-- Lists the holder of a lock. Changes nothing.
--
-- KEYS  lock: the string
-- ARGV  an empty argument
-- Replies
--   DONE  detail: empty if the lock is free, or a line: the remaining lease in ms, -1 without expiry; 1; the value
local keys, args = 1, 1
local function operation(k)
  local value = call('GET', KEYS[k])
  if not value then
    return DONE, ''
  end
  return DONE, string.format('%.0f 1 ', call('PTTL', KEYS[k])) .. string.gsub(value, '%c', '?')
end
