-- Counts a latch down; the last count opens it, and wakes all who wait. An open one stays open.
--
-- KEYS  latch: its count; attempts: see attempts.lua
-- ARGV  channel: where waiters listen; field; attempt; lasts, stays: ms that it is known, see there
-- Replies
--   DONE  counted down, now or by an earlier sending  detail: the count
local keys, args = 2, 5
local function operation(k, channel, field, attempt, lasts, stays)
  local answer = earlier(k, field, attempt)
  if answer then
    return DONE, answer
  end
  local count = number_at(KEYS[k])
  if not count then
    return DONE, 0
  end
  local left = math.max(count - 1, 0)
  remember(k, field, attempt, decimal(left), lasts, stays)
  if left > 0 then
    call('DECR', KEYS[k])
    return DONE, left
  end
  if count == 1 then
    call(PUBLISH, channel, '0')
  end
  call('DEL', KEYS[k])
  return DONE, 0
end
