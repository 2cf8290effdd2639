-- Takes one permit for a time, under an id of its own.
--
-- KEYS  semaphore: the number of permits that are left; ends: zset of permits and when they end, in ms of this server's clock
-- ARGV  id: 16 bytes that nobody else has; lease: ms, -1 for no end; channel: where waiters listen
-- Replies
--   DONE  granted, now or by an earlier sending  detail: how many are left, and ms until the nearest end, -1 without
--   BUSY  none is left                           detail: ms until the nearest end, -1 without
local keys, args = 2, 3
local function nearest_end(ends, now)
  local nearest = call('ZRANGE', ends, 0, 0, 'WITHSCORES')[2]
  return nearest and left_until(nearest, now) or -1
end

local function operation(k, id, lease, channel)
  local now = server_time()
  take_back_ended(k, now, channel)
  local left = number_at(KEYS[k])
  if call('ZSCORE', KEYS[k + 1], id) then
    return DONE, { left or 0, nearest_end(KEYS[k + 1], now) }
  end
  if not left or left < 1 then
    return BUSY, nearest_end(KEYS[k + 1], now)
  end
  call('ZADD', KEYS[k + 1], decimal(end_after(now, lease)), id)
  left = call('DECRBY', KEYS[k], 1)
  -- One who gave the semaphore an end gave it to the permits.
  local remaining = call('PTTL', KEYS[k])
  if remaining > 0 then
    call('PEXPIRE', KEYS[k + 1], remaining)
  end
  return DONE, { left, nearest_end(KEYS[k + 1], now) }
end
