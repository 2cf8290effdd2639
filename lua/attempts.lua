-- What makes an operation on a bare number safe to send again. A client notes which attempt of its own it was, and what it came
-- to, at KEYS[k + 1]. It uses this key for no other attempt before this one is answered, so a client has as many keys as
-- operations were on their way at once. Each ends some time after its last use.

-- What an earlier sending of this attempt came to, if there was one.
local function earlier(k, attempt)
  local told = call('GET', KEYS[k + 1])
  local number, answer = string.match(told or '', '^(%d+) (%-?%d+)$')
  if not number or tonumber(number) < tonumber(attempt) then
    return nil
  end
  if number ~= attempt then
    error('a later attempt was here before: nobody waits for this one')
  end
  return tonumber(answer)
end

-- The first of the writes: what is refused is refused before anything is done.
local function remember(k, attempt, answer, lasts)
  call('SET', KEYS[k + 1], attempt .. ' ' .. answer, 'PX', lasts)
end
