-- What the scripts share that give keys their time to live.

-- Gives a key that was just made its expiry; without one it would outlive its owner.
local function expire_new(key, lease)
  local expires = redis.pcall('PEXPIRE', key, lease)
  if expires ~= 1 then
    call('DEL', key)
    error({ err = expires.err })
  end
end

-- Gives a key at least `lease` to live; `remaining` is what it has.
local function prolong(key, lease, remaining)
  if tonumber(lease) > remaining then
    call('PEXPIRE', key, lease)
  end
end
