-- Keeps new readers of this crate's clients out for a moment, so that a writer that waits finds the lock free; or lets them
-- in again. Readers that hold the lock are not concerned.
--
-- Between two such moments there is a rest of four times as long, however many writers wait: that is what the second key
-- is for.
--
-- KEYS  lock: the hash of `mode`, readers and writer with their counts
-- ARGV  base: the name in the form that stands in front of the keys of both; length: ms, 0 to end it
-- Replies
--   DONE    new readers are kept out, or are not any more
--   BUSY    the last such moment is not long enough ago  detail: for how long, in ms
--           or a writer has the lock                     detail: -1
--   ABSENT  the lock is free                             detail: 0
local keys, args = 1, 2
local function operation(k, base, length)
  local intent = base .. ':write_intent'
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
  local rest = intent .. ':rest'
  if not call('SET', rest, '1', 'NX', 'PX', 5 * length) then
    return BUSY, call('PTTL', rest)
  end
  call('SET', intent, '1', 'PX', length)
  return DONE
end
