-- Counts a latch down. The last count opens it and wakes all waiters. An open latch stays open.
--
-- KEYS  latch: its count; attempt: see attempts.lua
-- ARGV  channel: of the waiters; attempt: its number; lasts: ms that the attempt's key lives
-- Replies
--   DONE  counted down, now or by an earlier sending  detail: the count
local keys, args = 2, 3
local function operation(k, channel, attempt, lasts)
  local result = earlier_result(k, attempt)
  if result then
    return DONE, result
  end
  local count = number_at(KEYS[k])
  if not count then
    return DONE, 0
  end
  local left = math.max(count - 1, 0)
  begin_release(k, lasts)
  -- PUBLISH can fail, so it precedes the result.
  if count == 1 then
    call(PUBLISH, channel, '0')
  end
  store_result(k, attempt, decimal(left), lasts)
  if left > 0 then
    number_call('DECR', k)
  else
    number_call('DEL', k)
  end
  return DONE, left
end
