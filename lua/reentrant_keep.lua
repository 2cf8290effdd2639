-- Ends the last hold of an owner, and keeps the lock for a time: the job of the hold is done. The field `kept` then holds the lock
-- until its expiry. Wakes a waiter, which learns of it.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  owner; kept: the field that holds the lock from now on; lease: ms, the new expiry; channel: of the waiters
-- Replies
--   DONE    kept
--   ABSENT  the owner has no hold here, or an earlier sending ended it  detail: 0
local keys, args = 1, 4
local function operation(k, owner, kept, lease, channel)
  local lock = KEYS[k]
  local fields = call('HMGET', lock, 'mode', owner)
  if fields[1] or not fields[2] then
    return ABSENT, 0
  end
  -- PUBLISH and PEXPIRE can fail, so they go first. A server that is out of memory refuses HSET only as the first write of a script.
  call(PUBLISH, channel, '0')
  call('PEXPIRE', lock, lease)
  call('HSET', lock, kept, 1)
  call('HDEL', lock, owner)
  return DONE
end
