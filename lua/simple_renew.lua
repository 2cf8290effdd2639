-- Keeps a lock alive that its owner holds.
--
-- KEYS  lock: the string
-- ARGV  owner: the value that this owner alone writes; lease: ms from now, 0 to look only; what is left is never shortened
-- Replies
--   DONE    the owner still holds the lock
--   ABSENT  another value stands there, or none  detail: 0
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
