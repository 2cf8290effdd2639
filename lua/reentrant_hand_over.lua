-- Gives a lock that one owner holds to another, who holds nothing of it: it is never free, and nobody is woken.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  giver: the owner who holds it; owner: who is to have it, once; lease: ms
-- Replies
--   DONE    the giver has released it, and the owner has been granted it
--   ABSENT  the giver does not hold it here: nothing was done             detail: 0
local keys, args = 1, 3
local function operation(k, giver, owner, lease)
  local lock = KEYS[k]
  local fields = call('HMGET', lock, 'mode', giver)
  -- A read-write lock names its readers the same way.
  if fields[1] or not fields[2] then
    return ABSENT, 0
  end
  -- There is nothing to remove yet, but without the right to there must not be two owners. And after a write, the server
  -- does not refuse the next one for want of memory.
  call('HDEL', lock, owner)
  call('PEXPIRE', lock, lease)
  -- The new owner before the old one goes: the key of a slot that is moving could not be made again.
  call('HSET', lock, owner, 1)
  call('HDEL', lock, giver)
  return DONE
end
