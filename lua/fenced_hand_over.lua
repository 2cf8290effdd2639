-- Gives a lock that one owner holds to another, who holds nothing of it, and counts the acquisition: the lock is never
-- free, and nobody is woken.
--
-- KEYS  lock: the hash of owners and their counts; counter: how often the lock was ever acquired
-- ARGV  giver: the owner who holds it; owner: who is to have it, once; lease: ms
-- Replies
--   DONE    the giver has released it, and the owner has been granted it  detail: the counter, the new owner's token
--   ABSENT  the giver does not hold it here: nothing was done             detail: 0
local keys, args = 2, 3
local function operation(k, giver, owner, lease)
  local lock, counter = KEYS[k], KEYS[k + 1]
  local fields = call('HMGET', lock, 'mode', giver)
  -- A read-write lock names its readers the same way.
  if fields[1] or not fields[2] then
    return ABSENT, 0
  end
  -- In this order as in reentrant_hand_over; counting can fail.
  call('HDEL', lock, owner)
  local token = call('INCR', counter)
  call('PERSIST', counter)
  call('PEXPIRE', lock, lease)
  call('HSET', lock, owner, 1)
  call('HDEL', lock, giver)
  return DONE, token
end
