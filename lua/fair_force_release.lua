-- Frees a lock from any owner, and notifies the head of the queue.
--
-- KEYS  lock: the hash of owners and their counts; queue: the list of waiters
-- ARGV  channel: of the lock; a waiter subscribes to `channel:owner`
-- Replies
--   DONE    freed
--   ABSENT  the lock was free  detail: 0
local keys, args = 2, 1
local function operation(k, channel)
  local lock, queue = KEYS[k], KEYS[k + 1]
  if call('HEXISTS', lock, 'mode') == 1 then
    return WRONG_KIND, 'a read-write lock'
  end
  if call('EXISTS', lock) == 0 then
    return ABSENT, 0
  end
  local head = call('LINDEX', queue, 0)
  if head then
    call(PUBLISH, channel .. ':' .. head, '0')
  end
  call('DEL', lock)
  return DONE
end
