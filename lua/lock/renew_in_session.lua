-- Renew the holds of a client with a session: as renew.lua, which goes on from here, after the notes no longer say that nobody
-- listens to the client.
--
-- KEYS   the locks, then the notes of each
-- ARGV, Reply   see renew.lua

do
  local locks = #KEYS / 2
  for i = 1, locks do sessions.erase_note(KEYS[locks + i], ARGV[2 * i - 1]) end
  for i = 2 * locks, locks + 1, -1 do KEYS[i] = nil end
end

