-- Writes the leader into the hash of the fenced lock that it holds. The last release deletes both.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  owner; token: its fencing token; identity: the name that it chose
-- Replies
--   DONE    written
--   ABSENT  the owner has no hold here  detail: 0
local keys, args = 1, 3
local function operation(k, owner, token, identity)
  local lock = KEYS[k]
  local fields = call('HMGET', lock, 'mode', owner)
  if fields[1] or not fields[2] then
    return ABSENT, 0
  end
  call('HSET', lock, 'leader', owner .. ' ' .. token .. ' ' .. identity)
  return DONE
end
