-- What every script begins with; run.lua stands behind it and the shared functions, and runs its operation once per
-- lock named in KEYS (src/wire/script.rs).
--
-- KEYS  `keys` per operation, its lock first; ARGV  `args` per operation, both in the order of the operations; or, of
--       several operations, a single one: all of them as a list in MessagePack
-- Replies, a list with 1 per operation, or for a single operation only that: 0, the operation took effect or had
-- already; or a list of status and detail. A list in MessagePack where the arguments were one.
--   DONE        as 0, of an operation that asks         detail: what it asked for
--   BUSY        another owner holds the lock            detail: ms after which to ask again, -1 if that is not known
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
