-- Sliding window counter with more buckets. Limit: length of a part, number of parts, what a part can hold.
-- The value: n, and a MessagePack array: length and number of parts, the newest part's number, and their counts, the
-- newest first. Parts of another length or number are another count.
parts = function(limit, value, time, cost, charge, late, _, _, level)
    local cap, hard, w, n = a[limit + 1], a[limit + 2], a[limit + 3], a[limit + 4]
    local here = (time - time % w) / w
    local part, counts, found = here, {}, false
    if value then
        if byte(value) == 110 then
            local fine, in_use = pcall(cmsgpack.unpack, sub(value, 2))
            if not fine or type(in_use) ~= 'table' or #in_use < 3 then
                return -43
            end
            if in_use[1] == w and in_use[2] == n then
                if #in_use ~= n + 3 then
                    return -43
                end
                for i = 3, n + 3 do
                    if type(in_use[i]) ~= 'number' or in_use[i] < 0 or in_use[i] % 1 ~= 0 or
                        i > 3 and in_use[i] > 4294967295 or i == 3 and in_use[i] * w > beyond then
                        return -43
                    end
                end
                found = true
                part = in_use[3] > here and in_use[3] or here
                local shift = part - in_use[3]
                for i = 1, n do
                    counts[i] = i > shift and in_use[i - shift + 3] or 0
                end
            end
        elseif not ours(value) then
            return -43
        end
    end
    local before = 0
    for i = 2, n do
        if not found then
            counts[i] = 0
        end
        before = before + counts[i]
    end
    if before > 2147483647 then
        before = 2147483647
    end
    local current, start = found and counts[1] or 0, part * w
    -- Late by more than the present part: evenly over that time, as in counter.lua.
    local early, most, x = 0, a[limit + 5], time > start and time - start or 0
    local over_time = level and late > x and cost > 0
    if over_time then
        local span = late - x
        for i = 2, n do
            local share = span > 0 and muldiv(span < w and span or w, cost, late) or 0
            share = counts[i] + share < most and share or most - counts[i]
            counts[i], early, span = counts[i] + share, early + share, span - w
        end
        cost, before = cost - muldiv(late - x, cost, late), before + early
    end
    local in_use = current + before
    if cost < 0 then
        charge = true
        if here ~= part then
            cost = 0
        end
    end
    if over_time and hard - in_use - cost > level then
        cost = hard - in_use - level
    end
    local taken, code, remaining = judge(in_use, cost, charge, cap, hard)
    local wait = 0
    if code == 2 then
        -- The oldest part leaves first.
        local missing, i = in_use + cost - cap, n - 1
        while i > 0 and missing > 0 do
            missing = missing - counts[i + 1]
            i = i - 1
        end
        wait = start + (missing > 0 and n or n - 1 - i) * w - time
        if wait < 0 then
            wait = 0
        end
    end
    if taken then
        current = current + cost
        current = current < 0 and 0 or current > most and most or current
        remaining = hard - current - before
    end
    local reset, parts = 0, 0
    if current > 0 then
        parts = n
    elseif before > 0 then
        parts = n - 1
        while parts > 1 and counts[n - parts + 1] == 0 do
            parts = parts - 1
        end
    end
    if parts > 0 then
        reset = start + parts * w - time
        if reset < 0 then
            reset = 0
        end
    end
    if not taken or cost == 0 and early == 0 or cost < 0 and not found then
        return code, remaining, reset, wait
    end
    if parts == 0 then
        return code, remaining, reset, wait, false
    end
    counts[1] = current
    return code, remaining, reset, wait, 'n' .. cmsgpack.pack({w, n, part, unpack(counts)}), start + parts * w
end
