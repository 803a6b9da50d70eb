-- Token bucket with continuous refill, and leaky bucket. Limit: period, units a period, longest delay (-1: no delay).
-- `used` units since `since`, of which `q` come back in every `p` microseconds.
-- How long until so many units have come back; nine years at most.
local function drip(limit, units)
    local p, q = a[limit + 3], a[limit + 4]
    local wait = units * p
    if q > 1 then
        local more
        wait, more = muldiv(p, units, q)
        if more then
            wait = wait + 1
        end
    end
    return wait < 281474976710656 and wait or 281474976710656
end
bucket = function(limit, value, time, cost, charge)
    local since, used = stored(value, 1)
    if not since then
        return -43
    end
    local cap, hard, p, q = a[limit + 1], a[limit + 2], a[limit + 3], a[limit + 4]
    if cost < 0 then
        charge = true
        if used > 0 and time < since then
            local ahead = since - time
            cost = cost + (q > 1 and muldiv(ahead, q, p) or (ahead - ahead % p) / p)
            if cost > 0 then
                cost = 0
            end
        end
    end
    local dripped = 0
    if used > 0 then
        local elapsed = time > since and time - since or 0
        if elapsed >= p then
            local periods = (elapsed - elapsed % p) / p
            if periods > (used - used % q) / q then
                used = 0
            else
                used = used - periods * q
                since = since + periods * p
                elapsed = elapsed % p
            end
        end
        if q > 1 and used > 0 then
            dripped = muldiv(elapsed, q, p)
            if dripped >= used then
                used, dripped = 0, 0
            end
        end
    end
    if used == 0 then
        since = time
    end
    local taken, code, remaining = true, 0, nil
    if used - dripped + cost > cap and cost >= 0 and not charge then
        taken, code, remaining = false, cost > cap and 3 or 2, hard - used + dripped
    end
    local wait, after = 0, used
    if code == 2 then
        wait = since + drip(limit, used + cost - cap) - time
        if wait < 0 then
            wait = 0
        end
    end
    if taken then
        after = used + cost
        after = after <= dripped and 0 or after > 4294967295 and 4294967295 or after
        remaining = hard - (after > 0 and after - dripped or 0)
        if cost > 0 and used - dripped + cost > hard then
            code = 8
        end
    end
    local till = after > 0 and since + drip(limit, after) or time
    local reset = till > time and till - time or 0
    local most = a[limit + 5]
    if most >= 0 and not charge then
        -- All before it must have left.
        local queue = used > 0 and since + drip(limit, used) - time or 0
        if queue > most and code ~= 3 then
            local shrink = queue - most
            return 2, taken and remaining + cost or remaining, queue, wait > shrink and wait or shrink
        end
        if taken and queue > 0 then
            code, wait = code + 1, queue
        end
    end
    if not taken or cost == 0 then
        return code, remaining, reset, wait
    end
    return code, remaining, reset, wait, after > 0 and packed(1, since, after, till), till
end
