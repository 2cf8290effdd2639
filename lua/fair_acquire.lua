-- Grants the lock if it is free and the owner heads the queue, or the queue is empty. A refused waiter gets a queue entry; `try_lock`
-- gets none. An owner with a hold gets another one.
--
-- A place has a score: the time when it ends, in ms of this server's clock. The script removes only the head of the queue, and
-- only while the lock is free. Scores are Redisson's: a Redisson waiter that gets the lock or gives up subtracts `timeout` from
-- every score behind it. A place behind a Redisson waiter therefore lasts `timeout` longer. The script changes no score but its
-- owner's, the head's and those of suspected waiters.
--
-- KEYS  lock: the hash of owners and their counts; queue: the list of waiters; places: zset of their scores
-- ARGV  owner; lease: ms; holds: the owner's count after this operation; 1 for a first hold
--       waited: ms since this wait's last attempt, 0 at its first, -1 if the owner does not wait
--       place: ms that a waiter of this crate keeps its place after its last attempt
--       timeout: ms that a waiter of Redisson keeps its place
--       channel: of the lock; a waiter subscribes to `channel:owner`
--       notify_head: 1 to notify the head of the queue if the lock is free, else 0
-- Its messages to other waiters are hints: without the right to the channels, these ask by themselves, a little later.
-- Replies
--   DONE    granted
--   BUSY    another owner holds the lock, or stands earlier in the queue  detail: ms after which to ask again, -1 if unknown
--   ABSENT  the owner's earlier holds are gone                            detail: 0

-- The largest number of dead heads that one call removes: the server serves other clients in between.
local MOST_REMOVED = 1000

-- The time that a notified head of this crate has to acquire a free lock, in ms. A head that asks later, but within its own place,
-- becomes the head again.
local NOTIFIED_PLACE = 500

local function client_of(entry)
  return string.sub(entry, 1, 36)
end

-- A client of this crate with one dead waiter may be dead. Shortens the places of its other waiters to one `place`: a live waiter
-- refreshes its own.
local function suspect_all_of(dead, queue, places, now, place)
  local client = client_of(dead)
  for _, entry in ipairs(call('LRANGE', queue, 0, MOST_REMOVED)) do
    if client_of(entry) == client and tonumber(call('ZSCORE', places, entry) or 0) > now + place then
      call('ZADD', places, now + place, entry)
    end
  end
end

-- Returns the first waiter whose place has not ended, the end of that place, the time, and a removed waiter of this crate. The owner
-- is alive, whenever its place ended. The end is now if the call has removed as many heads as it may.
local function first_in_queue(queue, places, owner, place)
  local now, suspected
  for _ = 1, MOST_REMOVED do
    local head = call('LINDEX', queue, 0)
    if not head then
      return nil
    end
    now = now or server_time()
    local score = tonumber(call('ZSCORE', places, head))
    if not score or (is_ours(head, owner) and score > now + place) then
      -- An entry without a score would stay for ever. A waiter of this crate refreshes its score, so one place is enough.
      score = now + place
      call('ZADD', places, score, head)
    end
    if score > now or head == owner then
      return head, score, now, suspected
    end
    call('LPOP', queue)
    call('ZREM', places, head)
    if is_ours(head, owner) and not suspected then
      suspected = head
      suspect_all_of(head, queue, places, now, place)
    end
  end
  return call('LINDEX', queue, 0), now, now, suspected
end

local function is_in(queue, owner)
  -- A server before 6.0.6 has no LPOS: the error counts as absent.
  return tonumber(redis.pcall('LPOS', queue, owner)) ~= nil
end

-- Restores the place of a waiting owner. Other waiters removed it because the owner was late as the head, or a key was deleted.
local function take_place_again(queue, places, owner, now, waited, place)
  call('ZADD', places, now + place, owner)
  if is_in(queue, owner) then
    return
  elseif waited < place then
    -- The owner asked within its place, so the removal was wrong. Clients remove the head only, so it was the head.
    call('LPUSH', queue, owner)
  else
    call('RPUSH', queue, owner)
  end
end

