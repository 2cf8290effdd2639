-- Keeps an owner's read holds alive, and no other reader's.
--
-- KEYS  lock: the hash of `mode`, readers and writer with their counts
-- ARGV  owner; lease: ms from now, 0 to look only; what is left already is never shortened
--       base: the name in the form that stands in front of the readers' markers
-- Replies
--   DONE    the owner still reads
--   ABSENT  the owner has no read hold here, or only such as have lost their lease  detail: 0
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
