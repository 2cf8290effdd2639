-- Reads a latch for a waiter. Publishes the mark if the latch is closed: openings that the waiter receives after the mark happened
-- after this read.
--
-- KEYS  latch: its count
-- ARGV  channel: of the waiters; mark: a number that this waiter alone uses, neither 0 nor 1
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
