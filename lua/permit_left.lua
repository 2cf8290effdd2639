-- Reads the remaining lease of a permit.
--
-- KEYS  ends: zset of acquired permits by end, in ms of this server's clock
-- ARGV  id: of the permit
-- Replies
--   DONE    detail: the remaining ms, -1 for no end
--   ABSENT  the permit is not acquired, or has ended  detail: 0
local keys, args = 1, 1
local function operation(k, id)
  local score = call('ZSCORE', KEYS[k], id)
  local left = score and left_until(score, server_time())
  if not left or left ~= -1 and left <= 0 then
    return ABSENT, 0
  end
  return DONE, left
end
