-- Removes a lock that its owner holds, and wakes a waiter.
--
-- KEYS  lock: the string
-- ARGV  owner: the value that this owner alone writes; channel: where waiters of this crate listen
-- Replies
--   DONE    released                             detail, where the channel has subscribers: their number
--   ABSENT  another value stands there, or none  detail: 0
local keys, args = 1, 2
local function operation(k, owner, channel)
  if call('GET', KEYS[k]) ~= owner then
    return ABSENT, 0
  end
  -- Telling can fail, so it comes before freeing.
  local listeners = call(PUBLISH, channel, '0')
  call('DEL', KEYS[k])
  return DONE, listeners > 0 and listeners or nil
end
