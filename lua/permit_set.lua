-- Sets how many permits a semaphore has in all, including acquired ones.
--
-- KEYS  semaphore: the number of permits left; ends: zset of acquired permits by end, in ms of this server's clock
-- ARGV  permits: how many; channel: of the waiters
-- Replies
--   DONE  detail: how many are left
local keys, args = 2, 2
local function operation(k, permits, channel)
  local before = number_at(KEYS[k])
  -- Without a semaphore, acquired permits belong to an earlier one and do not count.
  local left = before and permits - call('ZCARD', KEYS[k + 1]) or tonumber(permits)
  if left ~= before then
    -- A listener of Redisson's fails at a number below 0.
    if left > 0 then
      call(PUBLISH, channel, decimal(left))
    end
    call('SET', KEYS[k], decimal(left), 'KEEPTTL')
  end
  return DONE, left
end
