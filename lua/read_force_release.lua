-- Frees a lock from all its readers, and wakes a waiter. A writer keeps it.
--
-- KEYS  lock: the hash of `mode`, readers and writer with their counts
-- ARGV  channel: where waiters listen
-- Replies
--   DONE    freed
--   ABSENT  there was no reader  detail: 0
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
