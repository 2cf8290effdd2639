-- Shared by the releases after which holds remain.

-- Sets the expiry of a lock that stays held. Wakes a waiter if there is a channel and the expiry shrinks by more than a third: the
-- waiter expects the longer lease, and an expired lease publishes nothing.
local function shorten(lock, lease, channel, payload)
  local remaining = call('PTTL', lock)
  call('PEXPIRE', lock, lease)
  if channel and (remaining < 0 or lease * 3 < remaining * 2) then
    redis.pcall(PUBLISH, channel, payload)
  end
end
