-- Gives up one read hold of an owner. The last reader's frees the lock and wakes a waiter. One that leaves leases which end
-- much earlier wakes a waiter too: what it was told when it was refused is no longer true, and no message follows a lease
-- that runs out.
--
-- KEYS  lock: the hash of `mode`, readers and writer with their counts
-- ARGV  owner; holds: the owner's count of read holds once this has been done; lease: ms, set while read holds remain,
--       0 to leave their expiry as it is; channel: where waiters listen
--       base: the name in the form that stands in front of the readers' markers
-- Replies
--   DONE    released, now or by an earlier sending  detail, where it freed a lock with subscribers: their number
--   ABSENT  the owner had no such hold here         detail: 0
local keys, args = 1, 5
local function operation(k, owner, holds, lease, channel, base)
  local lock = KEYS[k]
  local fields = call('HMGET', lock, 'mode', owner, owner .. ':write')
  local mode, held, writes = fields[1], tonumber(fields[2]), fields[3]
  holds = tonumber(holds)
  if not mode or not held or held < holds then
    return ABSENT, 0
  end

  local remaining = call('PTTL', lock)
  local longest = longest_of_others(lock, base, owner, remaining)
  if holds == 0 and not writes and longest <= 0 then
    -- Telling can fail, so it comes before freeing. There is no other reader: what may be left has lost its lease.
    local listeners = call(PUBLISH, channel, '0')
    call('DEL', lock, markers_of(base, owner) .. 1)
    -- Refused while the slot is leaving and one is gone already: the rest end with their leases, the lock is free.
    pcall(remove_markers, base, owner, 2, held)
    return DONE, listeners > 0 and listeners or nil
  end

  remove_markers(base, owner, holds + 1, held)
  if holds == 0 then
    call('HDEL', lock, owner)
  else
    if lease ~= '0' then
      local markers = markers_of(base, owner)
      for i = 1, holds do
        -- Refused when the server is out of memory: then they end as they would have.
        redis.pcall('SET', markers .. i, '1', 'PX', lease)
      end
    end
    redis.pcall('HSET', lock, owner, holds)
    longest = math.max(longest, longest_of(base, owner, 1, holds))
  end
  -- A write hold has no marker, so its time is not cut; readers' is, to the longest of their leases.
  if longest > 0 and longest ~= remaining and (not writes or longest > remaining) then
    call('PEXPIRE', lock, longest)
    if longest * 3 < remaining * 2 then
      redis.pcall(PUBLISH, channel, '0')
    end
  end
  return DONE
end
