-- Gives a permit back before its end, and wakes a waiter.
--
-- KEYS  semaphore: the number of permits that are left; attempts: see attempts.lua; ends: zset of permits and when they end, in
--       ms of this server's clock
-- ARGV  id: of the permit; channel: where waiters listen; field; attempt; lasts, stays: ms that it is known, see there
-- Replies
--   DONE    given back, now or by an earlier sending
--   ABSENT  nobody has it, or its end had come and it is given back for that  detail: 0
local keys, args = 3, 6
local function operation(k, id, channel, field, attempt, lasts, stays)
  local answer = earlier(k, field, attempt)
  if answer == 1 then
    return DONE
  end
  local score = call('ZSCORE', KEYS[k + 2], id)
  if not score or answer then
    return ABSENT, 0
  end
  local left = (number_at(KEYS[k]) or 0) + 1
  local is_over = tonumber(score) <= server_time()
  remember(k, field, attempt, is_over and '0' or '1', lasts, stays)
  call(PUBLISH, channel, decimal(left))
  call('ZREM', KEYS[k + 2], id)
  call('INCRBY', KEYS[k], 1)
  if is_over then
    return ABSENT, 0
  end
  return DONE
end
