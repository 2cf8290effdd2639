-- Adds permits, whoever had them, and tells those who wait how many there are. Fewer than none takes some away.
--
-- KEYS  semaphore: the number of permits that are left; attempts: see attempts.lua
-- ARGV  permits: how many; channel: where waiters listen; field; attempt; lasts, stays: ms that it is known, see there
-- Replies
--   DONE  added, now or by an earlier sending  detail: how many are left
local keys, args = 2, 6
local function operation(k, permits, channel, field, attempt, lasts, stays)
  local answer = earlier(k, field, attempt)
  if answer then
    return DONE, answer
  end
  local left = (number_at(KEYS[k]) or 0) + permits
  remember(k, field, attempt, decimal(left), lasts, stays)
  call(PUBLISH, channel, decimal(left))
  call('INCRBY', KEYS[k], permits)
  return DONE, left
end
