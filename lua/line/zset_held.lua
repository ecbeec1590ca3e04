-- What acquire_line_up.lua has to know of a fair lock, or of a semaphore with one permit. See zset.lua for the holders.

-- For how much longer another hold uses all of the capacity, in ms. Nil if a capacity was set and its note is gone: acquire.lua writes
-- it again.
local function time_of_holder(lock, kind, field, is_first)
  local noted = redis.call('zmscore', lock, '#' .. kind .. ' 1', '#line', field, '#set')
  if is_first and noted[4] then return end
  local is_in_use = noted[1] and tonumber(noted[1]) == 1 - 4503599627370496
  local is_noted = is_first and not noted[2] or noted[2] and not is_first
  return is_in_use and is_noted and not noted[3] and redis.call('pttl', lock)
end

-- The mark by which newcomers know that somebody waits.
local function begin_line(lock)
  return type(redis.pcall('zadd', lock, '-2251799813685248', '#line')) == 'number'
end
