-- Take each of these plain locks if it is free and nobody waits for it. Nobody is put in line.
--
-- KEYS   the token counter, then for each lock: the lock, its line
-- ARGV   the floor of the counter, then for each lock: owner field, lease in ms
-- Reply  for each lock two items:
--          1, grant   taken; the grant is the new value of the counter
--          2, 0       held by somebody else, or waited for: to be asked for alone
--         -1, text    refused, nothing was changed
--        One lock that is free: the grant alone, since the server takes long to look through a table
--
-- The locks are distinct. Run again for the same owner field, it finds its own work and says "taken" once more.

-- One lock that is free: straight on, before any function is made. Whatever is out of the ordinary goes on below.
local field, lease = ARGV[2], tonumber(ARGV[3])
local is_free = #KEYS == 3 and lease and lease >= 1 and lease <= 86400000
  and redis.pcall('exists', KEYS[2], KEYS[3]) == 0

