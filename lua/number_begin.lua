-- Sets the number of a semaphore or a latch that does not exist, and publishes a message.
--
-- KEYS  number; attempt: see attempts.lua; ends: the zset that an expirable semaphore has
-- ARGV  expirable: 1 for an expirable semaphore, else 0; value; channel: of the waiters; message; attempt: its number; lasts: ms
--       that the attempt's key lives
-- Replies
--   DONE        set, now or by an earlier sending
--   ABSENT      the key exists                       detail: 0
--   WRONG_KIND  an expirable semaphore has the name  detail: that
local keys, args = 3, 6
local function operation(k, expirable, value, channel, message, attempt, lasts)
  if earlier_result(k, attempt) then
    return DONE
  end
  if number_at(KEYS[k]) then
    -- GET needs no further right, and fails in these words at a zset alone: acquired permits of an expirable semaphore.
    local foreign = expirable == '0' and redis.pcall('GET', KEYS[k + 2])
    if type(foreign) == 'table' and string.find(foreign.err, 'WRONGTYPE', 1, true) then
      return WRONG_KIND, 'an expirable semaphore'
    end
    return ABSENT, 0
  end
  store_result(k, attempt, '1', lasts)
  call(PUBLISH, channel, message)
  number_call('SET', k, value)
  return DONE
end
