-- The usual turn of a lock, or of a semaphore with one permit, that many want: its holder releases it, and the head of the line
-- gets it. This does what release.lua does in all other cases, if all in the line are awake: then the script has
-- to look only at the head. It runs before the functions of the line are created, which takes half of the server's time for a turn.

local is_turn
if is_plain then
  local gone = locks == 1 and redis.pcall('hdel', KEYS[2], ARGV[2])
  if type(gone) == 'number' then left[1] = gone end
  is_turn = gone == 1
else
  -- The owner field alone has the whole capacity, no other caller has had its hold, and somebody waits: see zset_release_uncontended.lua.
  is_turn = locks == 1 and not ARGV[4] and (ARGV[2] or ''):sub(-2) == ' 1' and scores[1] and not scores[2] and scores[4]
    and tonumber(scores[3] or nil) == 1 - 4503599627370496
end
local next_two = is_turn and redis.pcall('zrange', KEYS[3], '0', '1', 'WITHSCORES') or {}
local head = next_two[1]
local client = head and head:match('^(.*):%d+$')
if client then
  local life = 'life:' .. client
  local noted = redis.pcall('hmget', KEYS[4], 'state', head, life, 'set')
  read_state(noted[1], tonumber(waiter_ttl_text))
  local lease = (noted[2] or ''):match('^1 (%d+) ?f?$')
  local ends, secret, entries, ttl = (noted[3] or ''):match('^(%d+) (%d+) (%d+) (%d+)$')
  local is_last = not next_two[3]
  local is_usual = noted[1] and lease and ends and ends - at > LEAST_LIFE and is_awake(tonumber(next_two[2]))
    and not (is_last and noted[4]) and not (is_plain and redis.call('exists', KEYS[2]) == 1)
  local number = is_usual and draw(1)
  local ms, is_granted = number and math.min(lease, ends - at), false
  if number and is_plain then
    is_granted = put(KEYS[2], head, ms, number) == GRANTED
  elseif number and redis.pcall('zrem', KEYS[2], ARGV[3]) == 1 then
    is_granted = type(redis.pcall('zadd', KEYS[2], string.format('%.0f', now + ms), head)) == 'number'
    -- If the head's hold was refused, undo the release.
    if not is_granted then redis.pcall('zadd', KEYS[2], scores[1], ARGV[3]) end
  end
  if is_granted then
    if not is_plain then redis.pcall('pexpire', KEYS[2], string.format('%.0f', ms)) end
    redis.pcall('zrem', KEYS[3], head)
    if is_last then
      if not is_plain then redis.pcall('zrem', KEYS[2], '#line') end
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
    redis.pcall('hset', KEYS[4], 'swept', string.format('1 %.0f', at)) -- see admit()
    return -2
  end
end
