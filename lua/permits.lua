-- The number of bytes of a permit's id.
local ID = 16
-- The end of a permit without an end, in ms since 1970.
local NO_END = 922337203685477
-- The largest number of ended permits that one call takes back: the server serves other clients in between.
local MOST_ENDED = 1000

-- Makes acquired permits available again, all or none.
local function give_back(semaphore, ends, ids)
  for _, id in ipairs(ids) do
    call('ZREM', ends, id)
  end
  local added = redis.pcall('INCRBY', semaphore, #ids)
  if type(added) == 'table' then
    -- The user lacks a right. The ids return as those of ended permits, which the next client with that right takes back.
    for _, id in ipairs(ids) do
      call('ZADD', ends, 0, id)
    end
    local remaining = call('PTTL', semaphore)
    if remaining > 0 then
      call('PEXPIRE', ends, remaining)
    end
    error(added)
  end
end

-- Takes back ended permits.
local function reclaim_ended(k, now, channel)
  local ended = call('ZRANGEBYSCORE', KEYS[k + 1], 0, now, 'LIMIT', 0, MOST_ENDED)
  if #ended == 0 then
    return
  end
  local left = (number_at(KEYS[k]) or 0) + #ended
  if left > 0 then
    call(PUBLISH, channel, decimal(left))
  end
  give_back(KEYS[k], KEYS[k + 1], ended)
end

-- Returns the end of a permit with a lease of that many ms; NO_END for a negative lease.
local function end_after(now, lease)
  lease = tonumber(lease)
  return lease < 0 and NO_END or now + lease
end

-- Returns the remaining ms, -1 for no end.
local function left_until(score, now)
  score = tonumber(score)
  return score >= NO_END and -1 or score - now
end
