-- Fixed window. Limit: its length and 0 if it is a whole one since 1970, or 1 if it begins with the first request; or the
-- starts of four in a row, of which the second was the host's, if it is one of the calendar.
local function around(limit, time)
    if a[limit + 4] == 0 then
        local window = a[limit + 3]
        local start = time - time % window
        return start, start + window
    end
    for i = limit + 3, limit + 5 do
        if a[i] <= time and time < a[i + 1] then
            return a[i], a[i + 1]
        end
    end
    return nil
end
fixed = function(limit, value, time, cost, charge, left)
    local since, used = stored(value, 2)
    if not since then
        return -43
    end
    local kind, cap, hard = a[limit + 4], a[limit + 1], a[limit + 2]
    local finish, ahead
    if kind == 1 then
        if left and left < -1 and cost > 0 then
            return 32, hard - used, 0 -- used in a window of the host's that is over
        end
        ahead = used > 0 and since > now -- as in bucket.lua
        if ahead then
            since = now
        end
        if used == 0 or time - since >= a[limit + 3] then
            -- An exchange: the window starts with the host's, or the two would never end together.
            since, used = left and left > 0 and time - a[limit + 3] + left or time, 0
        end
        finish = since + a[limit + 3]
    else
        local start
        if cost < 0 and kind > 1 and time < a[limit + 3] then
            -- Taken in a window that is over: there is nothing to refund.
            time, cost, charge = now, 0, true
        end
        start, finish = around(limit, time)
        -- The clock was stepped back by at most one window: the window that was reached stays.
        if start and used > 0 and since >= finish and since - time <= finish - start then
            start, finish = around(limit, since)
        end
        if not start then
            return -46
        end
        if since < start or since >= finish then
            used = 0
        end
        since = start
        if left then
            local half = (finish - start) / 2
            local ahead = left - (finish - time)
            if ahead > half or ahead < -half then
                return ahead > half and 64 or 32, hard - used, used > 0 and finish - time or 0
            end
        end
    end
    if cost < 0 then
        charge = true
        if used == 0 or time < since then
            cost = 0
        end
    end
    local taken, code, remaining = judge(used, cost, charge, cap, hard)
    if taken then
        used = used + cost
        used = used < 0 and 0 or used > 4294967295 and 4294967295 or used
        remaining = hard - used
    end
    local wait = finish - time
    local unchanged = not taken or cost == 0
    if unchanged and not ahead then
        return code, remaining, used > 0 and wait or 0, wait
    end
    return code, remaining, used > 0 and wait or 0, wait, used > 0 and packed(2, since, used, finish), finish, unchanged
end
