-- Renews the hold of an owner.
--
-- KEYS  lock: the string
-- ARGV  owner: a unique value; lease: ms from now, never shortens the expiry; 0 to verify only
-- Replies
--   DONE    the owner still holds the lock
--   ABSENT  the key has another value, or none  detail: 0
local keys, args = 1, 2
local function operation(k, owner, lease)
  local lock = KEYS[k]
  if call('GET', lock) ~= owner then
    return ABSENT, 0
  end
  if lease ~= '0' then
    prolong(lock, lease, call('PTTL', lock))
  end
  return DONE
end
