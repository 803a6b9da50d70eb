-- A state transition of one request. ARGV: kind (0 retry, 2 delivered, 3 dead, 4 cancel, 5 requeue), ticket, now, due, why, status,
-- whether it counts as an attempt, session, bounds of all (count, bytes), group
-- in which it is set aside (0: none). Reply: 0, or an error of enum weir__queue_error.
--@queue.lua
local kind, now = number(ARGV[1]), ARGV[3]
local one = find(ARGV[2])
if not one then
    return -4
end
local hash = base .. ':t:' .. one.ticket
if kind == 4 then
    if one.state ~= 0 and one.state ~= 3 then
        return -5
    end
    to_over(one, 4, now)
    return 0
end
if kind == 5 then
    if one.state ~= 3 then
        return -5
    end
    local all = call('HMGET', base, 'count', 'bytes')
    local max, max_bytes = number(ARGV[9]), number(ARGV[10])
    if (max > 0 and number(all[1] or 0) >= max) or (max_bytes > 0 and number(all[2] or 0) + one.bytes > max_bytes) then
        return -1
    end
    if one.expires < FOREVER then
        one.expires = number(now) + one.expires - one.accepted
        call('HSET', hash, 'x', one.expires)
    end
    call('HSET', hash, 'd', now, 'n', 0)
    call('HDEL', hash, 'e')
    -- It may be older than the oldest.
    local figures = base .. ':r:' .. one.rule
    if number(call('HGET', figures, 'from') or 0) > one.sequence then
        call('HSET', figures, 'from', one.sequence)
    end
    to_waiting(one)
    return 0
end
if one.state ~= 1 or one.session ~= ARGV[8] then
    return -6
end
call('HINCRBY', hash, 'n', ARGV[7])
if ARGV[5] ~= '' then
    call('HSET', hash, 'w', ARGV[5])
elseif kind == 2 then
    call('HDEL', hash, 'w')
end
if ARGV[6] ~= '0' then
    call('HSET', hash, 'h', ARGV[6])
end
if kind == 0 then
    if ARGV[4] ~= '0' then
        call('HSET', hash, 'd', ARGV[4])
    end
    to_waiting(one, ARGV[11] ~= '0' and ARGV[11], ARGV[4])
else
    to_over(one, kind, now)
end
return 0
