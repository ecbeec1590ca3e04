-- The usual turn of a plain lock that many clients want: its holder releases it, and the head of the line gets it. This
-- does the same as plain_release.lua for one lock, if all in its line are awake: then the script has to look only at the
-- head. It runs before the functions of the line are created, since creating them takes half of the server's time for
-- such a turn. In every other case plain_release.lua continues from here.

if is_one then
  local gone = redis.pcall('hdel', KEYS[2], ARGV[2])
  if type(gone) == 'number' then given_back[1] = gone end
end
local next_two = is_one and given_back[1] == 1 and redis.pcall('zrange', KEYS[3], '0', '1', 'WITHSCORES') or {}
local head = next_two[1]
local client = head and head:match('^(.*):%d+$')
if client then
  local life = 'life:' .. client
  local noted = redis.pcall('hmget', KEYS[4], 'state', head, life)
  read_state(noted[1], tonumber(waiter_ttl_text))
  local lease = (noted[2] or ''):match('^1 (%d+)$')
  local ends, secret = (noted[3] or ''):match('^(%d+) (%d+) 1 ')
  local is_usual = noted[1] and lease and ends and ends - at > LEAST_LIFE and is_awake(tonumber(next_two[2]))
  local number = is_usual and redis.call('exists', KEYS[2]) == 0 and draw(1)
  if number and put(KEYS[2], head, math.min(lease, ends - at), number) == GRANTED then
    redis.pcall('zrem', KEYS[3], head)
    if not next_two[3] then
      redis.pcall('pexpire', KEYS[4], '0')
    else
      redis.pcall('hdel', KEYS[4], head, 'asked:' .. client, life)
      if not is_recent then
        last_look = now
        redis.pcall('hset', KEYS[4], 'state', state_note())
      end
    end
    local its_channel, word = channels .. KEYS[2]:match('{.*') .. ':' .. client, grant_word(head, number, secret)
    local receivers = redis.pcall('publish', its_channel, publisher .. ' ' .. word)
    if receivers ~= 0 or not next_two[3] then return 1 end
    -- See admit().
    redis.pcall('hset', KEYS[4], 'swept', string.format('1 %.0f', at))
    return -2
  end
end

