-- The answer to a request for one lock.
local reply, refused = acquire(tonumber(ARGV[3]))
return reply or redis.error_reply(refused)
