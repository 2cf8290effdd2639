-- Reads the leader of an election.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  an empty argument
-- Replies
--   DONE    detail: the leader's token, a space and its identity
--   ABSENT  no owner that holds the lock has announced itself  detail: 0
local keys, args = 1, 1
local function operation(k)
  local lock = KEYS[k]
  local stored = call('HMGET', lock, 'leader')[1]
  local owner, leader = string.match(stored or '', '^(%S+) (%d+ .*)$')
  if not owner or not call('HMGET', lock, owner)[1] then
    return ABSENT, 0
  end
  return DONE, leader
end
