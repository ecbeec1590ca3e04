-- The uncontended path for a plain lock that is free and that nobody waits for, first half: whether it is free.
-- draw_uncontended.lua and plain_put_uncontended.lua take the lock. This runs before any function is created. In every
-- other case acquire.lua continues from here. See acquire_args.lua for KEYS and ARGV.

local field, lease_text = ARGV[4], ARGV[5]
local lease = tonumber(lease_text)
local is_sound = (ARGV[12] or '') == '' and lease and lease >= 1 and lease <= 86400000
local is_free = is_sound and redis.pcall('exists', KEYS[2], KEYS[3]) == 0

