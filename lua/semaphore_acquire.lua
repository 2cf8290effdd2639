-- Acquires permits, all or none.
--
-- KEYS  semaphore: the number of permits left; attempt: see attempts.lua; ends: the zset that an expirable semaphore has
-- ARGV  permits: how many; attempt: its number; lasts: ms that the attempt's key lives
-- Replies
--   DONE        granted, now or by an earlier sending  detail: how many are left
--   BUSY        too few are left                       detail: how many are left
--   ABSENT      there is no semaphore                  detail: 0
--   WRONG_KIND  an expirable semaphore has the name    detail: that
local keys, args = 3, 3
local function operation(k, permits, attempt, lasts)
  local result = earlier_result(k, attempt)
  if result then
    return DONE, result
  end
  local left = number_at(KEYS[k])
  if not left or left < tonumber(permits) then
    -- GET needs no further right, and fails in these words at a zset alone: acquired permits of an expirable semaphore.
    local foreign = redis.pcall('GET', KEYS[k + 2])
    if type(foreign) == 'table' and string.find(foreign.err, 'WRONGTYPE', 1, true) then
      return WRONG_KIND, 'an expirable semaphore'
    elseif not left then
      return ABSENT, 0
    end
    return BUSY, left
  end
  left = left - permits
  store_result(k, attempt, decimal(left), lasts)
  number_call('DECRBY', k, permits)
  return DONE, left
end
