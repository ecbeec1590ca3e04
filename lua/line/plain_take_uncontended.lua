-- Take each of these plain locks if it is free and nobody waits for it. This puts nobody in line.
--
-- KEYS   the token counter, then for each lock: the lock, its line
-- ARGV   the floor of the counter, then for each lock: owner field, lease in ms
-- Reply  for each lock two items:
--          1, grant   taken; the grant is the new value of the counter
--          2, 0       another client holds it or waits for it: ask for it alone, with acquire.lua
--         -1, text    refused, nothing was changed
--        One lock that is free: the grant alone, since a table costs the server time
--
-- The locks are distinct. A script that runs again for the same owner field finds its own work, and answers "taken"
-- again.

-- The uncontended path for one lock that is free. It runs before any function is created. In every other case plain_take.lua
-- continues from here.
local field, lease_text = ARGV[2], ARGV[3]
local lease = tonumber(lease_text)
local is_free = #KEYS == 3 and lease and lease >= 1 and lease <= 86400000
  and redis.pcall('exists', KEYS[2], KEYS[3]) == 0

