-- Takes all permits that are left.
--
-- KEYS  semaphore: the number of permits that are left; attempt: see attempts.lua
-- ARGV  attempt: its number; lasts: ms that it is known
-- Replies
--   DONE  none are left  detail: how many there were, below 0 if more had been taken away than there were
local keys, args = 2, 2
local function operation(k, attempt, lasts)
  local answer = earlier(k, attempt)
  if answer then
    return DONE, answer
  end
  local left = number_at(KEYS[k])
  if not left then
    return DONE, 0
  end
  remember(k, attempt, decimal(left), lasts)
  call('SET', KEYS[k], '0', 'KEEPTTL')
  return DONE, left
end
