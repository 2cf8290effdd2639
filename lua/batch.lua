-- Runs one operation per lock named in KEYS, each under its own pcall: one refusal never touches a neighbour.
-- This text stands in front of every script of the crate (src/wire/script.rs).
--
-- KEYS  1 per operation: its lock; ARGV  `args` per operation, in the order of the operations
-- Replies, a list with 1 per operation, or for a single operation only that: 0, the operation took effect or had
-- already; or a list of status and detail
--   DONE        as 0, for those who ask for something   detail: what they asked for
--   BUSY        somebody else holds the lock            detail: its remaining lease in ms, -1 without expiry
--   ABSENT      the owner has no hold here              detail: 0
--   WRONG_KIND  the key holds something else            detail: what it is
--   FAILED      the server refused a command            detail: its error
local DONE, BUSY, ABSENT, WRONG_KIND, FAILED = 0, 1, 2, 3, 4
local call = redis.call

local function refusal(lock, problem)
  -- Servers before 7 raise a string, later ones a table.
  local message = type(problem) == 'table' and problem.err or tostring(problem)
  if string.find(message, 'WRONGTYPE', 1, true) then
    return { WRONG_KIND, redis.pcall('TYPE', lock).ok or 'another type' }
  end
  return { FAILED, message }
end

local function each(args, operation)
  -- Locals, as this loop is what a busy server spends its time in.
  local KEYS, ARGV, pcall, unpack = KEYS, ARGV, pcall, unpack
  local replies = {}
  local before = 0
  for i = 1, #KEYS do
    local lock = KEYS[i]
    local ran, status, detail = pcall(operation, lock, unpack(ARGV, before + 1, before + args))
    before = before + args
    if not ran then
      replies[i] = refusal(lock, status)
    elseif detail then
      replies[i] = { status, detail }
    else
      replies[i] = status
    end
  end
  -- One reply alone is cheaper to write and to read than a list of one.
  return #KEYS == 1 and replies[1] or replies
end
