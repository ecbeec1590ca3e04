-- The arguments and replies of the scripts that take a lock or a part of it, or wait for it in line. acquire.lua does the
-- work. For a waiter, the call is also a sign of life.
--
-- KEYS   see open_name.lua
-- ARGV   ..., and then:
--        owner field
--        the part wanted
--        lease in ms
--        manner: 'wait', in line if there is no room now; 'rest', as 'wait', and the caller shows its next sign of life only
--            when it is notified that the line has moved; 'once', without waiting
--        the owner field of the hold within which the caller needs no room ('': none)
--        the caller's former place in line, from an earlier reply (0: none)
--        a secret, which a grant by message repeats: so the caller knows that the message is no forgery
--        an owner field to release first ('': none)
--        how long a line is kept without a sign of life, in ms
-- Reply  1, grant, waiting       taken; the grant is the new value of the counter. Waiting: 1 if a caller is in line now
--        0, TTL in ms, place, near, ahead   in line. The TTL says when to ask again: usually when the first lease is over (-1: the
--                                key has no TTL), or after a third of waiter_ttl if there is room and the head is silent.
--                                Near 1: the caller shows signs of life, and asks again itself after the TTL, even while it
--                                rests. Near 0: the caller may sleep until it is notified, but one caller of its client
--                                asks again after the TTL. In a quick line that TTL is at most a third of waiter_ttl. Ahead
--                                is missing, or the number in the owner field of the caller right ahead: in the line of a fair
--                                lock, if both are callers of one client, and this one has just lined up
--        grant                   taken, and no caller is in line: the number alone, since a table costs the server time
--        0, TTL in ms            not taken, and not in line
--        3, TTL in ms            the same; the holder's client keeps idle locks, and was told to give this one back if it is idle
--        an error of CONFLICT: others use the name for another kind, or with another capacity, and nobody has set one
--        an error of PERMITS: the whole capacity is less than the part
--
-- A script that runs again for the same owner field finds its own work. In line the caller keeps its place. If it was
-- granted the lock meanwhile, it now has the whole lease. A caller names its former place if it was removed from the
-- line, or if it has a new owner field because an answer was lost. Then it gets that place back.

local field, part, lease, manner, within = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10], ARGV[11]
local had, secret, old, line_ttl = tonumber(ARGV[12]), ARGV[13], ARGV[14], tonumber(ARGV[15])

if out_of_range(lease) then return redis.error_reply('ERR lease out of range') end
if not part or part < 1 then return redis.error_reply('ERR part out of range') end
if not had or had < 0 then return redis.error_reply('ERR place out of range') end
if not (secret or ''):match('^%d+$') then return redis.error_reply('ERR secret out of range') end
if not line_ttl or line_ttl < 1 then return redis.error_reply('ERR line_ttl out of range') end

