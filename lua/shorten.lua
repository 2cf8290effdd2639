-- Shared by the scripts after which holds remain.

-- Sets the expiry of a lock that stays held. Notifies a waiter, if there is a channel and the lease shrinks by more than a
-- third: the waiter has heard of the longer one, and an expired lease sends no message.
local function shorten(lock, lease, channel, payload)
  local remaining = call('PTTL', lock)
  call('PEXPIRE', lock, lease)
  if channel and (remaining < 0 or lease * 3 < remaining * 2) then
    redis.pcall(PUBLISH, channel, payload)
  end
end
