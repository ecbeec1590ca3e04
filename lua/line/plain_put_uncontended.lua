-- The uncontended path of a plain lock, second half: draw_uncontended.lua has drawn the number of the grant; take the lock.
-- Arguments of commands are texts where possible: Redis takes 0.2 us to turn a number into a text.
if number and redis.pcall('hset', KEYS[2], field, '1') == 1 then
  if redis.pcall('pexpire', KEYS[2], lease_text) == 1 then return number end
  -- The expiry was refused. No key ever remains without a TTL, and the general scripts delete only what they have created
  -- themselves.
  local undone = redis.pcall('hdel', KEYS[2], field)
  if type(undone) == 'table' then redis.pcall('del', KEYS[2]) end
end

