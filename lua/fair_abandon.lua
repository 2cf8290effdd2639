-- Leaves the queue of a lock. Those behind keep their places; if it was the owner's turn, it is the next one's.
--
-- KEYS  lock: the hash of owners and their counts; queue: the list of those who wait; places: zset of their scores
-- ARGV  owner; channel: of the lock, with `:` and an owner behind it where that owner listens
-- Replies
--   DONE    the owner has no place any more
return each(3, 2, function(k, owner, channel)
  local lock, queue, places = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local was_next = call('LINDEX', queue, 0) == owner
  call('ZREM', places, owner)
  call('LREM', queue, 0, owner)
  local head = was_next and call('EXISTS', lock) == 0 and call('LINDEX', queue, 0)
  if head then
    call('PUBLISH', channel .. ':' .. head, '0')
  end
  return DONE
end)
