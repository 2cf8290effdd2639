-- Releases the hold of an owner, and wakes a waiter.
--
-- KEYS  lock: the string
-- ARGV  owner: a unique value; channel: of this crate's waiters
-- Replies
--   DONE    released                             detail, if the channel has subscribers: their number
--   ABSENT  the key has another value, or none   detail: 0
local keys, args = 1, 2
local function operation(k, owner, channel)
  if call('GET', KEYS[k]) ~= owner then
    return ABSENT, 0
  end
  -- PUBLISH can fail, so it precedes DEL.
  local listeners = call(PUBLISH, channel, '0')
  call('DEL', KEYS[k])
  return DONE, listeners > 0 and listeners or nil
end
