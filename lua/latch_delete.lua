-- Removes a latch, which opens it.
--
-- KEYS  latch: its count; attempt: see attempts.lua
-- ARGV  channel: of the waiters; attempt: its number; lasts: ms that the attempt's key lives
-- Replies
--   DONE    removed, now or by an earlier sending
--   ABSENT  there was no latch  detail: 0
local keys, args = 2, 3
local function operation(k, channel, attempt, lasts)
  if earlier_result(k, attempt) then
    return DONE
  end
  if not number_at(KEYS[k]) then
    return ABSENT, 0
  end
  begin_release(k, lasts)
  -- Redisson's waiters go on at this message only. PUBLISH can fail, so it precedes the result.
  call(PUBLISH, channel, '0')
  store_result(k, attempt, '1', lasts)
  number_call('DEL', k)
  return DONE
end
