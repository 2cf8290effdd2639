-- Beyond it, Lua's numbers are not exact; a larger one counts as this one.
local MOST = 9007199254740992

-- The number at a key, and how it is written there; nil if there is none. What Redis cannot count with is none.
local function number_at(key)
  local text = call('GET', key)
  if not text then
    return nil
  end
  local digits = string.match(text, '^%-?([1-9]%d*)$') or text == '0' and text
  if not digits or #digits > 19 or #digits == 19 and digits > '9223372036854775807' then
    error('WRONGTYPE')
  end
  return math.max(-MOST, math.min(MOST, tonumber(text))), text
end

-- Lua would write a large one with an exponent.
local function decimal(number)
  return string.format('%.0f', number)
end
