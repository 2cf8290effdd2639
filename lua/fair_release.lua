-- Releases one hold of an owner. The last hold frees the lock and notifies the head of the queue. A release that cuts the expiry by
-- more than a third notifies the head too: it expects the longer lease, and an expired lease publishes nothing.
--
-- KEYS  lock: the hash of owners and their counts; queue: the list of waiters; places: zset of the ends of their places,
--       in ms of this server's clock
-- ARGV  owner; holds: the owner's count after this operation; lease: ms, the new expiry if holds remain, 0 to leave the
--       expiry as it is; place: ms that a waiter of this crate keeps its place after its last attempt
--       channel: of the lock; a waiter subscribes to `channel:owner`
-- Replies
--   DONE    released; if holds remain, perhaps by an earlier sending
--   ABSENT  the owner has no such hold, or an earlier sending released its last one  detail: 0

-- Another program's data in place of the queue or of the places must not keep a hold: it counts as none.
local function head_of(queue)
  local head = redis.pcall('LINDEX', queue, 0)
  return type(head) == 'string' and head
end

local function first_in_queue(queue, places, owner, place)
  local now
  for _ = 1, 1000 do
    local head = head_of(queue)
    if not head then
      return head
    end
    if not now then
      local time = call('TIME')
      now = time[1] * 1000 + math.floor(time[2] / 1000)
    end
    local score = tonumber(redis.pcall('ZSCORE', places, head))
    if score and score > now then
      return head
    end
    if not is_ours(head, owner) or not score then
      -- Redisson does not refresh places, so after a long hold all have ended, though this waiter becomes the head only now. ZADD
      -- fails when the server is out of memory; the next attempt then removes the waiter.
      redis.pcall('ZADD', places, now + place, head)
      return head
    end
    call('LPOP', queue)
    call('ZREM', places, head)
  end
  return head_of(queue)
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
    local head = head_of(queue)
    shorten(lock, lease, head and channel .. ':' .. head, '0')
  end
  if held > holds then
    redis.pcall('HSET', lock, owner, holds)
  end
  return DONE
end
