-- What the scripts of this folder begin with, after lua/lock/grant.lua.
--
-- ARGV   the floor of the counter, the kind, its capacity, channel, message, how long a place outlives
--        its last sign of life in ms, then what the script asks for: see lua/queue/*.lua

local channel, patience = ARGV[4], tonumber(ARGV[6])

