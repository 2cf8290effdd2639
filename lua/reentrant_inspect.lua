-- Tells what stands at a lock, without changing it.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  owner: whose count is asked for
-- Replies
--   DONE  detail: {remaining lease in ms, -1 without expiry, -2 when free; the owner's count}
return each(1, 1, function(lock, owner)
  local held, foreign = count_of(lock, owner)
  if foreign then
    return WRONG_KIND, foreign
  end
  return DONE, { redis.call('PTTL', lock), held or 0 }
end)
