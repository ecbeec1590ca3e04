-- The uncontended path for holds of locks that nobody waits for, and whose capacity was not set. It runs before any function
-- is created. In every other case release.lua continues from here. See release_args.lua for KEYS and ARGV, and zset.lua for the
-- holders.

local is_done, scores = true -- `scores`: what the key of the last lock says
for i = 1, locks do
  local lock, says, field = KEYS[3 * i - 1], '#' .. (ARGV[2 * i] or ''), ARGV[2 * i + 1] or ''
  local note = '=' .. field
  scores = redis.pcall('zmscore', lock, field, note, says, '#line', '#set')
  if scores[1] and scores[3] and not scores[4] and not scores[5] then
    local used = scores[3] + 4503599627370496 + (scores[2] or -1)
    if used <= 0 then
      if redis.pcall('del', lock) == 1 then given_back[i] = 1 end
    else
      local gone = redis.pcall('zrem', lock, field, note)
      if gone == 1 or gone == 2 then
        local written = redis.pcall('zadd', lock, string.format('%.0f', used - 4503599627370496), says)
        -- If that was refused, only the hold is released. Such an error must not hide what became of the other locks.
        given_back[i] = type(written) == 'table' and 'HALFRUN ' .. written.err or 1
        -- The key lives as long as the longest lease. If that was ours, the key now expires sooner.
        local last = tonumber(redis.call('zrange', lock, '-1', '-1', 'WITHSCORES')[2])
        if last < tonumber(scores[1]) then
          local time = redis.call('time')
          local ms = math.max(1, last - time[1] * 1000 - math.floor(time[2] / 1000))
          redis.pcall('pexpire', lock, string.format('%.0f', ms))
        end
      end
    end
  end
  is_done = is_done and given_back[i]
end
if is_done then return locks == 1 and given_back[1] == 1 and 1 or given_back end

