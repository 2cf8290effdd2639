-- Renews the write holds of one owner.
--
-- KEYS  lock: the hash of `mode` and of the readers' and the writer's counts
-- ARGV  owner; lease: ms from now, never shortens the expiry; 0 to verify only
-- Replies
--   DONE    the owner still writes
--   ABSENT  the owner has no write hold here  detail: 0
local keys, args = 1, 2
local function operation(k, owner, lease)
  local lock = KEYS[k]
  local fields = call('HMGET', lock, 'mode', owner .. ':write')
  if fields[1] ~= 'write' or not fields[2] then
    return ABSENT, 0
  end
  if lease ~= '0' then
    prolong(lock, lease, call('PTTL', lock))
  end
  return DONE
end
