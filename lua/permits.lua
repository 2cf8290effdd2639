-- How many bytes the id of a permit has.
local ID = 16
-- A permit whose end never comes has this one, in ms since 1970.
local NO_END = 922337203685477
-- The most permits whose end has come that are taken back in one go: the server serves other clients in between.
local MOST_ENDED = 1000

-- Gives back the permits whose end has come.
local function take_back_ended(k, now, channel)
  local ended = call('ZRANGEBYSCORE', KEYS[k + 1], 0, now, 'LIMIT', 0, MOST_ENDED)
  if #ended == 0 then
    return
  end
  local left = (number_at(KEYS[k]) or 0) + #ended
  if left > 0 then
    call(PUBLISH, channel, decimal(left))
  end
  for _, id in ipairs(ended) do
    call('ZREM', KEYS[k + 1], id)
  end
  call('INCRBY', KEYS[k], #ended)
end

-- The end of a permit that is taken for so many ms; for a negative number, none.
local function end_after(now, lease)
  lease = tonumber(lease)
  return lease < 0 and NO_END or now + lease
end

-- How many ms are left until then, -1 for no end.
local function left_until(score, now)
  score = tonumber(score)
  return score >= NO_END and -1 or score - now
end
