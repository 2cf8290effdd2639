-- Removes a latch, which opens it.
--
-- KEYS  latch: its count; attempts: see attempts.lua
-- ARGV  channel: where waiters listen; field; attempt; lasts, stays: ms that it is known, see there
-- Replies
--   DONE    removed, now or by an earlier sending
--   ABSENT  there was none  detail: 0
local keys, args = 2, 5
local function operation(k, channel, field, attempt, lasts, stays)
  if earlier(k, field, attempt) then
    return DONE
  end
  if not number_at(KEYS[k]) then
    return ABSENT, 0
  end
  remember(k, field, attempt, '1', lasts, stays)
  -- Waiters of Redisson go on for this message alone.
  call(PUBLISH, channel, '0')
  call('DEL', KEYS[k])
  return DONE
end
