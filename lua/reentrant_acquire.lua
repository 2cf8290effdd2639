-- Takes a lock for its owner, once more if the owner holds it already.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  owner; lease: ms; holds: the owner's count once this has been done, 1 for a first hold
-- Replies
--   DONE    granted                                  detail: holds
--   BUSY    another owner holds the lock             detail: its remaining lease in ms, -1 without expiry
--   ABSENT  the holds that this one adds to are gone  detail: 0
return each(1, 3, function(lock, owner, lease, holds)
  holds = tonumber(holds)
  local remaining = redis.call('PTTL', lock)

  if remaining == -2 then
    if holds > 1 then
      return ABSENT, 0
    end
    redis.call('HSET', lock, owner, 1)
    local expires = redis.pcall('PEXPIRE', lock, lease)
    if type(expires) == 'table' then
      -- A lock without expiry would outlive its owner.
      redis.call('HDEL', lock, owner)
      return FAILED, expires.err
    end
    return DONE, 1
  end

  local held, foreign = count_of(lock, owner)
  if foreign then
    return WRONG_KIND, foreign
  end
  -- A count of `holds` or more is this operation's own repetition, or what a lost operation left: only one process
  -- ever writes this field, one operation at a time, and it says that `holds` is right.
  if held and held >= holds - 1 then
    redis.call('HSET', lock, owner, holds)
    if tonumber(lease) > remaining then
      redis.call('PEXPIRE', lock, lease)
    end
    return DONE, holds
  end
  if holds > 1 then
    return ABSENT, 0
  end
  return BUSY, remaining
end)
