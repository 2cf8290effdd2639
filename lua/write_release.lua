-- Releases one write hold of an owner. The last write hold frees the lock, or leaves it to the owner's read holds, and wakes every
-- waiter. A release that cuts the expiry by more than a third wakes them too.
--
-- KEYS  lock: the hash of `mode` and of the readers' and the writer's counts
-- ARGV  owner; holds: the owner's count of write holds after this operation; lease: ms, the new expiry if write holds
--       remain, 0 to leave the expiry as it is; channel: of the waiters
--       base: prefix of the marker keys, `base:owner:rwlock_timeout:i`
-- Replies
--   DONE    released; if holds remain, perhaps by an earlier sending
--           detail, if that freed a lock with subscribers: their number
--   ABSENT  the owner has no such hold, or an earlier sending released its last one  detail: 0
local keys, args = 1, 5
local function operation(k, owner, holds, lease, channel, base)
  local lock = KEYS[k]
  local writer = owner .. ':write'
  local fields = call('HMGET', lock, 'mode', writer)
  local held = tonumber(fields[2])
  holds = tonumber(holds)
  if fields[1] ~= 'write' or not held or held < holds then
    return ABSENT, 0
  end

  local longest = longest_of_others(lock, base, writer, 0)
  if holds > 0 then
    if lease ~= '0' then
      -- The expiry must not end before the owner's own read holds.
      shorten(lock, math.max(tonumber(lease), longest), channel, '1')
    end
    redis.pcall('HSET', lock, writer, holds)
    return DONE
  end

  -- PUBLISH can fail, so it precedes DEL and HDEL. After a downgrade, waiting readers may enter.
  local listeners = call(PUBLISH, channel, '1')
  if longest <= 0 then
    call('DEL', lock)
    return DONE, listeners > 0 and listeners or nil
  end
  -- HDEL goes first: a server that is out of memory refuses HSET only as the first write of a script.
  call('HDEL', lock, writer)
  call('HSET', lock, 'mode', 'read')
  call('PEXPIRE', lock, longest)
  return DONE
end
