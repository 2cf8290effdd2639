-- Runs scripts, and gives them globals that they cannot change.
--
-- Receives a table of functions in Rust: handler, the error handler of a script; plain, which turns an error of Rust
-- into the one that a script is to see; call and pcall of the table redis; and a quick form of each, which is told the
-- number of words, and returns `again` for words that it may not read right.
local natives = ...
local handler, plain = natives.handler, natives.plain
local native_pcall, native_xpcall = pcall, xpcall
local globals = _G

local again, select = natives.again, select
local quick_call, slow_call = natives.quick_call, natives.call
local quick_pcall, slow_pcall = natives.quick_pcall, natives.pcall

function redis.call(...)
  local reply = quick_call(select('#', ...), ...)
  if reply == again then
    return slow_call(...)
  end
  return reply
end

function redis.pcall(...)
  local reply = quick_pcall(select('#', ...), ...)
  if reply == again then
    return slow_pcall(...)
  end
  return reply
end

local function finish(ran, ...)
  if ran then
    return true, ...
  end
  return false, plain((...))
end

function pcall(...)
  return finish(native_pcall(...))
end

function xpcall(f, on_error)
  return native_xpcall(f, function(failure)
    return on_error(plain(failure, true))
  end)
end

local environment = setmetatable({}, {
  __index = setmetatable(globals, {
    __index = function(_, name)
      error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end,
  }),
  __newindex = function()
    error('Attempt to modify a readonly table', 2)
  end,
  __metatable = false,
})
globals._G = environment

local rawset = rawset
local function run(script, keys, args)
  rawset(globals, 'KEYS', keys)
  rawset(globals, 'ARGV', args)
  return native_xpcall(script, handler)
end

return run, environment
