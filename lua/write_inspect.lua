-- Reads the state of the write side. Changes nothing.
--
-- KEYS  lock: the hash of `mode` and of the readers' and the writer's counts
-- ARGV  owner: the owner whose write holds to count
-- Replies
--   DONE  detail: {remaining lease in ms, -1 without expiry, -2 without a writer; the owner's count}
local keys, args = 1, 1
local function operation(k, owner)
  local lock = KEYS[k]
  local remaining = call('PTTL', lock)
  local fields = call('HMGET', lock, 'mode', owner .. ':write')
  local mode = fields[1]
  if not mode and remaining ~= -2 then
    return WRONG_KIND, 'a lock without readers and writers'
  end
  return DONE, { mode == 'write' and remaining or -2, tonumber(fields[2]) or 0 }
end
