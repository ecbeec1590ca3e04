-- Take a lock or a part of it, or wait for it in line: also the sign of life of somebody who waits.
--
-- KEYS   see head.lua
-- ARGV   ..., owner field, the part wanted, lease in ms, manner ('wait': in line if it cannot be had now | 'rest': as
--        'wait', and it shows the next sign of life only when it is told that the line has moved | 'once': now or
--        never), the owner field within whose hold it needs no room ('': nobody's), its place as it was answered before
--        (0: it never was), a secret that a grant by message repeats, so that whoever waits knows that it is no other's
--        message, an owner field that is given back first ('': none), how long a line is kept without a sign, in ms
-- Reply  1, grant, waiting       taken; the grant is the new value of the counter. Waiting: 1 if somebody is in line now
--        0, TTL in ms, place, near   in line; by then the first of the holders has to go (-1: the key has no TTL), or one who
--                                is silent, and for whom there is room, may have answered. Near: 1 if it has to show
--                                signs of life, and to ask again by then even if it rests: perhaps nobody else can;
--                                0 if it may sleep until it is told
--        grant                   the same, and nobody is in line: alone, since the server takes long to look through a table
--        0, TTL in ms            not taken, and not in line
--        an error of CONFLICT: others use the name for another kind, or with another capacity, and nobody has set one
--        an error of PERMITS: there is not so much in all
--
-- Run again for the same owner field, it finds its own work: in line it keeps its place, and what it was given meanwhile
-- it has for the whole lease. Who was put out, or comes under another owner field since an answer was lost, says its
-- place and has it again.

local field, part, lease, manner, within = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10], ARGV[11]
local had, secret, old, line_ttl = tonumber(ARGV[12]), ARGV[13], ARGV[14], tonumber(ARGV[15])

if out_of_range(lease) then return redis.error_reply('ERR lease out of range') end
if not part or part < 1 then return redis.error_reply('ERR part out of range') end
if not had or had < 0 then return redis.error_reply('ERR place out of range') end
if not (secret or ''):match('^%d+$') then return redis.error_reply('ERR secret out of range') end
if not line_ttl or line_ttl < 1 then return redis.error_reply('ERR line_ttl out of range') end

