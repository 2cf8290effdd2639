-- Renews the holds of one owner.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  owner; lease: ms from now, never shortens the expiry; 0 to verify only
-- Replies
--   DONE    the owner still holds the lock
--   ABSENT  the owner has no hold here      detail: 0
local keys, args = 1, 2
local function operation(k, owner, lease)
  local lock = KEYS[k]
  local fields = call('HMGET', lock, 'mode', owner)
  if fields[1] or not fields[2] then
    return ABSENT, 0
  end
  if lease ~= '0' then
    prolong(lock, lease, call('PTTL', lock))
  end
  return DONE
end
