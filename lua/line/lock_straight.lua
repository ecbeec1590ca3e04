-- A plain lock that is free and that nobody waits for: straight on, before any function is made. Whatever is out of the
-- ordinary goes on in acquire.lua. See there for KEYS and ARGV.

local field, lease = ARGV[7], tonumber(ARGV[9])
local is_free = ARGV[14] == '' and lease and lease >= 1 and lease <= 86400000
  and redis.pcall('exists', KEYS[2], KEYS[3]) == 0

