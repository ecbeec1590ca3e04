-- The usual case of a request for a held lock: see acquire_line_up.lua. In every other case acquire.lua continues from here.
if is_sound and ARGV[3] == '1' and not ARGV[7] then
  local waiter_ttl, line_ttl, publisher, secret, channel = ARGV[6]:match('^(%d+) (%d+) (%S+) (%d+) (.*)$')
  local lined_up = line_up_as_usual(
    KEYS[2], KEYS[3], KEYS[4], ARGV[2], ARGV[4], ARGV[5], waiter_ttl, line_ttl, publisher, secret, channel
  )
  if lined_up then return lined_up end
end

