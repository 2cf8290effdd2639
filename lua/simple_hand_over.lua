-- Gives a lock that one owner holds to another: it is never free, and nobody is woken.
--
-- KEYS  lock: the string
-- ARGV  giver: the value of the owner who holds it; owner: that of who is to have it; lease: ms
-- Replies
--   DONE    the giver has released it, and the owner has been granted it
--   ABSENT  another value stands there, or none: nothing was done         detail: 0
local keys, args = 1, 3
local function operation(k, giver, owner, lease)
  if call('GET', KEYS[k]) ~= giver then
    return ABSENT, 0
  end
  call('SET', KEYS[k], owner, 'PX', lease)
  return DONE
end
