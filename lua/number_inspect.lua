-- Reads the number of a semaphore or a latch.
--
-- KEYS  number
-- ARGV  nothing: an empty argument
-- Replies
--   DONE    detail: the number, as it is written there
--   ABSENT  there is none  detail: 0
local keys, args = 1, 1
local function operation(k)
  local number, text = number_at(KEYS[k])
  if not number then
    return ABSENT, 0
  end
  return DONE, text
end
