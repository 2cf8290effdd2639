-- Shared by the fair lock's scripts that judge other waiters.

-- Whether an entry of the queue is an owner of this crate, as `owner` is. Owner numbers of this crate have 19 digits and begin with
-- the same four. Java's thread ids are shorter; ids that a Java program makes up (its asynchronous calls take one) may have 19 digits.
local function is_ours(entry, owner)
  return #entry == #owner and string.sub(entry, 38, 41) == string.sub(owner, 38, 41)
end
