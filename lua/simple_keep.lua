-- Ends the hold of an owner, and keeps the lock for a time: the job of the hold is done. Wakes a waiter, which learns of it.
--
-- KEYS  lock: the string
-- ARGV  owner: a unique value; kept: the value from now on; lease: ms, the new expiry; channel: of this crate's waiters
-- Replies
--   DONE    kept
--   ABSENT  the key has another value, or none   detail: 0
local keys, args = 1, 4
local function operation(k, owner, kept, lease, channel)
  local lock = KEYS[k]
  if call('GET', lock) ~= owner then
    return ABSENT, 0
  end
  -- PUBLISH can fail, so it goes first. A server that is out of memory refuses SET only as the first write of a script.
  call(PUBLISH, channel, '0')
  call('PEXPIRE', lock, lease)
  call('SET', lock, kept, 'PX', lease)
  return DONE
end
