-- Lists the waiters of a lock, without changing anything; stands behind clock.lua.
--
-- KEYS  queue: the list of waiters; places: zset of until when each keeps its place
-- ARGV  nothing: an empty argument
-- Replies
--   DONE  detail: a line for each waiter, the next to be served first: for how many ms it keeps its place, -1 if that is
--         not known; the owner

-- The most waiters that are told.
local MOST_TOLD = 1000

local keys, args = 2, 1
local function operation(k)
  local queue, places = KEYS[k], KEYS[k + 1]
  local lines, now = {}, server_time()
  for i, owner in ipairs(call('LRANGE', queue, 0, MOST_TOLD - 1)) do
    local score = tonumber(call('ZSCORE', places, owner))
    local left = score and math.max(math.floor(score - now), 0) or -1
    -- A line end in an entry of another program's is not to look like another waiter.
    lines[i] = left .. ' ' .. string.gsub(owner, '%c', '?')
  end
  return DONE, table.concat(lines, '\n')
end
