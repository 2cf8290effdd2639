-- Ends the last write hold of an owner, and keeps the lock for a time: the job of the hold is done. The field `kept:write` then holds
-- the lock until its expiry. Wakes every waiter, which learns of it.
--
-- KEYS  lock: the hash of `mode` and of the readers' and the writer's counts
-- ARGV  owner; kept; lease: ms, the new expiry; channel: of the waiters
-- Replies
--   DONE    kept
--   ABSENT  the owner has no write hold, or an earlier sending ended it  detail: 0
local keys, args = 1, 4
local function operation(k, owner, kept, lease, channel)
  local lock = KEYS[k]
  local writer = owner .. ':write'
  local fields = call('HMGET', lock, 'mode', writer)
  if fields[1] ~= 'write' or not fields[2] then
    return ABSENT, 0
  end
  -- The expiry must not end before the owner's own read holds.
  local least = call('HLEN', lock) > 2 and call('PTTL', lock) or 0
  -- In this order as in reentrant_keep.
  call(PUBLISH, channel, '1')
  call('PEXPIRE', lock, math.max(tonumber(lease), least))
  call('HSET', lock, kept .. ':write', 1)
  call('HDEL', lock, writer)
  return DONE
end
