-- What most do who come to a plain lock that many want: it is held, others stand in line, and they go to the end. This is
-- wait() of acquire.lua for those by whose coming nobody can be let in and nobody has to be looked at. It is done here, before
-- the tools of the line are made, since a lock that many want spends half of the server's time on it. Whatever is out of the
-- ordinary goes on there.

local client = field:match('^(.*):%d+$')
if client and manner == 'wait' and within == '' and had == 0 and old == '' then
  local life = 'life:' .. client
  local noted = redis.pcall('hmget', KEYS[4], 'state', 'kind', field, life)
  if noted[1] and noted[2] == 'lock 1' and not noted[3] and not noted[4] then
    read_state(noted[1], tonumber(ARGV[6]))
    local last = tonumber(redis.call('zrange', KEYS[3], -1, -1, 'WITHSCORES')[2])
    local ttl = redis.call('pttl', KEYS[2])
    if is_recent and rhythm == tonumber(ARGV[6]) and sleepers < micros and last and last < micros and ttl > 0
      and redis.call('pttl', KEYS[3]) >= line_ttl / 2 and redis.call('hexists', KEYS[2], field) == 0 then
      -- Needs no memory, and is refused by a replica. After it, the others may.
      redis.call('hdel', KEYS[2], 'parklock:nobody')
      if redis.call('zadd', KEYS[3], 'NX', string.format('%.0f', micros), field) == 1 then
        local wants, sign = part .. ' ' .. lease, at + rhythm .. ' ' .. secret .. ' 1'
        if type(redis.pcall('hset', KEYS[4], field, wants, life, sign)) == 'number' then
          return { HELD, ttl, micros, 1 }
        end
        redis.call('zrem', KEYS[3], field)
      end
    end
  end
end

