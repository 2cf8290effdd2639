-- Counts the permits of a semaphore.
--
-- KEYS  semaphore: the number of permits left; ends: zset of acquired permits by end, in ms of this server's clock
-- ARGV  channel: of the waiters
-- Replies
--   DONE  detail: 1 if the semaphore exists, else 0; how many permits are left; how many are acquired
local keys, args = 2, 1
local function operation(k, channel)
  reclaim_ended(k, server_time(), channel)
  local left = number_at(KEYS[k])
  return DONE, { left and 1 or 0, left or 0, call('ZCARD', KEYS[k + 1]) }
end
