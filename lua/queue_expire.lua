-- Expiry and retention. ARGV: now, maximum of each kind, removal times (ended, dead), maximum number kept (ended, dead),
-- maximum bytes of dead ones (0: any). Reply: the number of changes.
--@queue.lua
local now, most = ARGV[1], number(ARGV[2])
local done = 0
for _, ticket in ipairs(call('ZRANGEBYSCORE', base .. ':expires', '-inf', now, 'LIMIT', 0, most)) do
    local one = find(ticket)
    if one then
        call('HSET', base .. ':t:' .. ticket, 'w', 'expired')
        to_over(one, 3, now)
        done = done + 1
    else
        call('ZREM', base .. ':expires', ticket)
    end
end
local function forget(names, set)
    for _, name in ipairs(names) do
        local ticket = string.sub(name, 17)
        local one = find(ticket)
        if one then
            leave(one)
            call('DEL', base .. ':t:' .. ticket, base .. ':p:' .. ticket)
            call('XDEL', base .. ':s:' .. one.rule, id_of(one.sequence))
        else
            call('ZREM', base .. set .. '_at', name)
            call('ZREM', base .. set, ticket)
        end
        done = done + 1
    end
end
for i, set in ipairs({':ended', ':dead'}) do
    forget(call('ZRANGEBYSCORE', base .. set .. '_at', '-inf', ARGV[2 + i], 'LIMIT', 0, most), set)
    local surplus = math.min(call('ZCARD', base .. set .. '_at') - number(ARGV[4 + i]), most)
    if surplus > 0 then
        forget(call('ZRANGE', base .. set .. '_at', 0, surplus - 1), set)
    end
end
local bytes = number(ARGV[7])
for _ = 1, bytes > 0 and most or 0 do
    if number(call('HGET', base, 'dead_bytes') or 0) <= bytes then
        break
    end
    forget(call('ZRANGE', base .. ':dead_at', 0, 0), ':dead')
end
-- Removes rules without requests.
for _, rule in ipairs(call('SMEMBERS', base .. ':rules')) do
    local f = call('HMGET', base .. ':r:' .. rule, 'waiting', 'under_way', 'dead')
    if number(f[1] or 0) + number(f[2] or 0) + number(f[3] or 0) == 0 then
        call('DEL', base .. ':r:' .. rule, base .. ':s:' .. rule)
        call('SREM', base .. ':rules', rule)
    end
end
return done
