-- Releases one read hold of an owner. The last read hold frees the lock and wakes a waiter. A release that cuts the expiry by more
-- than a third wakes a waiter too. The waiter expects the longer lease, and an expired lease publishes nothing.
--
-- KEYS  lock: the hash of `mode` and of the readers' and the writer's counts
-- ARGV  owner; holds: the owner's count of read holds after this operation; lease: ms, the new lease of its remaining read
--       holds, 0 to leave their expiry as it is; channel: of the waiters
--       base: prefix of the marker keys, `base:owner:rwlock_timeout:i`
-- Replies
--   DONE    released; if holds remain, perhaps by an earlier sending
--           detail, if that freed a lock with subscribers: their number
--   ABSENT  the owner has no such hold, or an earlier sending released its last one  detail: 0
local keys, args = 1, 5
local function operation(k, owner, holds, lease, channel, base)
  local lock = KEYS[k]
  local fields = call('HMGET', lock, 'mode', owner)
  local mode, held = fields[1], tonumber(fields[2])
  -- The owner writes too, or has written: its job is done, and the lock is kept.
  local writes = mode == 'write'
  holds = tonumber(holds)
  if not mode or not held or held < holds then
    return ABSENT, 0
  end

  if ARRIVING then
    -- A marker that arrives after this operation would replace the one that it sets, or that the owner's next hold sets.
    longest_of(base, owner, 1, held)
  end
  local remaining = call('PTTL', lock)
  local others = longest_of_others(lock, base, owner, remaining)
  if holds == 0 and not writes and others <= 0 then
    -- PUBLISH can fail, so it precedes DEL. Every other reader in the hash has an expired lease.
    local listeners = call(PUBLISH, channel, '0')
    call('DEL', lock, markers_of(base, owner) .. 1)
    -- DEL fails for a marker that has moved with its slot. The remaining markers expire, and the lock is free already.
    pcall(remove_markers, base, owner, 2, held)
    return DONE, listeners > 0 and listeners or nil
  end

  if holds > 0 and lease ~= '0' then
    local markers = markers_of(base, owner)
    for i = 1, holds do
      -- The client relies on this lease: a refusal fails the release, before any change. PEXPIRE needs no memory, and a server
      -- without memory refuses SET only as the first write of a script.
      if call('PEXPIRE', markers .. i, lease) == 0 then
        call('SET', markers .. i, '1', 'PX', lease)
      end
    end
  end
  remove_markers(base, owner, holds + 1, held)
  local longest = others
  if holds == 0 then
    call('HDEL', lock, owner)
  else
    -- HSET fails when the server is out of memory. The count is then too high, and the last release ignores it.
    redis.pcall('HSET', lock, owner, holds)
    longest = math.max(others, longest_of(base, owner, 1, holds))
  end
  -- Set the expiry to the longest read lease. A write hold has no marker, so its expiry may grow but never shrink.
  if longest > 0 and longest ~= remaining and (not writes or longest > remaining) then
    call('PEXPIRE', lock, longest)
    if longest * 3 < remaining * 2 then
      redis.pcall(PUBLISH, channel, '0')
    end
  end
  return DONE
end
