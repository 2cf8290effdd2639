-- Reads the number of a semaphore or a latch.
--
-- KEYS  number
-- ARGV  an empty argument
-- Replies
--   DONE    detail: the text of the number
--   ABSENT  the key does not exist  detail: 0
local keys, args = 1, 1
local function operation(k)
  local number, text = number_at(KEYS[k])
  if not number then
    return ABSENT, 0
  end
  return DONE, text
end
