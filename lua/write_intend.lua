-- Sets a writer's intent, a key with an expiry that keeps new readers of this crate out, or deletes it. A waiting writer then finds
-- the lock free. Present readers are not affected.
--
-- A second key enforces a rest of four times the intent's length before the next intent, however many writers wait.
--
-- KEYS  lock: the hash of `mode` and of the readers' and the writer's counts; intent; rest
-- ARGV  length: ms, 0 to delete the intent
-- Replies
--   DONE    set or deleted
--   BUSY    the rest is not over      detail: its remaining ms
--           or a writer has the lock  detail: -1
--   ABSENT  the lock is free          detail: 0
local keys, args = 3, 1
local function operation(k, length)
  local intent, rest = KEYS[k + 1], KEYS[k + 2]
  if length == '0' then
    call('DEL', intent)
    return DONE
  end
  local mode = call('HMGET', KEYS[k], 'mode')[1]
  if not mode then
    return ABSENT, 0
  end
  if mode ~= 'read' then
    return BUSY, -1
  end
  if not call('SET', rest, '1', 'NX', 'PX', 5 * length) then
    return BUSY, call('PTTL', rest)
  end
  call('SET', intent, '1', 'PX', length)
  return DONE
end
