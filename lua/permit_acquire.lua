-- Acquires permits with a lease, each under its own id, all or none.
--
-- KEYS  semaphore: the number of permits left; ends: zset of acquired permits by end, in ms of this server's clock
-- ARGV  ids: 16 unique bytes for each permit; lease: ms, -1 for no end; channel: of the waiters
-- Replies
--   DONE  detail: 1 if granted, now or by an earlier sending, 0 if too few are left; how many are left; ms until the nearest end,
--         -1 without an end; if too few are left, how many there are with the acquired ones, -1 without a semaphore; else 0
local keys, args = 2, 3

-- If the semaphore has an expiry, its permits end with it: `remaining` ms from now.
local function take(k, ids, score, remaining)
  for at = 1, #ids, ID do
    call('ZADD', KEYS[k + 1], score, string.sub(ids, at, at + ID - 1))
  end
  if remaining > 0 then
    call('PEXPIRE', KEYS[k + 1], remaining)
  end
  return call('DECRBY', KEYS[k], decimal(#ids / ID))
end

local function operation(k, ids, lease, channel)
  local now = server_time()
  reclaim_ended(k, now, channel)
  local left = number_at(KEYS[k])
  local wanted = #ids / ID
  -- The grant of several permits is one operation, so the first id stands for all.
  local is_granted = call('ZSCORE', KEYS[k + 1], string.sub(ids, 1, ID))
  -- What can fail comes before the writes.
  local nearest = tonumber(call('ZRANGE', KEYS[k + 1], 0, 0, 'WITHSCORES')[2])
  local remaining = call('PTTL', KEYS[k])
  if not is_granted and left and left >= wanted then
    local score = end_after(now, lease)
    local taken, result = pcall(take, k, ids, decimal(score), remaining)
    if not taken then
      -- The user lacks a right. An id without a subtracted permit would add one at its end.
      for at = 1, #ids, ID do
        call('ZREM', KEYS[k + 1], string.sub(ids, at, at + ID - 1))
      end
      error(result, 0)
    end
    is_granted, left, nearest = true, result, math.min(nearest or score, score)
  end
  local in_all = not is_granted and (left and left + call('ZCARD', KEYS[k + 1]) or -1) or 0
  return DONE, { is_granted and 1 or 0, left or 0, nearest and left_until(nearest, now) or -1, in_all }
end
