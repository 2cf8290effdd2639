-- Ends every script: calls operation(k, ...) for each operation, with its arguments. The keys of an operation are KEYS[k] and the
-- following ones. Each call has its own pcall, so the failure of one operation does not affect another.
--
-- Defines no functions: Lua would make them anew in each call, and a busy server spends most of its time here.
-- Lua 5.4 has no global `unpack`. Redis refuses to read a global that it lacks, but not a field.
local pcall, unpack = pcall, table.unpack or unpack
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
      local is_second = found == 'none' or keys > 1 and found == 'hash'
      reply = { WRONG_KIND, is_second and 'another type in a further key of the lock' or found }
    else
      reply = { FAILED, message }
    end
  elseif detail then
    reply = { reply, detail }
  end
  -- A single reply is cheaper to write and to read than a list of one.
  if not several then
    return reply
  end
  count, before = count + 1, before + args
  replies[count] = reply
end
return packed and cmsgpack.pack(replies) or replies
