-- Sets the number of a semaphore or a latch that does not exist, and tells those who wait.
--
-- KEYS  number; attempts: see attempts.lua
-- ARGV  value; channel: where waiters listen; message; field; attempt; lasts, stays: ms that it is known, see there
-- Replies
--   DONE    set, now or by an earlier sending
--   ABSENT  there is one already  detail: 0
local keys, args = 2, 7
local function operation(k, value, channel, message, field, attempt, lasts, stays)
  if earlier(k, field, attempt) then
    return DONE
  end
  if number_at(KEYS[k]) then
    return ABSENT, 0
  end
  remember(k, field, attempt, '1', lasts, stays)
  call(PUBLISH, channel, message)
  call('SET', KEYS[k], value)
  return DONE
end
