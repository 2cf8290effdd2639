-- Frees a lock from any owner, and wakes a waiter.
--
-- KEYS  lock: the string
-- ARGV  channel: of this crate's waiters
-- Replies
--   DONE    freed
--   ABSENT  the lock was free  detail: 0
local keys, args = 1, 1
local function operation(k, channel)
  if not call('GET', KEYS[k]) then
    return ABSENT, 0
  end
  call(PUBLISH, channel, '0')
  call('DEL', KEYS[k])
  return DONE
end
