-- Enqueues the requests that fit their bounds. ARGV: bounds of all (count, bytes), then for each: ticket, rule, key, cost, method, target,
-- headers, body, accepted, due, expires, bytes, bounds of the rule (count, bytes). Reply: for each its sequence, or 0 if it does not fit.
--@queue.lua
local max, max_bytes = number(ARGV[1]), number(ARGV[2])
local all = call('HMGET', base, 'count', 'bytes', 'sequence')
local in_use, held_bytes, sequence = number(all[1] or 0), number(all[2] or 0), number(all[3] or 0)
local rules, reply = {}, {}
local function fits(has, has_bytes, most, most_bytes, bytes)
    return (most <= 0 or has < most) and (most_bytes <= 0 or has_bytes + bytes <= most_bytes)
end
local function figures_of(name)
    local f = call('HMGET', base .. ':r:' .. name, 'waiting', 'under_way', 'bytes')
    return {count = number(f[1] or 0) + number(f[2] or 0), bytes = number(f[3] or 0), new = not f[1], more = 0, more_bytes = 0}
end
for i = 3, #ARGV, 14 do
    local ticket, name, bytes = ARGV[i], ARGV[i + 1], number(ARGV[i + 11])
    local rule = rules[name] or figures_of(name)
    rules[name] = rule
    if fits(in_use, held_bytes, max, max_bytes, bytes) and
        fits(rule.count + rule.more, rule.bytes + rule.more_bytes, number(ARGV[i + 12]), number(ARGV[i + 13]), bytes) then
        sequence = sequence + 1
        in_use, held_bytes = in_use + 1, held_bytes + bytes
        if rule.new and rule.more == 0 then
            call('SADD', base .. ':rules', name)
            redis.pcall('XGROUP', 'CREATE', base .. ':s:' .. name, 'weir', '0', 'MKSTREAM')
        end
        rule.more, rule.more_bytes = rule.more + 1, rule.more_bytes + bytes
        local lane = lane_of(name, ARGV[i + 2])
        call('HSET', base .. ':t:' .. ticket, 's', 0, 'r', name, 'k', ARGV[i + 2], 'q', sequence, 'c', ARGV[i + 3],
             'm', ARGV[i + 4], 'u', ARGV[i + 5], 'a', ARGV[i + 8], 'd', ARGV[i + 9], 'x', ARGV[i + 10], 'n', 0, 'b', bytes)
        call('SET', base .. ':p:' .. ticket, struct.pack('>I4', #ARGV[i + 6]) .. ARGV[i + 6] .. ARGV[i + 7])
        call('XADD', base .. ':s:' .. name, id_of(sequence), 't', ticket)
        call('ZADD', base .. ':l:' .. lane, sequence, ticket)
        if number(ARGV[i + 10]) < FOREVER then
            call('ZADD', base .. ':expires', ARGV[i + 10], ticket)
        end
        if call('ZCARD', base .. ':l:' .. lane) == 1 and call('HEXISTS', base .. ':busy', lane) == 0 then
            call('ZADD', base .. ':later:' .. name, ARGV[i + 9], lane)
        end
        reply[#reply + 1] = sequence
    else
        reply[#reply + 1] = 0
    end
end
for name, rule in pairs(rules) do
    if rule.more > 0 then
        call('HINCRBY', base .. ':r:' .. name, 'waiting', rule.more)
        call('HINCRBY', base .. ':r:' .. name, 'bytes', rule.more_bytes)
    end
end
call('HSET', base, 'count', in_use, 'bytes', held_bytes, 'sequence', sequence)
return reply
