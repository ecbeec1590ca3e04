-- Leave, as a holder or from the queue, and let in whoever may now.
--
-- KEYS   see queue.lua
-- ARGV   ..., owner field
-- Reply  1 it held, and left | 0 it did not hold (any more)
--
-- ZREM is allowed when memory is full, and after it everything is.

local left = leave(holders, ARGV[7])
leave(queue, ARGV[7])
pcall(admit)
settle()
return { left and 1 or 0 }
