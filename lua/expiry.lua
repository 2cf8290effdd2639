-- Shared by the scripts that set expiries.

-- Sets the expiry of a new key, or deletes it: without an expiry it would outlive its owner.
local function expire_new(key, lease)
  local expires = redis.pcall('PEXPIRE', key, lease)
  if expires ~= 1 then
    call('DEL', key)
    error({ err = expires.err })
  end
end

-- Extends the expiry of a key to `lease`, unless its `remaining` time is longer. Always writes: WAIT counts the last write of its
-- connection, so replicas would seem to have what another connection has written meanwhile.
local function prolong(key, lease, remaining)
  call('PEXPIRE', key, math.max(tonumber(lease), remaining))
end
