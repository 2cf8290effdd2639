-- Gives up one write hold of an owner. The last one frees the lock, or leaves it to the owner's own read holds, and
-- wakes every waiter. One that cuts the lease by more than a third does so, too.
--
-- KEYS  lock: the hash of `mode`, readers and writer with their counts
-- ARGV  owner; holds: the owner's count of write holds once this has been done; lease: ms, set while write holds
--       remain, 0 to leave the expiry as it is; channel: where waiters listen
--       base: the name in the form that stands in front of the readers' markers
-- Replies
--   DONE    released, now or by an earlier sending  detail, where the channel has subscribers: their number
--   ABSENT  the owner had no such hold here         detail: 0
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
      -- Its own read holds are not cut.
      shorten(lock, math.max(tonumber(lease), longest), channel, '1')
    end
    redis.pcall('HSET', lock, writer, holds)
    return DONE
  end

  -- Telling can fail, so it comes before freeing. With a downgrade, waiting readers may enter.
  local listeners = call(PUBLISH, channel, '1')
  if longest <= 0 then
    call('DEL', lock)
    return DONE, listeners > 0 and listeners or nil
  end
  -- A server that is out of memory refuses HSET as the first write of a script, not as a later one.
  call('HDEL', lock, writer)
  call('HSET', lock, 'mode', 'read')
  call('PEXPIRE', lock, longest)
  return DONE
end
