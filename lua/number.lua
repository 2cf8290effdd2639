-- Lua's numbers are exact up to this one. A larger number counts as this one.
local MOST = 9007199254740992

-- Returns the number at a key and its text; nil without a key. Fails for a text with which Redis cannot count.
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

-- Lua's tostring writes a large number with an exponent.
local function decimal(number)
  return string.format('%.0f', number)
end
