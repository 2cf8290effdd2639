-- Frees a lock whoever holds it, and wakes a waiter.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  channel: where waiters listen
-- Replies
--   DONE    freed                detail: 0
--   ABSENT  nobody held the lock  detail: 0
return each(1, 1, function(lock, channel)
  if redis.call('HEXISTS', lock, 'mode') == 1 then
    return WRONG_KIND, 'a read-write lock'
  end
  if redis.call('EXISTS', lock) == 0 then
    return ABSENT, 0
  end
  redis.call('PUBLISH', channel, '0')
  redis.call('DEL', lock)
  return DONE, 0
end)
