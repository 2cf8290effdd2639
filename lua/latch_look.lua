-- Looks at a latch for a waiter. While it is closed, the mark goes out on the channel: openings that the waiter hears of
-- after it came after this look.
--
-- KEYS  latch: its count
-- ARGV  channel: where waiters listen; mark: a number of this waiter's alone, neither 0 nor 1
-- Replies
--   DONE  detail: the count, 0 if the latch is open
local keys, args = 1, 2
local function operation(k, channel, mark)
  local count = number_at(KEYS[k])
  if not count or count <= 0 then
    return DONE, 0
  end
  call(PUBLISH, channel, mark)
  return DONE, count
end
