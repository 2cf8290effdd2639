-- Acquires all permits that are left.
--
-- KEYS  semaphore: the number of permits left; attempt: see attempts.lua
-- ARGV  attempt: its number; lasts: ms that the attempt's key lives
-- Replies
--   DONE  none are left  detail: how many were left, below 0 if permits had been removed beyond 0
local keys, args = 2, 2
local function operation(k, attempt, lasts)
  local result = earlier_result(k, attempt)
  if result then
    return DONE, result
  end
  local left = number_at(KEYS[k])
  if not left then
    return DONE, 0
  end
  store_result(k, attempt, decimal(left), lasts)
  number_call('SET', k, '0', 'KEEPTTL')
  return DONE, left
end
