-- Removes a latch, which opens it.
--
-- KEYS  latch: its count; attempt: see attempts.lua
-- ARGV  channel: where waiters listen; attempt: its number; lasts: ms that it is known
-- Replies
--   DONE    removed, now or by an earlier sending
--   ABSENT  there was none  detail: 0
local keys, args = 2, 3
local function operation(k, channel, attempt, lasts)
  if earlier(k, attempt) then
    return DONE
  end
  if not number_at(KEYS[k]) then
    return ABSENT, 0
  end
  remember(k, attempt, '1', lasts)
  -- Waiters of Redisson go on for this message alone.
  call(PUBLISH, channel, '0')
  call('DEL', KEYS[k])
  return DONE
end
