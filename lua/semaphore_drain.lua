-- Takes all permits that are left.
--
-- KEYS  semaphore: the number of permits that are left; attempts: see attempts.lua
-- ARGV  field; attempt; lasts, stays: ms that it is known, see there
-- Replies
--   DONE  none are left  detail: how many there were, below 0 if more had been taken away than there were
local keys, args = 2, 4
local function operation(k, field, attempt, lasts, stays)
  local answer = earlier(k, field, attempt)
  if answer then
    return DONE, answer
  end
  local left = number_at(KEYS[k])
  if not left then
    return DONE, 0
  end
  remember(k, field, attempt, decimal(left), lasts, stays)
  call('DECRBY', KEYS[k], decimal(left))
  return DONE, left
end
