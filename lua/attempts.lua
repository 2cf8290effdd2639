-- Makes an operation on a bare number safe to send again. KEYS[k + 1] stores the number of a client's attempt and its result.
-- The client uses that key for no other attempt before this one is answered. It therefore has as many keys as operations that
-- were under way at once. A key expires some time after its last use.

-- Returns the result of an earlier sending of this attempt, if there was one.
local function earlier_result(k, attempt)
  local stored = call('GET', KEYS[k + 1])
  local number, result = string.match(stored or '', '^(%d+) (%-?%d+)$')
  if not number or tonumber(number) < tonumber(attempt) then
    return nil
  end
  if number ~= attempt then
    error('a later attempt has used this key: no caller waits for this one')
  end
  return tonumber(result)
end

-- Stores the result. Scripts call this before their other writes: a refusal then leaves the number unchanged.
local function store_result(k, attempt, result, lasts)
  call('SET', KEYS[k + 1], attempt .. ' ' .. result, 'PX', lasts)
end

-- Runs the write that changes the number, the last one of its script. If the server refuses it, the result is removed: a repetition
-- would find it, and report success.
local function number_call(command, k, ...)
  local changed = redis.pcall(command, KEYS[k], ...)
  if type(changed) == 'table' and changed.err then
    redis.pcall('PEXPIRE', KEYS[k + 1], 0)
    error(changed)
  end
end

-- Begins the writes of a script that frees permits or counts down, before it publishes and stores its result. A server that refuses
-- writes refuses this one, and a message would be untrue. A server that is out of memory refuses SET only as the first write of a
-- script, and PEXPIRE never.
local function begin_release(k, lasts)
  call('PEXPIRE', KEYS[k + 1], lasts)
end
