-- Gives up one hold of an owner; the last one frees the lock and wakes a waiter. A release that cuts the lease by more than
-- a third wakes a waiter, too.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  owner; holds: the owner's count once this has been done; lease: ms, set while holds remain, 0 to leave the
--       expiry as it is; channel: where waiters listen
-- Replies
--   DONE    released, now or by an earlier sending  detail, where the channel has subscribers: their number
--   ABSENT  the owner had no such hold here         detail: 0
local keys, args = 1, 4
local function operation(k, owner, holds, lease, channel)
  local lock = KEYS[k]
  local fields = call('HMGET', lock, 'mode', owner)
  local held = fields[2]
  -- A read-write lock names its readers the same way.
  if fields[1] or not held then
    return ABSENT, 0
  end

  if holds == '0' then
    -- Telling can fail (no right to the channel), so it comes before freeing. Neither needs memory.
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
    -- May be refused when the server is out of memory. The count is then too high, which the last release ignores.
    redis.pcall('HSET', lock, owner, holds)
  end
  return DONE
end
