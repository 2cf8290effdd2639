-- Ends the last hold of an owner, and keeps the lock for a time, as reentrant_keep does. Notifies the head of the queue.
--
-- KEYS  lock: the hash of owners and their counts; queue: the list of waiters
-- ARGV  owner; kept: the field that holds the lock from now on; lease: ms, the new expiry
--       channel: of the lock; a waiter subscribes to `channel:owner`
-- Replies
--   DONE    kept
--   ABSENT  the owner has no hold here, or an earlier sending ended it  detail: 0
local keys, args = 2, 4
local function operation(k, owner, kept, lease, channel)
  local lock = KEYS[k]
  local fields = call('HMGET', lock, 'mode', owner)
  if fields[1] or not fields[2] then
    return ABSENT, 0
  end
  -- Another program's data in place of the queue counts as none, as in fair_release.
  local head = redis.pcall('LINDEX', KEYS[k + 1], 0)
  if type(head) == 'string' then
    call(PUBLISH, channel .. ':' .. head, '0')
  end
  -- In this order as in reentrant_keep.
  call('PEXPIRE', lock, lease)
  call('HSET', lock, kept, 1)
  call('HDEL', lock, owner)
  return DONE
end
