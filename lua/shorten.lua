-- What the scripts share that leave holds behind.

-- Sets the expiry of a lock that stays held. A waiter that has heard of a time longer by half is told, if there is a
-- channel: a lease that runs out sends no message.
local function shorten(lock, lease, channel, payload)
  local remaining = call('PTTL', lock)
  call('PEXPIRE', lock, lease)
  if channel and lease * 3 < remaining * 2 then
    redis.pcall(PUBLISH, channel, payload)
  end
end
