-- What the queue's scripts share. KEYS[1] is the common hash tag of all keys, so they are in one cluster slot:
--
--   BASE              hash: sequence, count and bytes of waiting and under-way requests, dead, dead_bytes, ended
--   BASE:t:TICKET     hash: s state, r rule, k key, q sequence, c cost, m method, u target, a accepted, d due, x expires,
--                     e ended, n attempts, w why, h status, b bytes, o session that claimed it
--   BASE:p:TICKET     length of the headers (4 bytes, big endian), headers, body
--   BASE:s:RULE       stream: requests neither delivered nor cancelled, ID sequence-0; pending in its group
--                     'weir': the under-way ones
--   BASE:r:RULE       hash: waiting, under_way, dead, bytes, from (nothing older waits or is under way)
--   BASE:rules        set of the rules' names
--   BASE:l:LANE       sorted set: waiting requests of a rule and key, by sequence
--   BASE:a:GROUP:LANE sorted set: requests set aside, and not in BASE:l:LANE, by sequence; the ticket's field g is GROUP
--   BASE:aside        sorted set of 'GROUP:LANE' by when its oldest returns
--   BASE:busy         hash: lane to its under-way request
--   BASE:later:RULE   sorted set of its lanes that are not busy, by when their head is due
--   BASE:ready:RULE   its lanes whose head is due, by the head's sequence
--   BASE:expires      sorted set of waiting requests, by expiry
--   BASE:ended, dead  sorted sets by sequence; BASE:ended_at, dead_at by when they ended
--   BASE:lease        the dispatching agent
local call, number, format = redis.call, tonumber, string.format
local base = KEYS[1]
local FOREVER = 9007199254740992
local function lane_of(rule, key)
    return #rule .. ':' .. rule .. key
end
local function over_name(sequence, ticket)
    return format('%016.0f', sequence) .. ticket
end
local function id_of(sequence)
    return format('%.0f-0', sequence)
end
-- The least ID of a stream after this one. Redis before 6.2 has no exclusive ranges.
local function next_id(id)
    local first, second = string.match(id, '^(%d+)-(%d+)$')
    if number(second) < FOREVER then
        return format('%s-%.0f', first, second + 1)
    end
    return format('%.0f-0', first + 1) -- none of ours
end
-- Adds `sign` (1 or -1) to the stats of a state.
local function count(rule, state, sign, bytes)
    local figures = base .. ':r:' .. rule
    if state < 2 then
        call('HINCRBY', figures, state == 0 and 'waiting' or 'under_way', sign)
        call('HINCRBY', figures, 'bytes', sign * bytes)
        call('HINCRBY', base, 'count', sign)
        call('HINCRBY', base, 'bytes', sign * bytes)
    elseif state == 3 then
        call('HINCRBY', figures, 'dead', sign)
        call('HINCRBY', base, 'dead', sign)
        call('HINCRBY', base, 'dead_bytes', sign * bytes)
    else
        call('HINCRBY', base, 'ended', sign)
    end
end
-- Finds the lane's head anew.
local function set_head(rule, lane)
    call('ZREM', base .. ':ready:' .. rule, lane)
    local head = call('HEXISTS', base .. ':busy', lane) == 0 and call('ZRANGE', base .. ':l:' .. lane, 0, 0)[1]
    if head then
        call('ZADD', base .. ':later:' .. rule, call('HGET', base .. ':t:' .. head, 'd'), lane)
    else
        call('ZREM', base .. ':later:' .. rule, lane)
    end
end
local function find(ticket)
    local f = call('HMGET', base .. ':t:' .. ticket, 's', 'r', 'k', 'q', 'b', 'o', 'a', 'x', 'n', 'g')
    if f[1] then
        return {ticket = ticket, state = number(f[1]), rule = f[2], lane = lane_of(f[2], f[3]), sequence = number(f[4]),
                bytes = number(f[5]), session = f[6], accepted = number(f[7]), expires = number(f[8]), attempts = number(f[9]),
                group = f[10]}
    end
end
-- Removes it from all indexes of its state.
local function leave(one)
    count(one.rule, one.state, -1, one.bytes)
    if one.state == 0 then
        call('ZREM', base .. ':l:' .. one.lane, one.ticket)
        if one.group then
            call('ZREM', base .. ':a:' .. one.group .. ':' .. one.lane, one.ticket)
            call('HDEL', base .. ':t:' .. one.ticket, 'g')
        end
        call('ZREM', base .. ':expires', one.ticket)
        set_head(one.rule, one.lane)
    elseif one.state == 1 then
        call('XACK', base .. ':s:' .. one.rule, 'weir', id_of(one.sequence))
        call('HDEL', base .. ':busy', one.lane)
        call('HDEL', base .. ':t:' .. one.ticket, 'o')
        set_head(one.rule, one.lane)
    else
        local name = one.state == 3 and ':dead' or ':ended'
        call('ZREM', base .. name, one.ticket)
        call('ZREM', base .. name .. '_at', over_name(one.sequence, one.ticket))
    end
end
-- Makes it waiting; its hash has all fields but the state. `group`: it is set aside, and the group until `due`.
local function to_waiting(one, group, due)
    leave(one)
    count(one.rule, 0, 1, one.bytes)
    call('HSET', base .. ':t:' .. one.ticket, 's', 0)
    if group then
        call('HSET', base .. ':t:' .. one.ticket, 'g', group)
        call('ZADD', base .. ':a:' .. group .. ':' .. one.lane, one.sequence, one.ticket)
        call('ZADD', base .. ':aside', due, group .. ':' .. one.lane)
    else
        call('ZADD', base .. ':l:' .. one.lane, one.sequence, one.ticket)
    end
    if one.expires < FOREVER then
        call('ZADD', base .. ':expires', one.expires, one.ticket)
    end
    set_head(one.rule, one.lane)
end
local function to_over(one, state, now)
    leave(one)
    count(one.rule, state, 1, one.bytes)
    local name = state == 3 and ':dead' or ':ended'
    call('HSET', base .. ':t:' .. one.ticket, 's', state, 'e', now)
    call('ZADD', base .. name, one.sequence, one.ticket)
    call('ZADD', base .. name .. '_at', now, over_name(one.sequence, one.ticket))
    if state ~= 3 then
        call('DEL', base .. ':p:' .. one.ticket)
        call('XDEL', base .. ':s:' .. one.rule, id_of(one.sequence))
    end
end
-- A request as the agent reads it: ticket, headers, body, then texts and numbers of its hash. `payload` is that of
-- BASE:p:TICKET, or ''.
local function item_of(ticket, payload)
    local f = call('HMGET', base .. ':t:' .. ticket, 'r', 'k', 'm', 'u', 'w', 'q', 'c', 'a', 'd', 'x', 'e', 'n', 's', 'h')
    local headers = #payload < 4 and 0 or struct.unpack('>I4', payload)
    return {ticket, string.sub(payload, 5, 4 + headers), string.sub(payload, 5 + headers), unpack(f)}
end
local SEQUENCE = 9 -- its place in item_of
