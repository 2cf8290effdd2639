-- Acquires a lock that is one string, whose value is its owner.
--
-- KEYS  lock: the string
-- ARGV  owner: a unique value; lease: ms
-- Replies
--   DONE    granted, now or by an earlier sending
--   BUSY    the key has another value  detail: its remaining lease in ms, -1 without expiry
local keys, args = 1, 2
local function operation(k, owner, lease)
  local lock = KEYS[k]
  local remaining = call('PTTL', lock)
  if remaining == -2 then
    call('SET', lock, owner, 'PX', lease)
    return DONE
  end
  if call('GET', lock) == owner then
    prolong(lock, lease, remaining)
    return DONE
  end
  return BUSY, remaining
end
