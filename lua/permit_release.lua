-- Releases permits before their end, all or none, and wakes waiters. If all exist, takes back those that have ended.
--
-- KEYS  semaphore: the number of permits left; attempt: see attempts.lua; ends: zset of acquired permits by end, in ms of
--       this server's clock
-- ARGV  ids: 16 bytes for each permit, each once; channel: of the waiters; attempt: its number; lasts: ms that the
--       attempt's key lives
-- Replies
--   DONE    released, now or by an earlier sending
--   ABSENT  a permit is not acquired, or has ended  detail: 0
local keys, args = 3, 4
local function operation(k, ids, channel, attempt, lasts)
  local result = earlier_result(k, attempt)
  if result == 1 then
    return DONE
  end
  if result then
    return ABSENT, 0
  end
  local now, held, ended = server_time(), {}, {}
  for at = 1, #ids, ID do
    local id = string.sub(ids, at, at + ID - 1)
    local score = call('ZSCORE', KEYS[k + 2], id)
    if not score then
      return ABSENT, 0
    end
    local list = tonumber(score) > now and held or ended
    list[#list + 1] = id
  end
  local is_whole = #ended == 0
  local back = is_whole and held or ended
  local left = (number_at(KEYS[k]) or 0) + #back
  begin_release(k, lasts)
  -- PUBLISH can fail, so it precedes the result.
  if left > 0 then
    call(PUBLISH, channel, decimal(left))
  end
  store_result(k, attempt, is_whole and '1' or '0', lasts)
  -- After a refusal the ids count as ended, and a client that asks again because it has not heard of the refusal is told DONE.
  give_back(KEYS[k], KEYS[k + 2], back)
  if not is_whole then
    return ABSENT, 0
  end
  return DONE
end
