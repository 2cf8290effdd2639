-- Adds permits, whichever task had them, and tells waiters how many there are. A negative number takes some away.
--
-- KEYS  semaphore: the number of permits that are left; attempt: see attempts.lua
-- ARGV  permits: how many; channel: where waiters listen; attempt: its number; lasts: ms that it is known
-- Replies
--   DONE  added, now or by an earlier sending  detail: how many are left
local keys, args = 2, 4
local function operation(k, permits, channel, attempt, lasts)
  local answer = earlier(k, attempt)
  if answer then
    return DONE, answer
  end
  local left = (number_at(KEYS[k]) or 0) + permits
  if math.abs(left) >= MOST then
    error('that is too many permits')
  end
  remember(k, attempt, decimal(left), lasts)
  call(PUBLISH, channel, decimal(left))
  call('INCRBY', KEYS[k], permits)
  return DONE, left
end
