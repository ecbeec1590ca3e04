-- Begin to read.
--
-- KEYS   see rw.lua
-- ARGV   ..., owner field, a part that is not used, lease in ms, a manner that is not used, the owner field of the write
--        within which it reads ('': none)
-- Reply  1, grant        it reads; the grant is the new value of the counter
--        0, TTL in ms    somebody writes, for at most this long (-1: the key has no TTL)
--        an error of CONFLICT: the name is that of a plain lock
--
-- A script that runs again for the same owner field finds its own work, and answers "reads" again.

local reader, lease, beneath = ARGV[7], tonumber(ARGV[9]), ARGV[11]
if out_of_range(lease) then return redis.error_reply('ERR lease out of range') end

local function may_read()
  if mode ~= 'write' then return true end
  local writer = beneath ~= '' and redis.call('hexists', lock, beneath .. ':write') == 1
  return writer or redis.call('hexists', lock, reader) == 1
end

local function undo(err)
  redis.pcall('hdel', lock, reader)
  redis.pcall('del', key_of(reader, 1))
  if not mode then redis.pcall('del', lock) end
  return redis.error_reply(err)
end

-- First write the key that shows that the reader is alive: without the field in the lock, it means nothing.
local function enter()
  local number, err = draw(1)
  if not number then return redis.error_reply(err) end
  local key = key_of(reader, 1)
  local life = redis.pcall('set', key, 1, 'PX', math.max(lease, redis.call('pttl', key)))
  if life.err then return redis.error_reply(life.err) end
  local entered = redis.pcall('hset', lock, 'mode', mode or 'read', reader, 1)
  if type(entered) == 'table' then return undo(entered.err) end
  local kept, refusal = keep(lease)
  if not kept then return undo(refusal) end
  return { GRANTED, number }
end

if is_strange() then return conflict() end
if may_read() then return enter() end
confirm()
return { HELD, redis.call('pttl', lock) }
