-- A fair lock, a read-write lock or a semaphore with room, for which nobody waits: straight on, before any function is made.
-- Whatever is out of the ordinary goes on in acquire.lua. See there for KEYS and ARGV, and zset.lua for the holders.

local room = ARGV[11] == '' and ARGV[14] == '' and redis.pcall('exists', KEYS[2], KEYS[3], KEYS[4])
local in_use, says, ttl = 0, '#' .. ARGV[2] .. ' ' .. ARGV[3], -2
if room == 1 then
  -- There are other holders, and nothing else.
  local scores = redis.pcall('zmscore', KEYS[2], says, '#line', ARGV[7])
  if scores[1] and not scores[2] and not scores[3] then
    room, in_use, ttl = 0, scores[1] + 4503599627370496, redis.pcall('pttl', KEYS[2])
  end
end
if room == 0 then
  local floor, capacity, part, lease = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[8]), tonumber(ARGV[9])
  if floor and floor >= 0 and floor < 9007199254740992 and lease and lease >= 1 and lease <= 86400000
    and part and part >= 1 and in_use + part <= capacity then
    -- As draw() does it. A counter that is lost or not ours is put back for it.
    local before = redis.pcall('set', KEYS[1], ARGV[1], 'GET')
    local last = tonumber(before)
    if last and last >= 0 and last % 1 == 0 and last < floor + 1099511627776 and last < 9007199254740991 then
      local number = floor
      if last >= floor then
        number = last + 1
        redis.call('set', KEYS[1], string.format('%.0f', number))
      end
      local time = redis.call('time')
      local over = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + lease)
      local used, added = string.format('%.0f', in_use + part - 4503599627370496)
      if part == 1 then
        added = redis.pcall('zadd', KEYS[2], over, ARGV[7], used, says)
      else
        added = redis.pcall('zadd', KEYS[2], over, ARGV[7], used, says, -part, '=' .. ARGV[7])
      end
      if type(added) == 'number' and (ttl >= lease or redis.pcall('pexpire', KEYS[2], ARGV[9]) == 1) then
        return number
      end
    elseif type(before) == 'string' then
      redis.call('set', KEYS[1], before)
    elseif not before then
      redis.call('del', KEYS[1])
    end
  end
end

