-- Reads the state of a lock. Changes nothing.
--
-- KEYS  lock: the string
-- ARGV  owner: the value to compare
-- Replies
--   DONE  detail: {remaining lease in ms, -1 without expiry, -2 when free; 1 if the owner holds it, else 0}
local keys, args = 1, 1
local function operation(k, owner)
  local value = call('GET', KEYS[k])
  return DONE, { call('PTTL', KEYS[k]), value == owner and 1 or 0 }
end
