-- Reads the state of the read side. Changes nothing.
--
-- KEYS  lock: the hash of `mode` and of the readers' and the writer's counts
-- ARGV  owner: the owner whose read holds to count
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
  -- Under a writer, the hash has `mode`, the writer's field, and a third field only if there is a reader.
  if mode ~= 'read' and call('HLEN', lock) <= 2 then
    remaining = -2
  end
  return DONE, { remaining, tonumber(fields[2]) or 0 }
end
