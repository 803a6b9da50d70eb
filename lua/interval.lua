-- Token bucket with interval refill: all `most` units of a window at once. Limit: window, units a window, and those at the
-- most: of a limit that varies with the load.
interval = function(limit, value, time, cost, charge, late, _, _, level)
    local since, used, spare, ends = stored(value, 1)
    if not since then
        return -43
    end
    local cap, hard, window, most = a[limit + 1], a[limit + 2], a[limit + 3], a[limit + 4]
    local ahead = used > 0 and since > now -- as in bucket.lua
    if ahead then
        since = now
    end
    if cost < 0 then
        charge = true
        if used > 0 and time < since then
            local ahead = since - time - 1
            cost = cost + ((ahead - ahead % window) / window + 1) * a[limit + 5]
            if cost > 0 then
                cost = 0
            end
        end
    end
    -- How many refills bring back so many units.
    local function refills(units)
        units = units + most - 1
        return (units - units % most) / most
    end
    local function lasts(units)
        local wait = refills(units) * window
        return wait < 281474976710656 and wait or 281474976710656
    end
    -- Units that refill in this time; each window that it overlaps counts completely, since their boundaries are unknown.
    local function regained(us)
        local units = (us + window - 1 - (us + window - 1) % window) / window * most
        return units < 4294967295 and units or 4294967295
    end
    local elapsed = time > since and time - since or 0
    local windows = (elapsed - elapsed % window) / window
    local back, paid = 0, 0
    if level then
        local lost = since > 0 and windows * most - used or nil
        lost = lost and lost < 0 and 0 or lost
        back = regained(late)
        spare, ends = reserve(spare, ends, lost, back, regained(5000000), hard, late > 0 and cost > 0)
    end
    if windows >= refills(used) then
        used, since = 0, time
    else
        used = used - windows * most
        since = since + windows * window
    end
    if level and late > 0 and cost > 0 then
        paid = pays(spare, back, cost, hard - used, level)
        cost, spare = cost - paid, spare - paid
    end
    local taken, code, remaining = judge(used, cost, charge, cap, hard)
    local wait, after = 0, used
    if code == 2 then
        wait = since + lasts(used + cost - cap) - time
        if wait < 0 then
            wait = 0
        end
    end
    if taken then
        after = used + cost
        after = after < 0 and 0 or after > 4294967295 and 4294967295 or after
        remaining = hard - after
    end
    local till = since + lasts(after)
    local reset = after > 0 and till > time and till - time or 0
    local unchanged = not taken or cost == 0 and paid == 0
    if unchanged and not ahead then
        return code, remaining, reset, wait
    end
    if level and ends then
        till = till > ends and till or ends
        return code, remaining, reset, wait, format('b%d:%d:%d:%d', since, after, spare, ends), till, unchanged
    end
    return code, remaining, reset, wait, after > 0 and packed(1, since, after, till), till, unchanged
end
