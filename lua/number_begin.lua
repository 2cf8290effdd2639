-- Sets the number of a semaphore or a latch that does not exist, and publishes a message.
--
-- KEYS  number; attempt: see attempts.lua
-- ARGV  value; channel: of the waiters; message; attempt: its number; lasts: ms that the attempt's key lives
-- Replies
--   DONE    set, now or by an earlier sending
--   ABSENT  the key exists  detail: 0
local keys, args = 2, 5
local function operation(k, value, channel, message, attempt, lasts)
  if earlier_result(k, attempt) then
    return DONE
  end
  if number_at(KEYS[k]) then
    return ABSENT, 0
  end
  store_result(k, attempt, '1', lasts)
  call(PUBLISH, channel, message)
  number_call('SET', k, value)
  return DONE
end
