-- Claims due heads. ARGV: now, claim duration, maximum number (0: release the lease), maximum bytes, name,
-- session, lease duration, 1 for the handle's first claim, latest valid due time, 1 for fair shares, how many groups set
-- aside return one request each. Reply: 1 if another agent has the lease, else each claimed request (item_of).
--@queue.lua
local PROMOTED = 128
local now, claim_ms, left, most, name, session = ARGV[1], number(ARGV[2]), number(ARGV[3]), number(ARGV[4]), ARGV[5], ARGV[6]
local holder = call('GET', base .. ':lease')
if holder and holder ~= name then
    return 1
end
if left == 0 then
    call('DEL', base .. ':lease')
    return {}
end
call('SET', base .. ':lease', name, 'PX', ARGV[7])
local function release(rule, id)
    local entry = call('XRANGE', base .. ':s:' .. rule, id, id)[1]
    local one = entry and find(entry[2][2])
    if one and one.state == 1 then
        to_waiting(one)
    else
        call('XACK', base .. ':s:' .. rule, 'weir', id)
    end
end
-- Ends earlier claims of this name, and expired ones (Redis before 6.2 has no XAUTOCLAIM). Returns how many of the rule
-- this agent has under way.
local function release_ended(rule)
    if ARGV[8] == '1' then
        for _, pending in ipairs(call('XPENDING', base .. ':s:' .. rule, 'weir', '-', '+', 4096, name)) do
            release(rule, pending[1])
        end
    end
    local released, in_use = 0, 0
    for _, pending in ipairs(call('XPENDING', base .. ':s:' .. rule, 'weir', '-', '+', 4096)) do
        if pending[3] >= claim_ms and released < 512 then
            release(rule, pending[1])
            released = released + 1
        elseif pending[2] == name then
            in_use = in_use + 1
        end
    end
    return in_use
end
-- Marks lanes whose heads have become due.
local function promote(rule, from, to, most_of_it)
    for _, lane in ipairs(call('ZRANGEBYSCORE', base .. ':later:' .. rule, from, to, 'LIMIT', 0, most_of_it)) do
        call('ZREM', base .. ':later:' .. rule, lane)
        call('ZADD', base .. ':ready:' .. rule, call('ZRANGE', base .. ':l:' .. lane, 0, 0, 'WITHSCORES')[2] or 0, lane)
    end
end
local function look(turn)
    local first = call('ZRANGE', base .. ':ready:' .. turn.rule, 0, 0, 'WITHSCORES')
    turn.lane, turn.sequence = first[1], number(first[2] or 0)
end
-- Returns the oldest request of each due group to its lane. The group stays due, behind the others; an empty one is removed.
local function bring_back(from, to)
    for _, name in ipairs(call('ZRANGEBYSCORE', base .. ':aside', from, to, 'LIMIT', 0, ARGV[11])) do
        local ticket = call('ZRANGE', base .. ':a:' .. name, 0, 0)[1]
        local one = ticket and find(ticket)
        if one and one.state == 0 then
            call('ZREM', base .. ':a:' .. name, ticket)
            call('HDEL', base .. ':t:' .. ticket, 'g')
            if number(call('HGET', base .. ':t:' .. ticket, 'd')) > number(now) then
                call('HSET', base .. ':t:' .. ticket, 'd', now)
            end
            call('ZADD', base .. ':l:' .. one.lane, one.sequence, ticket)
            call('ZADD', base .. ':aside', now, name)
            set_head(one.rule, one.lane)
        else
            call('ZREM', base .. ':a:' .. name, ticket or '') -- removed, or ended by an agent that knows no groups
            if not ticket then
                call('ZREM', base .. ':aside', name)
            end
        end
    end
end
local turns, rules = {}, call('SMEMBERS', base .. ':rules')
bring_back('-inf', now)
bring_back('(' .. ARGV[9], '+inf')
for _, rule in ipairs(rules) do
    local turn, share = {rule = rule, in_use = 0}, math.max(math.floor(PROMOTED / #rules), 16)
    if number(call('HGET', base .. ':r:' .. rule, 'under_way') or 0) > 0 then
        turn.in_use = release_ended(rule)
    end
    promote(rule, '-inf', now, share)
    promote(rule, '(' .. ARGV[9], '+inf', share)
    look(turn)
    turns[#turns + 1] = turn
end
-- The rule with the fewest under way, then with the oldest head.
local function next_turn()
    local best
    for _, turn in ipairs(turns) do
        if turn.lane and (ARGV[10] == '0' or turn.in_use < left) and (not best or turn.in_use < best.in_use or
            (turn.in_use == best.in_use and turn.sequence < best.sequence)) then
            best = turn
        end
    end
    return best
end
local reply, bytes = {}, 0
for _ = 1, 2 * left do
    local turn = left > 0 and next_turn()
    if not turn then
        break
    end
    local ticket = call('ZRANGE', base .. ':l:' .. turn.lane, 0, 0)[1]
    local one = ticket and find(ticket)
    bytes = bytes + (one and one.bytes or 0)
    if bytes > most and #reply > 0 then
        break
    end
    if one then
        call('HSET', base .. ':busy', turn.lane, ticket)
        leave(one)
        count(one.rule, 1, 1, one.bytes)
        call('HSET', base .. ':t:' .. ticket, 's', 1, 'o', session)
        call('XCLAIM', base .. ':s:' .. one.rule, 'weir', name, 0, id_of(one.sequence), 'FORCE', 'JUSTID')
        reply[#reply + 1] = item_of(ticket, call('GET', base .. ':p:' .. ticket) or '')
        turn.in_use, left = turn.in_use + 1, left - 1
    else
        -- Its hash is gone (removed from outside): it must not block its lane.
        call('ZREM', base .. ':l:' .. turn.lane, ticket or '')
        set_head(turn.rule, turn.lane)
    end
    look(turn)
end
table.sort(reply, function(one, other) return number(one[SEQUENCE]) < number(other[SEQUENCE]) end)
return reply
