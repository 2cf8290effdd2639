-- Reads the state of a lock. Changes nothing.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  owner: the owner whose holds to count
-- Replies
--   DONE  detail: {remaining lease in ms, -1 without expiry, -2 when free; the owner's count}
local keys, args = 1, 1
local function operation(k, owner)
  local fields = call('HMGET', KEYS[k], 'mode', owner)
  if fields[1] then
    return WRONG_KIND, 'a read-write lock'
  end
  return DONE, { call('PTTL', KEYS[k]), tonumber(fields[2]) or 0 }
end
