-- Looks at the readers, without changing anything.
--
-- KEYS  lock: the hash of `mode`, readers and writer with their counts
-- ARGV  owner: whose count of read holds is asked for
-- Replies
--   DONE  detail: {remaining lease in ms, -1 without expiry, -2 without a reader; the owner's count}
local keys, args = 1, 1
local function operation(k, owner)
  local lock = KEYS[k]
  local remaining = call('PTTL', lock)
  local fields = call('HMGET', lock, 'mode', owner)
  local mode = fields[1]
  if not mode and remaining ~= -2 then
    return WRONG_KIND, 'a lock without readers and writers'
  end
  -- A writer that also reads: `mode`, its own field, and the readers'.
  if mode ~= 'read' and call('HLEN', lock) <= 2 then
    remaining = -2
  end
  return DONE, { remaining, tonumber(fields[2]) or 0 }
end
