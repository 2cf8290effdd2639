-- Sets how many permits a semaphore has in all, those that are taken included.
--
-- KEYS  semaphore: the number of permits that are left; ends: zset of permits and when they end, in ms of this server's clock
-- ARGV  permits: how many; channel: where waiters listen
-- Replies
--   DONE  detail: how many are left
local keys, args = 2, 2
local function operation(k, permits, channel)
  local before = number_at(KEYS[k])
  -- Without a semaphore, those that are taken are none of its own.
  local left = before and permits - call('ZCARD', KEYS[k + 1]) or tonumber(permits)
  if left ~= before then
    call(PUBLISH, channel, decimal(left))
    call('SET', KEYS[k], decimal(left), 'KEEPTTL')
  end
  return DONE, left
end
