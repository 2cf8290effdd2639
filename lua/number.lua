-- The number at a key; nil if there is none.
local function number_at(key)
  local text = call('GET', key)
  local number = text and string.match(text, '^%-?%d+$') and tonumber(text)
  if text and not number then
    error('WRONGTYPE')
  end
  return number or nil
end

-- Lua would write a large one with an exponent.
local function decimal(number)
  return string.format('%.0f', number)
end
