-- What makes an operation on a bare number safe to send again. A client notes which attempt of its own it was, and what it came
-- to, in a field of the hash KEYS[k + 1]. It uses a field for no other attempt before this one is answered, so there are as many
-- fields as operations were on their way at once. The hash is gone some time after its last use: a client that goes on says now
-- and then that it does, by `stays`.

-- What an earlier sending of this attempt came to, if there was one.
local function earlier(k, field, attempt)
  local told = call('HGET', KEYS[k + 1], field)
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
local function remember(k, field, attempt, answer, lasts, stays)
  local is_new = call('HSET', KEYS[k + 1], field, attempt .. ' ' .. answer)
  if stays == '1' or is_new == 1 then
    call('PEXPIRE', KEYS[k + 1], lasts)
  end
end
