-- Shared by the scripts that set expiries.

-- Sets the expiry of a new key, or deletes it: without an expiry it would outlive its owner.
local function expire_new(key, lease)
  local expires = redis.pcall('PEXPIRE', key, lease)
  if expires ~= 1 then
    call('DEL', key)
    error({ err = expires.err })
  end
end

-- Extends the expiry of a key to `lease`, if its `remaining` time is shorter.
local function prolong(key, lease, remaining)
  if tonumber(lease) > remaining then
    call('PEXPIRE', key, lease)
  end
end
