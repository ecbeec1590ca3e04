-- Take it away from whoever holds it, tell the holder, and tell whoever is next.
--
-- KEYS   see fair.lua
-- Reply  1 it was held | 0 it was free
--        an error of CONFLICT: the name is a read-write lock's

redis.call('hdel', lock, 'parklock:nobody') -- only a hash, and only on a primary
if redis.call('hexists', lock, 'mode') == 1 then return redis.error_reply('CONFLICT rw') end
local holders, rest = redis.call('hkeys', lock), redis.call('pttl', lock)
local gone = redis.call('del', lock)
for _, field in ipairs(holders) do
  if is_ours(field) and rest > 0 then pcall(move, 0, -rest) end
  -- A holder of ours that has had to wait still listens there; nobody else does.
  tell(field)
end
local head = head_of_queue()
if head then tell(head) end
return { gone }
