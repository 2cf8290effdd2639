-- Sets a new end of a permit.
--
-- KEYS  ends: zset of acquired permits by end, in ms of this server's clock
-- ARGV  id: of the permit; lease: ms from now, -1 for no end
-- Replies
--   DONE    set
--   ABSENT  the permit is not acquired, or has ended  detail: 0
local keys, args = 1, 2
local function operation(k, id, lease)
  local now = server_time()
  local score = call('ZSCORE', KEYS[k], id)
  if not score or tonumber(score) <= now then
    return ABSENT, 0
  end
  -- A server that is out of memory refuses ZADD only as the first write of a script. No permit has an empty id.
  call('ZREM', KEYS[k], '')
  call('ZADD', KEYS[k], decimal(end_after(now, lease)), id)
  return DONE
end
