-- Adds permits and publishes how many are left, if any are. A negative number removes permits.
--
-- KEYS  semaphore: the number of permits left; attempt: see attempts.lua
-- ARGV  permits: how many; channel: of the waiters; attempt: its number; lasts: ms that the attempt's key lives
-- Replies
--   DONE  added, now or by an earlier sending  detail: how many are left
local keys, args = 2, 4
local function operation(k, permits, channel, attempt, lasts)
  local result = earlier_result(k, attempt)
  if result then
    return DONE, result
  end
  local left = (number_at(KEYS[k]) or 0) + permits
  if math.abs(left) >= MOST then
    error('that is too many permits')
  end
  begin_release(k, lasts)
  -- PUBLISH can fail, so it precedes the result. A listener of Redisson's fails at a number below 0.
  if left > 0 then
    call(PUBLISH, channel, decimal(left))
  end
  store_result(k, attempt, decimal(left), lasts)
  number_call('INCRBY', k, permits)
  return DONE, left
end
