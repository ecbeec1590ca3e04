-- The sandbox of the scripts, and how they are run. Returns the function that runs one, and the one that sets
-- KEYS and ARGV.
--
-- An error that Rust raises would reach a script as an object of Rust's. So Rust returns errors, and Lua raises them.

local call, caller, refuse, read_only_globals, old = ...
local error, type, tostring, rawset, xpcall = error, type, tostring, rawset, xpcall

redis.call = function(...)
  local reply = call(...)
  if type(reply) == 'table' and reply.err then
    if old then error(reply.err, 0) end
    error(reply, 0)
  end
  return reply
end

for _, name in ipairs({ 'dofile', 'loadfile', 'print', 'require', 'module', 'newproxy', 'collectgarbage', 'gcinfo' }) do
  _G[name] = nil
end
math.random, math.randomseed = nil, nil -- theirs would not be repeatable: C's generator is shared by the process

-- Newer servers hand the text of an error to whoever catches it, not its table.
if not old then
  local pcall = pcall
  local function caught(fine, err, ...)
    if not fine and type(err) == 'table' and type(err.err) == 'string' then return false, err.err end
    return fine, err, ...
  end
  _G.pcall = function(...)
    return caught(pcall(...))
  end
end

local function explain(err)
  local source, line = caller()
  if old then
    if type(err) ~= 'string' and type(err) ~= 'number' then
      -- The server's own handler of errors fails over it.
      return "@err_handler_def:9: err_handler_def:9: attempt to concatenate local 'err' (a " .. type(err) .. ' value)'
    end
    return source and source .. ':' .. line .. ': ' .. tostring(err) or tostring(err)
  end
  if type(err) ~= 'table' then err = { err = 'ERR ' .. tostring(err) } end
  if source then err.source, err.line = source, line end
  return err
end

local globals = _G
setmetatable(globals, {
  __index = function(_, name)
    error(old and "Script attempted to access nonexistent global variable '" .. tostring(name) .. "'"
      or "Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
  __newindex = function()
    error('Attempt to modify a readonly table', 2)
  end,
})

return function(script, keys, argv)
  rawset(globals, 'KEYS', keys)
  rawset(globals, 'ARGV', argv)
  return xpcall(script, explain)
end
