-- What a release says of its client, in one argument, since one costs the server less time than four: the floor of the counter; the
-- waiter_ttl (how long after a sign of life a client counts as alive) in ms; the client that publishes; the prefix of all channels.
-- A lock's channel is that prefix, and then the name in its braces, as in its key.
local floor_text, waiter_ttl_text, publisher, channels = (ARGV[1] or ''):match('^(%d+) (%d+) (%S+) (%S+)$')
ARGV[1] = floor_text -- where the other scripts expect it

