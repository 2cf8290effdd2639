-- Takes permits for a time, each under an id of its own, all or none.
--
-- KEYS  semaphore: the number of permits that are left; ends: zset of permits and when they end, in ms of this server's clock
-- ARGV  ids: 16 bytes for each permit, which no other has; lease: ms, -1 for no end; channel: where waiters listen
-- Replies
--   DONE  detail: 1 if granted, now or by an earlier sending, 0 if there are too few; how many are left; ms until the nearest end,
--         -1 without
local keys, args = 2, 3
local function operation(k, ids, lease, channel)
  local now = server_time()
  take_back_ended(k, now, channel)
  local left = number_at(KEYS[k])
  local wanted = #ids / ID
  -- All were granted at once, so the first one tells of all.
  local is_granted = call('ZSCORE', KEYS[k + 1], string.sub(ids, 1, ID))
  if not is_granted and left and left >= wanted then
    is_granted = true
    local score = decimal(end_after(now, lease))
    for at = 1, #ids, ID do
      call('ZADD', KEYS[k + 1], score, string.sub(ids, at, at + ID - 1))
    end
    left = call('DECRBY', KEYS[k], wanted)
    -- The permits of a semaphore that has an expiry end with it.
    local remaining = call('PTTL', KEYS[k])
    if remaining > 0 then
      call('PEXPIRE', KEYS[k + 1], remaining)
    end
  end
  local nearest = call('ZRANGE', KEYS[k + 1], 0, 0, 'WITHSCORES')[2]
  return DONE, { is_granted and 1 or 0, left or 0, nearest and left_until(nearest, now) or -1 }
end
