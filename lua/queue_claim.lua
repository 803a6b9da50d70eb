-- Claims heads. ARGV: now, how long a claim lasts, how many at most (0: this agent drains no more), bytes at most, name,
-- session, how long the lease lasts, 1 for the handle's first. The answer: 1 if another agent drains, else for each that was
-- claimed its ticket, its headers and body, and what is told of it.
--@queue.lua
local now, claim_ms, max, most, name, session = ARGV[1], number(ARGV[2]), number(ARGV[3]), number(ARGV[4]), ARGV[5], ARGV[6]
local holder = call('GET', base .. ':lease')
if holder and holder ~= name then
    return 1
end
if max == 0 then
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
-- Claims that have ended: those of this name before, and those that last for too long (servers before version 6.2 know no
-- XAUTOCLAIM).
for _, rule in ipairs(call('SMEMBERS', base .. ':rules')) do
    if number(call('HGET', base .. ':r:' .. rule, 'under_way') or 0) > 0 then
        if ARGV[8] == '1' then
            for _, pending in ipairs(call('XPENDING', base .. ':s:' .. rule, 'weir', '-', '+', 4096, name)) do
                release(rule, pending[1])
            end
        end
        local released = 0
        for _, pending in ipairs(call('XPENDING', base .. ':s:' .. rule, 'weir', '-', '+', 4096)) do
            if pending[3] >= claim_ms and released < 512 then
                release(rule, pending[1])
                released = released + 1
            end
        end
    end
end
for _, lane in ipairs(call('ZRANGEBYSCORE', base .. ':later', '-inf', now, 'LIMIT', 0, 512)) do
    call('ZREM', base .. ':later', lane)
    call('ZADD', base .. ':ready', call('ZRANGE', base .. ':l:' .. lane, 0, 0, 'WITHSCORES')[2] or 0, lane)
end
local answer, bytes = {}, 0
for _, lane in ipairs(call('ZRANGE', base .. ':ready', 0, max - 1)) do
    local ticket = call('ZRANGE', base .. ':l:' .. lane, 0, 0)[1]
    local one = ticket and find(ticket)
    bytes = bytes + (one and one.bytes or 0)
    if bytes > most and #answer > 0 then
        break
    end
    if one then
        call('HSET', base .. ':busy', lane, ticket)
        leave(one)
        count(one.rule, 1, 1, one.bytes)
        call('HSET', base .. ':t:' .. ticket, 's', 1, 'o', session)
        call('XCLAIM', base .. ':s:' .. one.rule, 'weir', name, 0, id_of(one.sequence), 'FORCE', 'JUSTID')
        answer[#answer + 1] = {ticket, call('GET', base .. ':p:' .. ticket) or '', told(ticket)}
    else
        -- Somebody else removed it: the others of its lane must not wait for it.
        call('ZREM', base .. ':l:' .. lane, ticket or '')
        set_head(lane)
    end
end
return answer
