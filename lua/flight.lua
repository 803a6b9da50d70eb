-- Permits (requests in flight). Limit: duration of a lease. The value is a sorted set: leases (26 hexadecimal digits), scored by
-- expiry. A refund releases the lease of the operation. A renewal extends it; with a cost, an expired lease is taken again if
-- there is room. Charges have no effect. Expired leases do not count, and the next take removes them.
-- `before`: what the group has taken under this name already.
flight = function(limit, how, cost, name, before)
    local cap, hard = a[limit + 1], a[limit + 2]
    local lease = format('%013x%013x', a[place], a[place + 1])
    place = place + 2
    local first = try('ZRANGE', name, 0, 0, 'WITHSCORES')
    local in_use, over, other = before and before.count or 0, false, false
    if first.err then
        if not string.find(first.err, 'WRONGTYPE') then
            call('ZRANGE', name, 0, 0)
        end
        local value = try('GET', name)
        if not value or value.err or not ours(value) then
            return -43
        end
        other, first = true, {}
    elseif first[1] then
        if not is_lease(first[1]) then
            return -43
        end
        over = first[2] + 0 <= now
        in_use = in_use + (over and call('ZCOUNT', name, format('(%d', now), '+inf') or call('ZCARD', name))
    end
    if how == 5 then
        return 0, hard, 0, 0, false, now, false, name, 0
    end
    local code, remaining, taken, fresh = 0, hard - in_use, false, nil
    if how < 2 then
        taken, code, remaining = judge(in_use, cost > 0 and 1 or 0, false, cap, hard)
        taken = taken and cost > 0
    elseif how == 2 or how == 6 then
        local ends = first[1] and call('ZSCORE', name, lease)
        local mine = ends and ends + 0 > now
        if how == 2 then
            fresh = mine and {dropped = lease} or nil
            remaining = mine and remaining + 1 or remaining
        elseif mine or cost > 0 and in_use < cap then
            taken, remaining = true, mine and remaining or remaining - 1
        else
            code = 2
        end
    end
    if taken and how ~= 1 then
        fresh = {lease = lease, ends = now + a[limit + 3], count = (before and before.count or 0) + 1, over = over,
            other = other}
    end
    return code, remaining, 0, code == 2 and 1000000 or 0, fresh, now + a[limit + 3], false, name, fresh and 1 or 0
end
-- `ttl` in milliseconds, as text.
enter = function(name, value, ttl)
    if value.dropped then
        call('ZREM', name, value.dropped)
        return
    end
    if value.other then
        call('DEL', name)
    elseif value.over then
        call('ZREMRANGEBYSCORE', name, '-inf', format('%d', now))
    end
    call('ZADD', name, format('%d', value.ends), value.lease)
    -- other leases may be longer
    if call('PTTL', name) < ttl + 0 then
        call('PEXPIRE', name, ttl)
    end
end
