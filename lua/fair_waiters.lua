-- Lists the waiters of a lock. Changes nothing. Needs clock.lua.
--
-- KEYS  queue: the list of waiters; places: zset of the ends of their places, in ms of this server's clock
-- ARGV  an empty argument
-- Replies
--   DONE  detail: a line for each waiter, the head first: ms until its place ends, -1 if unknown; the owner

-- The largest number of waiters in a reply.
local MOST_LISTED = 1000

local keys, args = 2, 1
local function operation(k)
  local queue, places = KEYS[k], KEYS[k + 1]
  local lines, now = {}, server_time()
  for i, owner in ipairs(call('LRANGE', queue, 0, MOST_LISTED - 1)) do
    local score = tonumber(call('ZSCORE', places, owner))
    local left = score and math.max(math.floor(score - now), 0) or -1
    -- A line end in another program's entry must not look like another waiter.
    lines[i] = string.format('%.0f ', left) .. string.gsub(owner, '%c', '?')
  end
  return DONE, table.concat(lines, '\n')
end
