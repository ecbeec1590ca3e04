-- Holds that end with the process of their client (`Config::session`). The id of a client with a session ends with '+' and its
-- patience in ms. Such a client listens to a channel of its own as long as its process lives, and believes in its holds only for
-- its patience after it has last heard itself there. The client's half is src/wire/session.rs.
--
-- A waiter near the front looks, with its sign of life, at how many listen to the holder's channel. If nobody does, it notes the
-- time. If nobody does when the patience is over, the hold ends. A client that comes back renews each of its holds, which
-- erases the note (heard.lua). It believes in a hold on a new connection only after that. So whoever finds an old note knows
-- that no connection was heard since then on which this hold counts.
--
-- After a failover nobody listens to the new primary, while the former one may go on, and a client there hears itself. So each client
-- with a session records the reign in which it has found its primary. Whoever looks in another reign, or finds no record, lets the
-- hold last for its lease. A note of another reign counts for nothing: the primary of that reign may have had its erasure, or another
-- clock.
--
-- Key    lock_notes:session:{<client>}   the reign: what the server calls its master_replid. Another one begins when a server starts,
--                                        and when it becomes a primary. Its run_id is no such word: a server may become the primary a
--                                        second time. The key is undeclared, since only the holders say which clients there are
-- Note   silent   the reign, and the owner fields to which nobody listens, each with since when, in ms of the server's clock

do
  local least_patience -- of the clients with a session that hold something now; nil: there are none
  local next_end -- in how many ms the first hold ends to which nobody listens

  local reign -- the one that is now; '': the user may not ask; nil: this script has not asked yet

  -- A name that begins like this one, which has the prefix of this database or namespace, and ends with the client.
  local function beside(name, client)
    return name:match('^[^{]*') .. 'session:{' .. client .. '}'
  end

  local function is_of_this_reign(client)
    local record = redis.pcall('get', beside(notes, client))
    if not reign then
      local said = redis.pcall('info', 'replication')
      reign = type(said) == 'string' and said:match('master_replid:(%x+)') or ''
    end
    return reign ~= '' and record == reign
  end

  -- If the user may not ask, the client counts as heard.
  local function is_heard(client)
    local counted = redis.pcall('pubsub', 'numsub', beside(channel, client))
    return counted.err or counted[2] ~= 0 or not is_of_this_reign(client)
  end

  -- Ends the holds of clients to which nobody has listened for their patience, and notes those to which nobody listens now.
  function sessions.end_them()
    local noted, since, silent, heard = nil, nil, {}, {}
    least_patience, next_end = nil, nil
    for _, holder in ipairs(first_holders()) do
      local client, patience
      if holder:find('+', 1, true) then
        client, patience = holder:match('^(.*%+(%d+)):%d+$')
        patience = tonumber(patience)
      end
      if client then
        if not least_patience then noted = redis.call('hmget', notes, 'silent')[1] or '' end
        least_patience = math.min(least_patience or patience, patience)
        if heard[client] == nil then heard[client] = is_heard(client) and true or false end
        if not heard[client] then
          if not since then
            since = {}
            local of_this_reign = noted:match('^' .. reign .. '( .*)$') or ''
            for silent_one, from_when in of_this_reign:gmatch(' (%S+) (%d+)') do since[silent_one] = tonumber(from_when) end
          end
          -- If the server's clock was set back, begin anew.
          local began = math.min(since[holder] or now, now)
          local left = began + patience - now
          if left > 0 then
            silent[#silent + 1] = string.format(' %s %.0f', holder, began)
            next_end = math.min(next_end or left, left)
          else
            end_hold(holder)
          end
        end
      end
    end
    local text = #silent > 0 and reign .. table.concat(silent) or ''
    if text ~= (noted or '') then note('silent', text ~= '' and text) end
  end

  -- When a waiter near the front asks again, if it would ask after `again`. The head looks five times within the patience, so that
  -- a dead client is noticed soon. The others look more seldom, in case the head has died with the holder.
  function sessions.looks_again_after(again)
    if not least_patience then return again end
    local look = least_patience
    if places('0', 1)[1] == field then look = math.min(look / 5, next_end or look) end
    look = math.max(1, math.ceil(look))
    return again < 0 and look or math.min(again, look)
  end
end

