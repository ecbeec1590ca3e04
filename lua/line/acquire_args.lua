-- The arguments and replies of the scripts that take a lock or a part of it, or wait for it in line. acquire.lua does the
-- work. For a waiter, the call is also a sign of life.
--
-- KEYS   the token counter, the holders, the line, the notes
-- ARGV   the floor of the counter
--        the kind, its capacity (left out in a request for a plain lock)
--        owner field
--        lease in ms
--        five words with blanks between them, since one argument costs the server less time than five: the client's waiter_ttl
--            (how long after a sign of life it counts as alive) in ms; how long a line is kept without a sign of life, in
--            ms; the client that publishes; a secret, by which a grant by message proves to the caller that it is no forgery
--            (see proof.lua); the lock's channel, which may have blanks
--        Most requests have no further arguments. The others have these, up to the last one that differs from its default:
--        the part wanted (1)
--        manner: 'wait', in line if there is no room now (so do most); 'rest', as 'wait', and the caller shows its next sign of
--            life only when it is notified that the line has moved; 'once', without waiting
--        the owner field of the hold within which the caller needs no room ('': none)
--        the caller's former place in line, from an earlier reply (0: none)
--        an owner field to release first ('': none)
-- Reply  1, grant, waiting       taken; the grant is the new value of the counter. Waiting: 1 if a caller is in line now
--        0, TTL in ms, place, near, ahead   in line. The TTL says when to ask again: usually when the first lease is over (-1: the
--                                key has no TTL). At most a third of waiter_ttl if there is room and the head is silent, and at
--                                most waiter_ttl if the head lives, and wants more than is free.
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

local field, lease = ARGV[4], tonumber(ARGV[5])
local life_text, line_ttl_text, publisher, secret, its_channel = (ARGV[6] or ''):match('^(%d+) (%d+) (%S+) (%d+) (.*)$')
local line_ttl = tonumber(line_ttl_text or nil)
local part, manner, within = tonumber(ARGV[7] or 1), ARGV[8] or 'wait', ARGV[9] or ''
local had, old = tonumber(ARGV[10] or 0), ARGV[11] or ''
ARGV[4], ARGV[5], ARGV[6] = its_channel, publisher, life_text -- where open_name.lua expects them

if out_of_range(lease) then return redis.error_reply('ERR lease out of range') end
if not part or part < 1 then return redis.error_reply('ERR part out of range') end
if not had or had < 0 then return redis.error_reply('ERR place out of range') end
if not line_ttl or line_ttl < 1 then return redis.error_reply('ERR the words of the line are out of range') end

