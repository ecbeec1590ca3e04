-- The uncontended path for a plain lock that is free and that nobody waits for, first half: whether it is free.
-- draw_uncontended.lua and plain_put_uncontended.lua take the lock. This runs before any function is created. In every
-- other case acquire.lua continues from here. See acquire_args.lua for KEYS and ARGV: here the kind and its capacity are left
-- out, and plain_args.lua inserts them.

local field, lease_text = ARGV[2], ARGV[3]
local lease = tonumber(lease_text)
local is_sound = (ARGV[9] or '') == '' and lease and lease >= 1 and lease <= 86400000
local is_free = is_sound and redis.pcall('exists', KEYS[2], KEYS[3]) == 0

