-- The uncontended path for a fair lock, a read-write lock or a semaphore that has room and that nobody waits for. It runs
-- before any function is created. In every other case acquire.lua continues from here. See acquire_args.lua for KEYS and ARGV,
-- and zset.lua for the holders.

local is_unlike = (ARGV[9] or '') ~= '' or (ARGV[11] or '') ~= ''
local room = not is_unlike and redis.pcall('exists', KEYS[2], KEYS[3], KEYS[4])
local in_use, says, ttl = 0, '#' .. ARGV[2] .. ' ' .. ARGV[3], -2
if room == 1 then
  -- One key exists: it is enough if that key has holders, and says that nobody waits, and that no
  -- capacity was set: acquire.lua keeps the note of such a one alive.
  local scores = redis.pcall('zmscore', KEYS[2], says, '#line', ARGV[4], '#set')
  if scores[1] and not scores[2] and not scores[3] and not scores[4] then
    in_use, ttl = scores[1] + 4503599627370496, redis.pcall('pttl', KEYS[2])
    -- Somebody may have persisted the key: then the TTL does not say how long the longest lease is, and acquire.lua sees to it.
    if type(ttl) == 'number' and ttl >= 0 then room = 0 end
  end
end
local capacity, part, lease = tonumber(ARGV[3]), tonumber(ARGV[7] or 1), tonumber(ARGV[5])
local is_sound = not is_unlike and lease and lease >= 1 and lease <= 86400000
local is_free = is_sound and room == 0 and capacity and part and part >= 1 and in_use + part <= capacity

