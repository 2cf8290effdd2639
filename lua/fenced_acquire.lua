-- Acquires a lock for its owner, or adds a hold if the owner holds it, and counts the acquisition.
--
-- KEYS  lock: the hash of owners and their counts; counter: the number of all acquisitions of the lock
-- ARGV  owner; lease: ms; holds: the owner's count after this operation; 1 for a first hold
-- Replies
--   DONE    granted                             detail: the counter, this acquisition's token
--   BUSY    another owner holds the lock        detail: its remaining lease in ms, -1 without expiry
--   ABSENT  the owner's earlier holds are gone  detail: 0
local keys, args = 2, 3

-- Counts an acquisition. Returns the counter, as text where Lua's numbers are not exact.
local function next_token(counter)
  local token = call('INCR', counter)
  return token < 9007199254740992 and token or call('GET', counter)
end

local function operation(k, owner, lease, holds)
  local lock, counter = KEYS[k], KEYS[k + 1]
  local remaining = call('PTTL', lock)

  if remaining == -2 then
    if holds ~= '1' then
      return ABSENT, 0
    end
    -- INCR can fail (not a number), so it precedes HSET. A Redisson multi-lock with a lease sets an expiry on the counter too;
    -- PERSIST removes it, since the counter must not restart.
    local token = next_token(counter)
    call('PERSIST', counter)
    call('HSET', lock, owner, holds)
    expire_new(lock, lease)
    return DONE, token
  end

  local fields = call('HMGET', lock, 'mode', owner)
  if fields[1] then
    return WRONG_KIND, 'a read-write lock'
  end
  -- As in reentrant_acquire. A repetition counts again: what it finds may be left of a lost hold, whose token must not be reused.
  local held = tonumber(fields[2])
  if held and held >= holds - 1 then
    local token = next_token(counter)
    prolong(lock, lease, remaining)
    call('HSET', lock, owner, holds)
    return DONE, token
  end
  if holds ~= '1' then
    return ABSENT, 0
  end
  return BUSY, remaining
end
