-- Frees a lock from all its readers, and wakes a waiter. Leaves a writer alone.
--
-- KEYS  lock: the hash of `mode` and of the readers' and the writer's counts
-- ARGV  channel: of the waiters
-- Replies
--   DONE    freed
--   ABSENT  no reader, or a writer, holds the lock  detail: 0
local keys, args = 1, 1
local function operation(k, channel)
  local lock = KEYS[k]
  local mode = call('HGET', lock, 'mode')
  if not mode and call('EXISTS', lock) == 1 then
    return WRONG_KIND, 'a lock without readers and writers'
  end
  if mode ~= 'read' then
    return ABSENT, 0
  end
  call(PUBLISH, channel, '0')
  call('DEL', lock)
  return DONE
end
