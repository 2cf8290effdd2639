-- Takes a lock for its owner, once more if the owner holds it already, and counts the acquisition.
--
-- KEYS  lock: the hash of owners and their counts; counter: how often the lock was ever acquired
-- ARGV  owner; lease: ms; holds: the owner's count once this has been done, 1 for a first hold
--       fresh: 1 if no earlier sending can have been run
-- Replies
--   DONE    granted                                   detail: the counter, this acquisition's token
--   BUSY    another owner holds the lock              detail: its remaining lease in ms, -1 without expiry
--   ABSENT  the holds that this one adds to are gone  detail: 0
local keys, args = 2, 4
local function operation(k, owner, lease, holds, fresh)
  local lock, counter = KEYS[k], KEYS[k + 1]
  local remaining = call('PTTL', lock)

  if remaining == -2 then
    if holds ~= '1' then
      return ABSENT, 0
    end
    -- Counting can fail (not a number), so it comes before taking. A multi-lock of Redisson's with a lease sets one on the
    -- counter too; it must not begin anew.
    local token = call('INCR', counter)
    call('PERSIST', counter)
    call('HSET', lock, owner, holds)
    expire_new(lock, lease)
    return DONE, token
  end

  local fields = call('HMGET', lock, 'mode', owner)
  if fields[1] then
    return WRONG_KIND, 'a read-write lock'
  end
  -- As in reentrant_acquire. While the owner holds the lock, no other owner counts; what it has already is its own repetition,
  -- or left by a hold that it has given up as lost, whose token is not this one's.
  local held = tonumber(fields[2])
  if held and held >= holds - 1 then
    local counts = fresh == '1' or held < tonumber(holds)
    local token = counts and call('INCR', counter) or tonumber(call('GET', counter) or 0)
    prolong(lock, lease, remaining)
    call('HSET', lock, owner, holds)
    return DONE, token
  end
  if holds ~= '1' then
    return ABSENT, 0
  end
  return BUSY, remaining
end
