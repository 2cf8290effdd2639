-- What every script ends with: calls operation(k, ...) once for each, with its arguments; its keys are KEYS[k] and those
-- that follow. Each runs under its own pcall: one refusal never touches a neighbour.
--
-- Its functions would be made anew in each call, so there are none: this is what a busy server spends its time in.
local pcall, unpack = pcall, unpack
local several = #KEYS > keys
local packed = several and #ARGV == 1
if packed then
  ARGV = cmsgpack.unpack(ARGV[1])
end

local replies, count, before = several and {}, 0, 0
for k = 1, #KEYS, keys do
  local ran, reply, detail = pcall(operation, k, unpack(ARGV, before + 1, before + args))
  if not ran then
    -- Servers before 7 raise a string, later ones a table.
    local message = type(reply) == 'table' and reply.err or tostring(reply)
    if string.find(message, 'WRONGTYPE', 1, true) then
      local found = redis.pcall('TYPE', KEYS[k]).ok or 'another type'
      local is_beside = found == 'none' or keys > 1 and found == 'hash'
      reply = { WRONG_KIND, is_beside and 'another type in a key beside it' or found }
    else
      reply = { FAILED, message }
    end
  elseif detail then
    reply = { reply, detail }
  end
  -- One reply alone is cheaper to write and to read than a list of one.
  if not several then
    return reply
  end
  count, before = count + 1, before + args
  replies[count] = reply
end
return packed and cmsgpack.pack(replies) or replies
