-- Frees a lock from any owner, and wakes a waiter.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  channel: of the waiters
-- Replies
--   DONE    freed
--   ABSENT  the lock was free  detail: 0
local keys, args = 1, 1
local function operation(k, channel)
  local lock = KEYS[k]
  if call('HEXISTS', lock, 'mode') == 1 then
    return WRONG_KIND, 'a read-write lock'
  end
  if call('EXISTS', lock) == 0 then
    return ABSENT, 0
  end
  call(PUBLISH, channel, '0')
  call('DEL', lock)
  return DONE
end
