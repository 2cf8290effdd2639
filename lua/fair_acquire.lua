-- Takes a lock for its owner if it is free and no waiter is before; else notes the owner's place in the queue.
--
-- A place has a score: when it may be taken away, in ms of this server's clock. The script removes only the head of
-- the queue, and only while the lock is free: a place matters then, and those behind keep theirs. Scores are
-- Redisson's own: each of its waiters takes `timeout` off the score of all behind when it enters or leaves, so one
-- behind it needs that much more than its own place. The script itself changes no score but its owner's and the head's.
--
-- KEYS  lock: the hash of owners and their counts; queue: the list of waiters; places: zset of their scores
-- ARGV  owner; lease: ms; holds: the owner's count once this has been done, 1 for a first hold
--       waited: ms since this wait's last try, 0 at its first, -1 if the owner will not wait
--       place: ms that a waiter of this crate keeps its place when nothing is heard of it; timeout: ms for Redisson's
--       channel: of the lock, with `:` and an owner behind it where that owner listens
--       nudge: 1 to tell the head of the queue when the lock is free, 0 not to
-- Its messages to other waiters are hints: without the right to the channels, these come by themselves, a little later.
-- Replies
--   DONE    granted
--   BUSY    another owner holds the lock, or is before  detail: ms after which to try, -1 if that is not known
--   ABSENT  the holds that this one adds to are gone    detail: 0

-- The most dead heads removed in one go: the server serves other clients in between.
local MOST_REMOVED = 1000

-- How long a head of ours has to take a lock that is free, once it was told: ms. One that comes later was heard of in time
-- all the same, and is the first again.
local TOLD = 500

local function client_of(entry)
  return string.sub(entry, 1, 36)
end

-- Redisson's owners are shorter: no thread of Java has a number of as many digits as those of this crate.
local function is_ours(entry, owner)
  return #entry == #owner
end

-- A client of this crate that has lost one waiter may have lost all: those that live refresh their places, so none needs
-- more than that.
local function suspect_all_of(dead, queue, places, now, place)
  local client = client_of(dead)
  for _, entry in ipairs(call('LRANGE', queue, 0, MOST_REMOVED)) do
    if client_of(entry) == client and tonumber(call('ZSCORE', places, entry) or 0) > now + place then
      call('ZADD', places, now + place, entry)
    end
  end
end

-- The first waiter that is not known to be dead, and when it will be: now, if there are too many to remove in one go. Also the time,
-- and one of ours that was removed.
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
      -- Without a score it would stay for ever; and ours refresh theirs, so they need no more than a place.
      score = now + place
      call('ZADD', places, score, head)
    end
    if score > now then
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
  -- A server before 6.0.6 cannot tell.
  return tonumber(redis.pcall('LPOS', queue, owner)) ~= nil
end

-- What an owner that waited lost was taken away by other waiters: as the first in the queue it came too late for them, or a
-- key was deleted.
local function take_place_again(queue, places, owner, now, waited, place)
  call('ZADD', places, now + place, owner)
  if is_in(queue, owner) then
    return
  elseif waited < place then
    -- Heard of in time, so wrongly: only the first is ever removed.
    call('LPUSH', queue, owner)
  else
    call('RPUSH', queue, owner)
  end
end

local function refresh_place(queue, places, owner, now, score, waited, place)
  -- The time of a place stands still while its owner is heard of; the first has no waiter before it. Refused when the
  -- server is out of memory: the place has some time left.
  local is_first = call('LINDEX', queue, 0) == owner
  redis.pcall('ZADD', places, is_first and now + place or math.max(score + waited, now + place), owner)
  if call('LLEN', queue) < call('ZCARD', places) and not is_in(queue, owner) then
    call('RPUSH', queue, owner)
  end
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
  call('RPUSH', queue, owner)
end

local keys, args = 3, 8
local function operation(k, owner, lease, holds, waited, place, timeout, channel, nudge)
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

  local head, head_until, now, removed, removes
  if free then
    head, head_until, now, removed = first_in_queue(queue, places, owner, place)
    if not head or head == owner then
      call('HSET', lock, owner, holds)
      expire_new(lock, lease)
      if head then
        call('LPOP', queue)
        call('ZREM', places, owner)
        -- The next learns of a longer lease in time by itself.
        local next_head = tonumber(lease) < place and call('LINDEX', queue, 0)
        if next_head then
          redis.pcall(PUBLISH, channel .. ':' .. next_head, '0')
        end
      end
      return DONE
    end
    -- Those of a dead client are dead one after the other.
    removes = removed and client_of(removed) == client_of(head)
    if nudge == '1' or removes then
      -- It may be asleep: no message says that a lease has run out.
      redis.pcall(PUBLISH, channel .. ':' .. head, '0')
      -- A waiter that comes meanwhile, for the first time, may have met it on its way.
      if is_ours(head, owner) and (waited > 0 or removes) and head_until > now + TOLD then
        head_until, removes = now + TOLD, true
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
    -- The second is the next if the first is dead, and any waiter may remove a dead one, as the waiter that has found one likely to be dead.
    removes = removes or head_until <= now or call('LINDEX', queue, 1) == owner
    return BUSY, removes and math.max(head_until - now, 0) or -1
  end
  return BUSY, call('LINDEX', queue, 0) == owner and remaining or -1
end