local function refresh_place(queue, places, owner, now, score, waited, place)
  -- An attempt extends the place by the time since the last one. The head's place starts anew: no waiter is before it. ZADD fails
  -- when the server is out of memory; the place then keeps its old end.
  local is_first = call('LINDEX', queue, 0) == owner
  redis.pcall('ZADD', places, is_first and now + place or math.max(score + waited, now + place), owner)
  if call('LLEN', queue) < call('ZCARD', places) and not is_in(queue, owner) then
    call('RPUSH', queue, owner)
  end
end

local function leave_queue(queue, places, owner)
  call('LPOP', queue)
  call('ZREM', places, owner)
end

local function take_place(queue, places, owner, now, place, timeout)
  local last = call('LINDEX', queue, -1)
  local before = last and tonumber(call('ZSCORE', places, last)) or now
  local score = now + place
  if last and is_ours(last, owner) then
    score = math.max(score, before)
  elseif last then
    score = math.max(before, now + timeout) + place
  end
  call('ZADD', places, score, owner)
  -- A queue moves to another node before or after its places. A second entry of the owner would outlive its grant.
  if not (ARRIVING and is_in(queue, owner)) then
    call('RPUSH', queue, owner)
  end
end

local keys, args = 3, 8
local function operation(k, owner, lease, holds, waited, place, timeout, channel, notify_head)
  local lock, queue, places = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  waited, place = tonumber(waited), tonumber(place)
  local remaining = call('PTTL', lock)
  local free = remaining == -2

  if not free then
    local fields = call('HMGET', lock, 'mode', owner)
    if fields[1] then
      return WRONG_KIND, 'a read-write lock'
    end
    -- As in reentrant_acquire.
    local held = tonumber(fields[2])
    if held and held >= holds - 1 then
      prolong(lock, lease, remaining)
      call('HSET', lock, owner, holds)
      return DONE
    end
  end
  if holds ~= '1' then
    return ABSENT, 0
  end

  local head, head_until, now, removed, suspects_head
  if free then
    head, head_until, now, removed = first_in_queue(queue, places, owner, place)
    if not head or head == owner then
      call('HSET', lock, owner, holds)
      expire_new(lock, lease)
      if head then
        local left, reason = pcall(leave_queue, queue, places, owner)
        if not left then
          -- The user lacks a right: without a caller inside, the lock would stay held for its lease.
          call('DEL', lock)
          error(reason, 0)
        end
        -- Notify the next head only of a lease shorter than `place`: a head asks within `place` anyway.
        local next_head = tonumber(lease) < place and call('LINDEX', queue, 0)
        if next_head then
          redis.pcall(PUBLISH, channel .. ':' .. next_head, '0')
        end
      end
      return DONE
    end
    -- If one waiter of a client is dead, the next one of that client probably is too.
    suspects_head = removed and client_of(removed) == client_of(head)
    if notify_head == '1' or suspects_head then
      -- The head may be asleep: the end of a lease has no message.
      redis.pcall(PUBLISH, channel .. ':' .. head, '0')
      -- At a first attempt (waited == 0) the head may be about to ask, so its place is not shortened.
      if is_ours(head, owner) and (waited > 0 or suspects_head) and head_until > now + NOTIFIED_PLACE then
        head_until, suspects_head = now + NOTIFIED_PLACE, true
        redis.pcall('ZADD', places, head_until, head)
      end
    end
  end
  if waited < 0 then
    return BUSY, -1
  end

  now = now or server_time()
  local score = tonumber(call('ZSCORE', places, owner))
  if score then
    refresh_place(queue, places, owner, now, score, waited, place)
  elseif waited > 0 then
    take_place_again(queue, places, owner, now, waited, place)
  else
    take_place(queue, places, owner, now, place, tonumber(timeout))
  end
  if free then
    -- Two waiters retry at the end of the head's place: the second in the queue, which is next if the head is dead, and a waiter
    -- that suspects the head.
    local retries = suspects_head or head_until <= now or call('LINDEX', queue, 1) == owner
    return BUSY, retries and math.max(head_until - now, 0) or -1
  end
  return BUSY, call('LINDEX', queue, 0) == owner and remaining or -1
end
