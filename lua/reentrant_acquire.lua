-- Acquires a lock for its owner, or adds a hold if the owner holds it.
--
-- KEYS  lock: the hash of owners and their counts
-- ARGV  owner; lease: ms; holds: the owner's count after this operation; 1 for a first hold
-- Replies
--   DONE    granted
--   BUSY    another owner holds the lock        detail: its remaining lease in ms, -1 without expiry
--   ABSENT  the owner's earlier holds are gone  detail: 0
local keys, args = 1, 3
local function operation(k, owner, lease, holds)
  local lock = KEYS[k]
  local remaining = call('PTTL', lock)

  if remaining == -2 then
    if holds ~= '1' then
      return ABSENT, 0
    end
    call('HSET', lock, owner, holds)
    expire_new(lock, lease)
    return DONE
  end

  local fields = call('HMGET', lock, 'mode', owner)
  if fields[1] then
    return WRONG_KIND, 'a read-write lock'
  end
  -- Re-entry finds `holds - 1`. A repetition finds `holds`. A lost operation of the owner may have left more. One process alone
  -- writes this field, one operation at a time: `holds` is the right count.
  local held = tonumber(fields[2])
  if held and held >= holds - 1 then
    prolong(lock, lease, remaining)
    call('HSET', lock, owner, holds)
    return DONE
  end
  if holds ~= '1' then
    return ABSENT, 0
  end
  return BUSY, remaining
end
