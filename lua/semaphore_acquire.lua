-- Takes permits, all or none.
--
-- KEYS  semaphore: the number of permits that are left; attempts: see attempts.lua
-- ARGV  permits: how many; field; attempt; lasts, stays: ms that it is known, see there
-- Replies
--   DONE  granted, now or by an earlier sending  detail: how many are left
--   BUSY  there are too few                      detail: how many are left, 0 without a semaphore
local keys, args = 2, 5
local function operation(k, permits, field, attempt, lasts, stays)
  local answer = earlier(k, field, attempt)
  if answer then
    return DONE, answer
  end
  local left = number_at(KEYS[k])
  if not left or left < tonumber(permits) then
    return BUSY, left or 0
  end
  left = left - permits
  remember(k, field, attempt, decimal(left), lasts, stays)
  call('DECRBY', KEYS[k], permits)
  return DONE, left
end
