-- Gives up one hold of an owner; the last one frees the lock and wakes the first in the queue. A release
-- that cuts the lease by more than a third wakes it, too.
--
-- KEYS  lock: the hash of owners and their counts; queue: the list of waiters; places: zset of when each of
--       their places ends, in ms of this server's clock
-- ARGV  owner; holds: the owner's count once this has been done; lease: ms, set while holds remain, 0 to leave the
--       expiry as it is; place: ms that a waiter of this crate keeps its place when nothing is heard of it
--       channel: of the lock, with `:` and an owner behind it where that owner listens
-- Replies
--   DONE    released, now or by an earlier sending
--   ABSENT  the owner had no such hold here         detail: 0

-- Redisson's owners are shorter (fair_acquire).
local function is_ours(entry, owner)
  return #entry == #owner
end

local function first_in_queue(queue, places, owner, place)
  local now
  for _ = 1, 1000 do
    local head = call('LINDEX', queue, 0)
    if not head then
      return head
    end
    if not now then
      local time = call('TIME')
      now = time[1] * 1000 + math.floor(time[2] / 1000)
    end
    local score = tonumber(call('ZSCORE', places, head))
    if score and score > now then
      return head
    end
    if not is_ours(head, owner) or not score then
      -- Redisson does not refresh places, so after a long hold they are all over: its turn has only now begun. Refused
      -- when the server is out of memory; then the next attempt removes it.
      redis.pcall('ZADD', places, now + place, head)
      return head
    end
    call('LPOP', queue)
    call('ZREM', places, head)
  end
  return call('LINDEX', queue, 0)
end

local keys, args = 3, 5
local function operation(k, owner, holds, lease, place, channel)
  local lock, queue, places = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local fields = call('HMGET', lock, 'mode', owner)
  local held = fields[2]
  if fields[1] or not held then
    return ABSENT, 0
  end

  if holds == '0' then
    local head = first_in_queue(queue, places, owner, tonumber(place))
    if head then
      call(PUBLISH, channel .. ':' .. head, '0')
    end
    call('DEL', lock)
    return DONE
  end

  -- As in reentrant_release.
  held, holds = tonumber(held), tonumber(holds)
  if not held or held < holds then
    return ABSENT, 0
  end
  if lease ~= '0' then
    local head = call('LINDEX', queue, 0)
    shorten(lock, lease, head and channel .. ':' .. head, '0')
  end
  if held > holds then
    redis.pcall('HSET', lock, owner, holds)
  end
  return DONE
end
