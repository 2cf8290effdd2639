-- Runs one operation per lock named in KEYS, each under its own pcall: one refusal never touches a neighbour.
-- This text stands in front of every script of the crate (src/wire/script.rs).
--
-- KEYS  `keys` per operation, ARGV `args` per operation, in the order of the operations
-- Replies, 2 per operation: status, detail
--   DONE        the operation took effect, or had already       detail: by script
--   BUSY        somebody else holds the lock                    detail: its remaining lease in ms, -1 without expiry
--   ABSENT      the owner has no hold here                      detail: 0
--   WRONG_KIND  the key holds something that is not this lock   detail: what it is
--   FAILED      the server refused a command                    detail: its error
local DONE, BUSY, ABSENT, WRONG_KIND, FAILED = 0, 1, 2, 3, 4

local function each(keys, args, operation)
  local replies = {}
  for i = 1, #KEYS / keys do
    local key = KEYS[(i - 1) * keys + 1]
    local ran, status, detail = pcall(operation, key, unpack(ARGV, (i - 1) * args + 1, i * args))
    if not ran then
      -- Servers before 7 raise a string, later ones a table.
      local message = type(status) == 'table' and status.err or tostring(status)
      if string.find(message, 'WRONGTYPE', 1, true) then
        status, detail = WRONG_KIND, redis.call('TYPE', key).ok
      else
        status, detail = FAILED, message
      end
    end
    replies[2 * i - 1] = status
    replies[2 * i] = detail
  end
  return replies
end

-- The count of `owner` in a reentrant lock, or nil; `foreign` names the kind when the hash is another kind's.
local function count_of(lock, owner)
  local fields = redis.call('HMGET', lock, 'mode', owner)
  return tonumber(fields[2]), fields[1] and 'a read-write lock'
end
