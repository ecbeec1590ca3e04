-- Take the lock away from its holder, and notify the holder and the next waiter.
--
-- KEYS   see fair.lua
-- Reply  1 it was held | 0 it was free
--        an error of CONFLICT: the name is that of a read-write lock

redis.call('hdel', lock, 'parklock:nobody') -- fails on another type, and on a replica
if redis.call('hexists', lock, 'mode') == 1 then return redis.error_reply('CONFLICT rw') end
redis.call('llen', queue) -- keys of another type are refused here, before the first write
redis.call('zcard', deadlines)
local holders, rest = redis.call('hkeys', lock), redis.call('pttl', lock)
local gone = redis.call('del', lock)
for _, field in ipairs(holders) do
  if is_ours(field) and rest > 0 then pcall(move, 0, -rest) end
  -- A holder of ours that had to wait still listens there; no other client does.
  tell(field)
end
local head = head_of_queue()
if head then tell(head) end
return { gone }
