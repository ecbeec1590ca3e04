-- Begin to write.
--
-- KEYS   see rw.lua
-- ARGV   ..., owner field, a part that is not used, lease in ms
-- Reply  1, grant        it writes; the grant is the new value of the counter
--        0, TTL in ms    somebody reads or writes, for at most this long (-1: the key has no TTL)
--        an error of CONFLICT: the name is that of a plain lock
--
-- A script that runs again for the same owner field finds its own work, and answers "writes" again. Dead readers do not
-- count: a lock that has only dead readers is free, however long its key would live.

local writer, lease = ARGV[7] .. ':write', tonumber(ARGV[9])
if out_of_range(lease) then return redis.error_reply('ERR lease out of range') end

-- For how long others hold the lock, or nil if they do not.
local function held()
  local ttl = redis.call('pttl', lock)
  if mode == 'write' then return redis.call('hexists', lock, writer) == 0 and ttl or nil end
  if not mode then return nil end
  local life = longest_life(ttl < 0 and math.huge or ttl)
  return life > 0 and life or nil
end

local function enter()
  local number, err = draw(1)
  if not number then return redis.error_reply(err) end
  if mode == 'read' then redis.call('del', lock) end
  local entered = redis.pcall('hset', lock, 'mode', 'write', writer, 1)
  if type(entered) == 'table' then return redis.error_reply(entered.err) end
  local kept, refusal = keep(lease)
  if not kept then
    redis.pcall('del', lock)
    return redis.error_reply(refusal)
  end
  return { GRANTED, number }
end

if is_strange() then return conflict() end
local ttl = held()
if not ttl then return enter() end
confirm()
return { HELD, ttl }
