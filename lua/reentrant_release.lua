-- Gives up one hold of an owner; the last one frees the lock and wakes a waiter.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  owner; holds: the owner's count once this has been done; lease: ms, set while holds remain;
--       channel: where waiters listen
-- Replies
--   DONE    released, now or by an earlier sending  detail: holds
--   ABSENT  the owner had no hold here              detail: 0
return each(1, 4, function(lock, owner, holds, lease, channel)
  holds = tonumber(holds)
  local held, foreign = count_of(lock, owner)
  if foreign or not held or held < holds then
    return ABSENT, 0
  end

  if holds > 0 then
    if held > holds then
      -- Refused when the server is out of memory. The count is then too high, which the last release ignores.
      redis.pcall('HSET', lock, owner, holds)
    end
    redis.call('PEXPIRE', lock, lease)
    return DONE, holds
  end

  -- Telling can fail (no right to the channel), so it comes before freeing. Neither needs memory.
  redis.call('PUBLISH', channel, '0')
  redis.call('DEL', lock)
  return DONE, 0
end)
