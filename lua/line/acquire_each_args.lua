-- The arguments and replies of the script that takes several locks other than plain ones, or waits for them in line: each as
-- acquire.lua takes one.
--
-- KEYS   the token counter, then for each lock: the holders, the line, the notes
-- ARGV   the floor of the counter
--        four words with blanks between them, since one argument costs the server less time than four: the client's waiter_ttl in
--            ms; how long a line is kept without a sign of life, in ms; the client that publishes; the prefix of all channels. A
--            lock's channel is that prefix, and then the name in its braces, as in its key
--        then for each lock: owner field; four words: the lease in ms, the part, the kind, its capacity, and perhaps a fifth one, 'once',
--            if the caller does not wait; a secret
-- Reply  for each lock what acquire.lua replies, or -1, text: refused, nothing was changed
--
-- A lock may be named several times.

local waiter_ttl_text, line_ttl_text, publisher, channels = (ARGV[2] or ''):match('^(%d+) (%d+) (%S+) (%S+)$')
local line_ttl = tonumber(line_ttl_text or nil)
if not line_ttl or line_ttl < 1 then return redis.error_reply('ERR the words of the line are out of range') end

-- What the request for the lock asks for that is looked at. The names are those of acquire_args.lua.
local field, lease, part, manner, secret
local within, had, old = '', 0, ''

