-- Counts the permits of a semaphore.
--
-- KEYS  semaphore: the number of permits that are left; ends: zset of permits and when they end, in ms of this server's clock
-- ARGV  channel: where waiters listen
-- Replies
--   DONE  detail: 1 if there is a semaphore, 0 if not; how many permits are left; how many are taken
local keys, args = 2, 1
local function operation(k, channel)
  take_back_ended(k, server_time(), channel)
  local left = number_at(KEYS[k])
  return DONE, { left and 1 or 0, left or 0, call('ZCARD', KEYS[k + 1]) }
end
