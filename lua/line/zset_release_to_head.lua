-- The usual turn of a fair lock, or of a semaphore with one permit, that many callers want: its holder releases it, and the
-- head of the line gets it. This does the same as release.lua, if all in its line are awake: then the script has to look
-- only at the head. It runs before the functions of the line are created, since creating them takes half of the server's
-- time for such a turn. In every other case release.lua continues from here.

-- The owner field alone has the whole capacity, no other caller has had its hold, and somebody waits: see zset_release_uncontended.lua for the scores.
local is_usual = locks == 1 and not ARGV[4] and (ARGV[2] or ''):sub(-2) == ' 1' and scores[1] and not scores[2] and scores[4]
  and tonumber(scores[3] or nil) == 1 - 4503599627370496
local next_two = is_usual and redis.pcall('zrange', KEYS[3], '0', '1', 'WITHSCORES') or {}
local head = next_two[1]
local client = head and head:match('^(.*):%d+$')
if client then
  local life = 'life:' .. client
  local noted = redis.pcall('hmget', KEYS[4], 'state', head, life, 'set')
  read_state(noted[1], tonumber(waiter_ttl_text))
  local lease = (noted[2] or ''):match('^1 (%d+)$') or (noted[2] or ''):match('^1 (%d+) f$')
  local ends, secret, entries, ttl = (noted[3] or ''):match('^(%d+) (%d+) (%d+) (%d+)$')
  local is_last = not next_two[3]
  is_usual = noted[1] and lease and ends and ends - at > LEAST_LIFE and is_awake(tonumber(next_two[2]))
    and not (is_last and noted[4])
  local number = is_usual and draw(1)
  if number and redis.pcall('zrem', KEYS[2], ARGV[3]) == 1 then
    local ms = math.min(lease, ends - at)
    if type(redis.pcall('zadd', KEYS[2], string.format('%.0f', now + ms), head)) == 'number' then
      redis.pcall('pexpire', KEYS[2], string.format('%.0f', ms))
      redis.pcall('zrem', KEYS[3], head)
      if is_last then
        redis.pcall('zrem', KEYS[2], '#line')
        redis.pcall('pexpire', KEYS[4], '0')
      else
        if entries == '1' then
          redis.pcall('hdel', KEYS[4], head, 'asked:' .. client, life)
        else
          redis.pcall('hdel', KEYS[4], head)
          redis.pcall('hset', KEYS[4], life, string.format('%s %s %d %s', ends, secret, entries - 1, ttl))
        end
        if not is_recent then
          last_look = now
          redis.pcall('hset', KEYS[4], 'state', state_note())
        end
      end
      local its_channel, word = channels .. KEYS[2]:match('{.*') .. ':' .. client, grant_word(head, number, secret)
      local receivers = redis.pcall('publish', its_channel, publisher .. ' ' .. word)
      if receivers ~= 0 or is_last then return 1 end
      -- See admit().
      redis.pcall('hset', KEYS[4], 'swept', string.format('1 %.0f', at))
      return -2
    end
    -- The head's hold was refused: undo the release.
    redis.pcall('zadd', KEYS[2], scores[1], ARGV[3])
  end
end
