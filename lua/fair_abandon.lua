-- Leaves the queue of a lock. Those behind keep their places; if the owner was the first, the next is told to be it.
--
-- KEYS  queue: the list of waiters; places: zset of their scores
-- ARGV  owner; channel: of the lock, with `:` and an owner behind it where that owner listens
-- Replies
--   DONE    the owner has no place any more
local keys, args = 2, 2
local function operation(k, owner, channel)
  local queue, places = KEYS[k], KEYS[k + 1]
  local was_first = call('LINDEX', queue, 0) == owner
  call('ZREM', places, owner)
  call('LREM', queue, 0, owner)
  -- Also while the lock is held: the first has to know when the holder's lease ends.
  local head = was_first and call('LINDEX', queue, 0)
  if head then
    call(PUBLISH, channel .. ':' .. head, '0')
  end
  return DONE
end
