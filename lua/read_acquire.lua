-- Acquires the read side of a read-write lock, beside other readers or inside the owner's write hold.
--
-- KEYS  lock: the hash of `mode` and of the readers' and the writer's counts; intent: of a waiting writer
-- ARGV  owner; lease: ms; holds: the owner's count of read holds after this operation; 1 for a first hold
--       writes: 1 if the owner has a valid write hold here, else 0; relies: 1 if it has a read hold under this field, which
--       other readers of its client may use too, else 0
--       channel: of the waiters
--       base: prefix of the marker keys, `base:owner:rwlock_timeout:i`
-- Replies
--   DONE    granted
--   BUSY    another owner writes, or a waiting writer has set an intent (write_intend)
--                                               detail: the remaining lease or intent in ms, -1 without expiry
--   ABSENT  the owner's earlier holds are gone  detail: 0
local keys, args = 2, 7
local function operation(k, owner, lease, holds, writes, relies, channel, base)
  local lock = KEYS[k]
  local remaining = call('PTTL', lock)
  local marker = markers_of(base, owner) .. holds

  if remaining == -2 then
    if holds ~= '1' then
      return ABSENT, 0
    end
    local intent = intent_left(KEYS[k + 1])
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
  -- If the owner's client counts its write hold as ended, the field goes: other owners may then read too.
  local write_ended = fields[3] and writes == '0'
  -- An owner without a hold waits for a writer that has set an intent. A repetition has a hold already.
  local is_new = relies == '0' and held and held < tonumber(holds)
  if is_new and not fields[3] then
    local intent = intent_left(KEYS[k + 1])
    if intent > 0 then
      return BUSY, intent
    end
  end
  if held and held >= holds - 1 and (mode == 'read' or fields[3]) then
    -- After holds with expired leases, this marker or a later one may belong to a live hold. Keep the longest of their leases.
    local longest = longest_of(base, owner, tonumber(holds), held)
    call('SET', marker, '1', 'PX', math.max(tonumber(lease), longest))
    if write_ended then
      redis.pcall(PUBLISH, channel, '1')
      call('HDEL', lock, writer)
      call('HSET', lock, 'mode', 'read')
    end
    -- Markers above `holds` are left of a lost operation (reentrant_acquire).
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
