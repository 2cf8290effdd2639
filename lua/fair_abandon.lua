-- Removes an owner from the queue of a lock. Other waiters keep their places. Notifies a new head.
--
-- KEYS  queue: the list of waiters; places: zset of their scores
-- ARGV  owner; channel: of the lock; a waiter subscribes to `channel:owner`
-- Replies
--   DONE    the owner has no place now
local keys, args = 2, 2
local function operation(k, owner, channel)
  local queue, places = KEYS[k], KEYS[k + 1]
  local was_first = call('LINDEX', queue, 0) == owner
  call('ZREM', places, owner)
  call('LREM', queue, 0, owner)
  -- Also while the lock is held: the head must learn when the holder's lease ends.
  local head = was_first and call('LINDEX', queue, 0)
  if head then
    call(PUBLISH, channel .. ':' .. head, '0')
  end
  return DONE
end
