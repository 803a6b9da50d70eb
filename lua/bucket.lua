-- Token bucket with continuous refill, and leaky bucket. Limit: period, units a period, longest delay (-1: no delay). Refunds and
-- charges of a scaled limit have, instead of the delay, the period and the units of its fastest refill; else 0.
-- `used` units since `since`, of which `q` refill in every `p` microseconds.
-- How long until so many units have refilled; at most nine years.
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
local function regained(limit, time)
    local p, q = a[limit + 3], a[limit + 4]
    local units = q > 1 and muldiv(time, q, p) or (time - time % p) / p
    return units < 4294967295 and units or 4294967295
end
bucket = function(limit, value, time, cost, charge, late, _, _, level)
    local since, used, spare, ends = stored(value, 1)
    if not since then
        return -43
    end
    local cap, hard, p, q = a[limit + 1], a[limit + 2], a[limit + 3], a[limit + 4]
    -- The stored time is ahead: the clock was stepped back. No time counts as passed, and from now on it does; that is written
    -- even if nothing is taken, or it would start anew with each request. (The library cannot do so: there a time ahead is one that
    -- another thread read a moment later, and that moment would count twice.)
    local ahead = used > 0 and since > now
    if ahead then
        since = now
    end
    local back = 0
    if level then
        local lost
        if since > 0 then
            lost = time > since and regained(limit, time - since) - used or 0
            lost = lost > 0 and lost or 0
        end
        back = regained(limit, late)
        spare, ends = reserve(spare, ends, lost, back, regained(limit, 5000000), hard, late > 0 and cost > 0)
    else
        spare, ends = 0, nil
    end
    if cost < 0 then
        charge = true
        if used > 0 and time < since then
            local ahead, fast, units = since - time, p, q
            if a[limit + 6] > 0 then
                fast, units = a[limit + 5], a[limit + 6]
            end
            cost = cost + (units > 1 and muldiv(ahead, units, fast) or (ahead - ahead % fast) / fast)
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
    local paid = 0
    if level and late > 0 and cost > 0 then
        paid = pays(spare, back, cost, hard - used + dripped, level)
        cost, spare = cost - paid, spare - paid
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
        -- Leaky bucket: all units before it must have drained.
        local queue = used > 0 and since + drip(limit, used) - time or 0
        if queue > most and code ~= 3 then
            local shrink = queue - most
            return 2, taken and remaining + cost or remaining, queue, wait > shrink and wait or shrink,
                ahead and packed(1, since, used, time + queue) or nil, time + queue, true
        end
        if taken and queue > 0 then
            code, wait = code + 1, queue
        end
    end
    local unchanged = not taken or cost == 0 and paid == 0
    if unchanged and not ahead then
        return code, remaining, reset, wait
    end
    if ends then
        till = till > ends and till or ends
        return code, remaining, reset, wait, format('b%d:%d:%d:%d', since, after, spare, ends), till, unchanged
    end
    return code, remaining, reset, wait, after > 0 and packed(1, since, after, till), till, unchanged
end
