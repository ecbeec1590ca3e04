-- Take each lock that is free; say of the others how long they are still held.
--
-- KEYS   the token counter, then for each lock: the lock, its line
-- ARGV   the floor of the counter, the TTL of a line in ms, our client, then for each lock: owner
--        field, lease in ms, manner (see take.lua)
-- Reply  for each lock two items:
--          1, grant        taken; the grant is the new value of the counter
--          0, TTL in ms    held by somebody else (-1: the key has no TTL)
--          2, 0            free, but the head of the line goes first
--          3, TTL in ms    as 0, but the server does not let us stand in line
--         -1, text         refused, nothing was changed
--
-- The locks are distinct: a free one would be given to each who names it. Run again for the same
-- owner field, it finds its own work and says "taken" once more.

local reply = {}
for i = 1, locks do
  local a = 3 * i
  reply[2 * i - 1], reply[2 * i] =
    guarded(attempt, KEYS[2 * i], KEYS[2 * i + 1], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3])
end
return reply
