-- Sets the end of a permit anew.
--
-- KEYS  ends: zset of permits and when they end, in ms of this server's clock
-- ARGV  id: of the permit; lease: ms from now, -1 for no end
-- Replies
--   DONE    set
--   ABSENT  nobody has the permit  detail: 0
local keys, args = 1, 2
local function operation(k, id, lease)
  if not call('ZSCORE', KEYS[k], id) then
    return ABSENT, 0
  end
  call('ZADD', KEYS[k], decimal(end_after(server_time(), lease)), id)
  return DONE
end
