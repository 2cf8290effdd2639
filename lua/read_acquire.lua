-- Takes the read side of a read-write lock: with other readers, or inside the owner's own write hold.
--
-- KEYS  lock: the hash of `mode`, readers and writer with their counts
-- ARGV  owner; lease: ms; holds: the owner's count of read holds once this has been done, 1 for a first
--       writes: 1 if the owner relies on a write hold here; relies: 1 if it relies on a read hold under this field, which
--       other readers of its client may use as well
--       channel: where waiters listen; base: the name in the form that stands in front of the readers' markers
-- Replies
--   DONE    granted
--   BUSY    another owner writes, or a writer that waits keeps new readers out (write_intend)
--                                                     detail: the remaining lease in ms, -1 without expiry
--   ABSENT  the holds that this one adds to are gone  detail: 0
local keys, args = 1, 7
local function operation(k, owner, lease, holds, writes, relies, channel, base)
  local lock = KEYS[k]
  local remaining = call('PTTL', lock)
  local marker = markers_of(base, owner) .. holds

  if remaining == -2 then
    if holds ~= '1' then
      return ABSENT, 0
    end
    local intent = intent_left(base)
    if intent > 0 then
      return BUSY, intent
    end
    call('SET', marker, '1', 'PX', lease)
    call('HSET', lock, 'mode', 'read', owner, holds)
    expire_new(lock, lease)
    return DONE
  end

  local writer = owner .. ':write'
  local fields = call('HMGET', lock, 'mode', owner, writer)
  local mode, held = fields[1], tonumber(fields[2] or 0)
  if not mode then
    return WRONG_KIND, 'a lock without readers and writers'
  end
  -- A write hold of the owner's that has ended, by its own account, is taken away: other owners may read beside it.
  local is_over = fields[3] and writes == '0'
  -- An owner that enters waits for a writer. Its own repetition has entered.
  local enters = relies == '0' and held and held < tonumber(holds)
  if enters and not fields[3] then
    local intent = intent_left(base)
    if intent > 0 then
      return BUSY, intent
    end
  end
  if held and held >= holds - 1 and (mode == 'read' or fields[3]) then
    -- A live hold may have this marker or a later one, where holds before it have ended by their leases: its lease is kept.
    local longest = longest_of(base, owner, tonumber(holds), held)
    call('SET', marker, '1', 'PX', math.max(tonumber(lease), longest))
    if is_over then
      redis.pcall(PUBLISH, channel, '1')
      call('HDEL', lock, writer)
      call('HSET', lock, 'mode', 'read')
    end
    -- More than `holds` is what a lost operation left (reentrant_acquire).
    remove_markers(base, owner, holds + 1, held)
    prolong(lock, lease, remaining)
    call('HSET', lock, owner, holds)
    return DONE
  end
  if holds ~= '1' then
    return ABSENT, 0
  end
  return BUSY, remaining
end
