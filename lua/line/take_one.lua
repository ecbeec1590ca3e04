-- Take each of these plain locks if it is free and nobody waits for it. Nobody is put in line.
--
-- KEYS   the token counter, then for each lock: the lock, its line
-- ARGV   the floor of the counter, then for each lock: owner field, lease in ms
-- Reply  for each lock two items:
--          1, grant   taken; the grant is the new value of the counter
--          2, 0       held by somebody else, or waited for: to be asked for alone
--         -1, text    refused, nothing was changed
--        One lock that is free: the grant alone, since the server takes long to look through a table
--
-- The locks are distinct. Run again for the same owner field, it finds its own work and says "taken" once more.

-- One lock that is free: straight on, before any function is made. Whatever is out of the ordinary goes on below.
if #KEYS == 3 and redis.pcall('exists', KEYS[2], KEYS[3]) == 0 then
  local floor, lease = tonumber(ARGV[1]), tonumber(ARGV[3])
  if floor and floor >= 0 and floor < 9007199254740992 and lease and lease >= 1 and lease <= 86400000 then
    -- As draw() does it. A counter that is lost or not ours is put back for it.
    local before = redis.pcall('set', KEYS[1], ARGV[1], 'GET')
    local last = tonumber(before)
    if last and last >= 0 and last % 1 == 0 and last < floor + 1099511627776 and last < 9007199254740991 then
      local number = floor
      if last >= floor then
        number = last + 1
        redis.call('set', KEYS[1], string.format('%.0f', number))
      end
      if redis.pcall('hset', KEYS[2], ARGV[2], 1) == 1 and redis.pcall('pexpire', KEYS[2], ARGV[3]) == 1 then
        return number
      end
    elseif type(before) == 'string' then
      redis.call('set', KEYS[1], before)
    elseif not before then
      redis.call('del', KEYS[1])
    end
  end
end

