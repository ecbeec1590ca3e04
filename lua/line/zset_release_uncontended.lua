-- The uncontended path for a hold of a lock that nobody waits for, and whose capacity was not set. It runs before any function
-- is created. In every other case release.lua continues from here. See release.lua for KEYS and ARGV, and zset.lua for the holders.

local says, note = '#' .. ARGV[2] .. ' ' .. ARGV[3], '=' .. (ARGV[7] or '')
local scores = redis.pcall('zmscore', KEYS[2], ARGV[7] or '', note, says, '#line', '#set')
if scores[1] and scores[3] and not scores[4] and not scores[5] then
  local used = scores[3] + 4503599627370496 + (scores[2] or -1)
  if used <= 0 then
    if redis.pcall('del', KEYS[2]) == 1 then return 1 end
  else
    local gone = redis.pcall('zrem', KEYS[2], ARGV[7], note)
    if gone == 1 or gone == 2 then
      redis.call('zadd', KEYS[2], string.format('%.0f', used - 4503599627370496), says)
      -- The key lives as long as the longest lease. If that was ours, the key now expires sooner.
      local last = tonumber(redis.call('zrange', KEYS[2], '-1', '-1', 'WITHSCORES')[2])
      if last < tonumber(scores[1]) then
        local time = redis.call('time')
        local ms = math.max(1, last - time[1] * 1000 - math.floor(time[2] / 1000))
        redis.call('pexpire', KEYS[2], string.format('%.0f', ms))
      end
      return 1
    end
  end
end

