-- Runs one operation per lock named in KEYS, each under its own pcall: one refusal never touches a neighbour.
-- This text stands in front of every script of the crate (src/wire/script.rs).
--
-- KEYS  `keys` per operation, its lock first; ARGV  `args` per operation; both in the order of the operations
-- Replies, a list with 1 per operation, or for a single operation only that: 0, the operation took effect or had
-- already; or a list of status and detail
--   DONE        as 0, for those who ask for something   detail: what they asked for
--   BUSY        somebody else holds the lock            detail: ms after which to ask again, -1 if nobody can tell
--   ABSENT      the owner has no hold here              detail: 0
--   WRONG_KIND  the key holds something else            detail: what it is
--   FAILED      the server refused a command            detail: its error
local DONE, BUSY, ABSENT, WRONG_KIND, FAILED = 0, 1, 2, 3, 4
local call = redis.call
-- On a cluster whose clients publish to a shard, this line says SPUBLISH (src/wire/script.rs).
local PUBLISH = 'PUBLISH'
-- At the node that a cluster's slot is on its way to, other lines stand for these two (src/wire/script.rs).
local KEYS, ARGV = KEYS, ARGV
local ARRIVING = false

local function refusal(lock, keys, problem)
  -- Servers before 7 raise a string, later ones a table.
  local message = type(problem) == 'table' and problem.err or tostring(problem)
  if string.find(message, 'WRONGTYPE', 1, true) then
    local found = redis.pcall('TYPE', lock).ok or 'another type'
    local is_beside = found == 'none' or keys > 1 and found == 'hash'
    return { WRONG_KIND, is_beside and 'another type in a key beside it' or found }
  end
  return { FAILED, message }
end

-- Calls operation(k, ...) for each, with its arguments; its keys are KEYS[k] and those that follow.
local function each(keys, args, operation)
  -- Locals, as this loop is what a busy server spends its time in.
  local KEYS, ARGV, pcall, unpack = KEYS, ARGV, pcall, unpack
  local replies, count, before = {}, 0, 0
  for k = 1, #KEYS, keys do
    local ran, status, detail = pcall(operation, k, unpack(ARGV, before + 1, before + args))
    before = before + args
    count = count + 1
    if not ran then
      replies[count] = refusal(KEYS[k], keys, status)
    elseif detail then
      replies[count] = { status, detail }
    else
      replies[count] = status
    end
  end
  -- One reply alone is cheaper to write and to read than a list of one.
  return count == 1 and replies[1] or replies
end

-- Gives a key that was just made its expiry; without one it would outlive its owner.
local function expire_new(key, lease)
  local expires = redis.pcall('PEXPIRE', key, lease)
  if expires ~= 1 then
    call('DEL', key)
    error({ err = expires.err })
  end
end

-- Gives a key at least `lease` to live; `remaining` is what it has.
local function prolong(key, lease, remaining)
  if tonumber(lease) > remaining then
    call('PEXPIRE', key, lease)
  end
end
