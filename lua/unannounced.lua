-- Shared by the releases of locks whose waiters poll: a message that the server refuses, or has no command for, is left out.
-- Redisson's spin lock publishes none.
local call_or_fail = call
local function call(command, ...)
  if command ~= PUBLISH then
    return call_or_fail(command, ...)
  end
  local listeners = redis.pcall(command, ...)
  return type(listeners) == 'number' and listeners or 0
end
