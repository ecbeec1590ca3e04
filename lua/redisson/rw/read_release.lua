-- Stop reading. The last reader frees the lock, and notifies the waiting writers.
--
-- KEYS   see rw.lua
-- ARGV   ..., owner field
-- Reply  1 it read | 0 it did not (any more)
--
-- Redis allows HDEL and DEL when its memory is full, and then every write of this script.

return { stop_reading(ARGV[7]) }
