-- Token bucket with interval refill: all `most` units of a window at once. Limit: window, units a window, and those at the
-- most: of a limit that varies with the load.
interval = function(limit, value, time, cost, charge)
    local since, used = stored(value, 1)
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
    local elapsed = time > since and time - since or 0
    local windows = (elapsed - elapsed % window) / window
    if windows >= refills(used) then
        used, since = 0, time
    else
        used = used - windows * most
        since = since + windows * window
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
    local unchanged = not taken or cost == 0
    if unchanged and not ahead then
        return code, remaining, reset, wait
    end
    return code, remaining, reset, wait, after > 0 and packed(1, since, after, till), till, unchanged
end
