-- Acquires the write side of a read-write lock, or adds a hold if the owner writes.
--
-- KEYS  lock: the hash of `mode` and of the readers' and the writer's counts; intent: see write_intend
-- ARGV  owner; lease: ms; holds: the owner's count of write holds after this operation; 1 for a first hold
--       intends: 1 if the owner may have set the intent, else 0
-- Replies
--   DONE    granted
--   BUSY    another owner reads or writes       detail: the remaining lease in ms, -1 without expiry
--   ABSENT  the owner's earlier holds are gone  detail: 0
local keys, args = 2, 4
local function operation(k, owner, lease, holds, intends)
  local lock = KEYS[k]
  local writer = owner .. ':write'
  local remaining = call('PTTL', lock)

  if remaining == -2 then
    if holds ~= '1' then
      return ABSENT, 0
    end
    call('HSET', lock, 'mode', 'write', writer, holds)
    expire_new(lock, lease)
    if intends == '1' then
      redis.pcall('DEL', KEYS[k + 1])
    end
    return DONE
  end

  local fields = call('HMGET', lock, 'mode', writer)
  if not fields[1] then
    return WRONG_KIND, 'a lock without readers and writers'
  end
  -- As in reentrant_acquire.
  local held = tonumber(fields[2])
  if fields[1] == 'write' and held and held >= holds - 1 then
    prolong(lock, lease, remaining)
    call('HSET', lock, writer, holds)
    return DONE
  end
  if holds ~= '1' then
    return ABSENT, 0
  end
  return BUSY, remaining
end
