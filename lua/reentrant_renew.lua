-- Keeps an owner's holds alive.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  owner; lease: ms from now, 0 to look only
-- Replies
--   DONE    the owner still holds the lock  detail: its count
--   ABSENT  the owner has no hold here      detail: 0
return each(1, 2, function(lock, owner, lease)
  local held, foreign = count_of(lock, owner)
  if foreign or not held then
    return ABSENT, 0
  end
  if lease ~= '0' then
    redis.call('PEXPIRE', lock, lease)
  end
  return DONE, held
end)
