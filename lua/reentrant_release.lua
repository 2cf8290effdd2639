-- Releases one hold of an owner. The last hold frees the lock and wakes a waiter. A release that cuts the expiry by more than a third
-- wakes a waiter too: it expects the longer lease, and an expired lease publishes nothing.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  owner; holds: the owner's count after this operation; lease: ms, the new expiry if holds remain, 0 to leave the
--       expiry as it is; channel: of the waiters
-- Replies
--   DONE    released; if holds remain, perhaps by an earlier sending
--           detail, if that freed a lock with subscribers: their number
--   ABSENT  the owner has no such hold, or an earlier sending released its last one  detail: 0
local keys, args = 1, 4
local function operation(k, owner, holds, lease, channel)
  local lock = KEYS[k]
  local fields = call('HMGET', lock, 'mode', owner)
  local held = fields[2]
  -- A hash with `mode` is a read-write lock. The names of its readers' fields are the same.
  if fields[1] or not held then
    return ABSENT, 0
  end

  if holds == '0' then
    -- PUBLISH can fail (no right to the channel), so it precedes DEL. Neither needs memory.
    local listeners = call(PUBLISH, channel, '0')
    call('DEL', lock)
    return DONE, listeners > 0 and listeners or nil
  end

  held, holds = tonumber(held), tonumber(holds)
  if not held or held < holds then
    return ABSENT, 0
  end
  if lease ~= '0' then
    shorten(lock, lease, channel, '0')
  end
  if held > holds then
    -- HSET fails when the server is out of memory. The count is then too high, and the last release ignores it.
    redis.pcall('HSET', lock, owner, holds)
  end
  return DONE
end
