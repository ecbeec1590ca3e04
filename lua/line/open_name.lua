-- Opens a name: reads what is known of it, and settles its kind. Most scripts about one name run this before their last
-- part, which says "see open_name.lua". A release, which may be about several names, uses kind.lua alone.
--
-- KEYS   the token counter, the holders, the line, the notes
-- ARGV   the floor of the counter, the kind, its capacity, channel, the client that publishes, its waiter_ttl (how long after a
--        sign of life a client counts as alive) in ms, then what the script asks for

lock, line, notes, channel = KEYS[2], KEYS[3], KEYS[4], ARGV[4]
from, waiter_ttl = ARGV[5], tonumber(ARGV[6])
do -- a script has 200 local variables at most
  local refused = settle_kind()
  if refused then return redis.error_reply(refused) end
end

