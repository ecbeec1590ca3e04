-- The same as renew_in_session.lua for a hold of another kind: zset_renew.lua goes on from here.
--
-- KEYS, ARGV, Reply   see zset_renew.lua, and the fourth key is that of the notes

sessions.erase_note(KEYS[4], ARGV[7])

