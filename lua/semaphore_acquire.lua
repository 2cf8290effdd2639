-- Acquires permits, all or none.
--
-- KEYS  semaphore: the number of permits left; attempt: see attempts.lua
-- ARGV  permits: how many; attempt: its number; lasts: ms that the attempt's key lives
-- Replies
--   DONE  granted, now or by an earlier sending  detail: how many are left
--   BUSY  too few are left                       detail: how many are left, 0 without a semaphore
local keys, args = 2, 3
local function operation(k, permits, attempt, lasts)
  local result = earlier_result(k, attempt)
  if result then
    return DONE, result
  end
  local left = number_at(KEYS[k])
  if not left or left < tonumber(permits) then
    return BUSY, left or 0
  end
  left = left - permits
  store_result(k, attempt, decimal(left), lasts)
  number_call('DECRBY', k, permits)
  return DONE, left
end
