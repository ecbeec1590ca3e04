-- What most clients do that come to a held plain lock: they go to the end of the line, or are the first in it. This
-- does the same as wait() of acquire.lua, if the newcomer changes nothing for others: no client can be let in, and no
-- script has to look at the front. It runs before the functions of the line are created, since creating them takes half
-- of the server's time for such a call. In every other case acquire.lua continues from here.

local client, ttl_of_life = field:match('^(.*):%d+$'), tonumber(ARGV[6]) or 0
if client and ttl_of_life >= 1 and part == 1 and manner == 'wait' and within == '' and had == 0 and old == '' then
  local lock, line, notes, life = KEYS[2], KEYS[3], KEYS[4], 'life:' .. client
  local noted = redis.pcall('hmget', notes, 'state', 'kind', field, life)
  local is_first = noted[1] == false and noted[2] == false and redis.call('exists', line) == 0
  local is_usual = is_first or noted[1] and noted[2] == 'lock 1' and not noted[3] and not noted[4]
  if is_usual then
    read_state(noted[1], ttl_of_life)
    if not is_first then
      local head = tonumber(redis.call('zrange', line, '0', '0', 'WITHSCORES')[2])
      local last = head and tonumber(redis.call('zrange', line, '-1', '-1', 'WITHSCORES')[2])
      is_usual = is_recent and rhythm == ttl_of_life and sleepers < micros and head and is_quick(head)
        and last < micros and redis.call('pttl', line) >= line_ttl / 2
    end
  end
  local ttl = is_usual and redis.call('pttl', lock)
  if is_usual and ttl > 0 and redis.call('hexists', lock, field) == 0 then
    -- This write needs no memory, and a replica refuses it. After it, Redis allows the writes that need memory.
    redis.call('hdel', lock, 'parklock:nobody')
    if redis.call('zadd', line, 'NX', string.format('%.0f', micros), field) == 1 then
      local wants, sign = part .. ' ' .. lease, at + rhythm .. ' ' .. secret .. ' 1'
      local is_written = type(redis.pcall('hset', notes, field, wants, life, sign)) == 'number'
      if is_first and is_written then
        is_written = redis.pcall('pexpire', line, line_ttl) == 1 and redis.pcall('pexpire', notes, line_ttl) == 1
          and type(redis.pcall('hset', notes, 'state', state_note(), 'kind', 'lock 1')) == 'number'
      end
      if is_written then
        -- The waiters behind the first one need not tell the keeper again.
        if is_first then tell_keeper(lock, ARGV[4], ARGV[5]) end
        return { HELD, ttl, micros, 1 }
      end
      -- One of the commands was refused: undo the others.
      redis.pcall('zrem', line, field)
      redis.pcall('hdel', notes, field, life)
    end
  end
end

