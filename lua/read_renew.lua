-- Renews the read holds of one owner.
--
-- KEYS  lock: the hash of `mode` and of the readers' and the writer's counts
-- ARGV  owner; lease: ms from now, never shortens the expiry; 0 to verify only
--       base: prefix of the marker keys, `base:owner:rwlock_timeout:i`
-- Replies
--   DONE    the owner still reads
--   ABSENT  the owner has no read hold here, or only expired ones  detail: 0
local keys, args = 1, 3
local function operation(k, owner, lease, base)
  local lock = KEYS[k]
  local fields = call('HMGET', lock, 'mode', owner)
  local held = fields[1] and tonumber(fields[2])
  if not held then
    return ABSENT, 0
  end

  local markers, alive = markers_of(base, owner), false
  for i = 1, math.min(held, MOST_HOLDS) do
    local left = left_of(markers .. i)
    if left ~= -2 then
      alive = true
      if lease ~= '0' then
        prolong(markers .. i, lease, left)
      end
    end
  end
  if not alive then
    return ABSENT, 0
  end
  if lease ~= '0' then
    prolong(lock, lease, call('PTTL', lock))
  end
  return DONE
end
