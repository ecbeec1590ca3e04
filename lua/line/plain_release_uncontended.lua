-- Release plain locks, whatever their hold counts, and leave their lines. The next client in line gets the lock, and is
-- notified. The script continues in release_to_head.lua and release.lua.
--
-- KEYS   the token counter, then for each lock: the lock, its line, its notes
-- ARGV   four words with blanks between them: see release_terms.lua. Then for each lock: owner field
-- Reply  for each lock: 1 released | 0 not ours (any more) | -2, -1: the same, and the line is not done: the client has to
--        release once more | text: refused, nothing was changed. For one lock, the uncontended path and
--        release_to_head.lua answer the number alone
--
-- Redis allows HDEL when its memory is full, and then every write of this script. If the server's ACL forbids the
-- publish, that must not turn a successful release into an error.

-- The uncontended path for one lock that nobody waits for. It runs before any function is created.
local is_plain, locks = true, (#KEYS - 1) / 3
local is_waited_for = locks == 1 and redis.pcall('exists', KEYS[3]) ~= 0
if locks == 1 and not is_waited_for then
  local gone = redis.pcall('hdel', KEYS[2], ARGV[2])
  if gone == 1 then return 1 end
  if type(gone) == 'table' then return { gone.err } end
end

-- The uncontended path for several locks that nobody waits for: one command checks that.
local given_back, left = {}, {} -- see release_args.lua
if locks > 1 then
  local lines = {}
  for i = 1, locks do lines[i] = KEYS[3 * i] end
  local is_done = redis.pcall('exists', unpack(lines)) == 0
  for i = 1, is_done and locks or 0 do
    local gone = redis.pcall('hdel', KEYS[3 * i - 1], ARGV[i + 1])
    if type(gone) == 'number' then left[i] = gone end
    is_done = is_done and gone == 1
  end
  if is_done then return left end
end

