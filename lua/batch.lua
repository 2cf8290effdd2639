-- Begins every script. Shared functions and the operation follow, then run.lua, which runs the operation once for each lock in
-- KEYS (src/wire/script.rs).
--
-- KEYS  `keys` per operation, its lock first, in the order of the operations
-- ARGV  `args` per operation, in the same order; with several operations also one argument: all of them as a MessagePack list
-- Replies: a list with one reply per operation, as MessagePack if ARGV was; for a single operation its reply alone. A reply is 0,
-- if the operation took effect now or at an earlier sending, or a list of status and detail:
--   DONE        as 0                           detail: the result
--   BUSY        another owner holds the lock   detail: ms after which to ask again, -1 if unknown
--   ABSENT      the owner has no hold here     detail: 0
--   WRONG_KIND  the key holds something else   detail: its kind or type
--   FAILED      the server refused a command   detail: its error
local DONE, BUSY, ABSENT, WRONG_KIND, FAILED = 0, 1, 2, 3, 4
local call = redis.call
-- On a cluster whose clients publish to a shard, this line says SPUBLISH (src/wire/script.rs).
local PUBLISH = 'PUBLISH'
-- For the node to which a slot moves, other lines replace these two (src/wire/script.rs).
local KEYS, ARGV = KEYS, ARGV
local ARRIVING = false
