-- Sliding window counter with two buckets. Limit: window, whether weights are rounded up, what a bucket can hold.
-- The value: 19 digits: 3, the present window's start in milliseconds (10 digits, modulo), its count and that of the
-- window before it, 4 digits each. What does not fit is an s, and start, count and count before with colons between.
pair = function(limit, value, time, cost, charge, late, _, _, level)
    local cap, hard, w, up = a[limit + 1], a[limit + 2], a[limit + 3], a[limit + 4] == 1
    local first = time - time % w
    local start, current, before = first, 0, 0
    local entered = false
    if value then
        local since, count, old
        if #value == 19 and not string.find(value, '%D') then
            local digit = byte(value)
            if digit == 51 then
                local clock = (now - now % 1000) / 1000
                local age = (clock - sub(value, 2, 11)) % 10000000000
                if age >= 8750000000 then
                    age = age - 10000000000
                end
                since, count, old = (clock - age) * 1000, sub(value, 12, 15) + 0, sub(value, 16) + 0
            elseif digit < 49 or digit > 53 then
                return -43
            end
        else
            since, count, old = string.match(value, '^s(%d+):(%d+):(%d+)$')
            if since and #count < 11 and #old < 11 and since + 0 < beyond then
                since, count, old = since + 0, count + 0, old + 0
            elseif since or not ours(value) then
                return -43
            end
        end
        if since and count + old > 0 then
            entered = since >= first
            if entered then
                start, current, before = since, count, old
            elseif since == first - w then
                before = count
            end
        end
    end
    local x = time > start and time - start or 0
    if x >= w then
        x = w - 1
    end
    -- Late by more than the present window: evenly over that time, so a part of it is of the window before, and what is
    -- older weighs nothing.
    local early, most = 0, a[limit + 5]
    local over_time = level and late > x and cost > 0
    if over_time then
        early = muldiv(late - x < w and late - x or w, cost, late)
        cost = cost - muldiv(late - x, cost, late)
        before = before + early < most and before + early or most
    end
    local in_use = current
    local weight, more = 0, false
    if before > 0 then
        weight, more = muldiv(w - x, before, w)
        if more and up then
            weight = weight + 1
        end
        in_use = in_use + weight
    end
    -- The first moment of a window at which no more than `room` of `count` weigh.
    local function room_at(count, room)
        if count < 1 or count <= room then
            return 0
        end
        if up then
            return w - muldiv(w, room, count)
        end
        local at, rest = muldiv(w, room + 1, count)
        return w - at - (rest and 1 or 0) + 1
    end
    if cost < 0 then
        charge = true
        if first ~= start then
            cost = 0
        end
    end
    if over_time and hard - in_use - cost > level then
        cost = hard - in_use - level -- no more is left than the host has left itself
    end
    local taken, code, remaining = judge(in_use, cost, charge, cap, hard)
    local wait = 0
    if code == 2 then
        local room = cap - cost - current
        wait = start + (room >= 0 and room_at(before, room) or w + room_at(current, cap - cost)) - time
        if wait < 0 then
            wait = 0
        end
    end
    if taken then
        current = current + cost
        current = current < 0 and 0 or current > most and most or current
        remaining = hard - current - weight
    end
    local reset = 0
    if current > 0 or before > 0 then
        reset = start + (current > 0 and w + room_at(current, 0) or room_at(before, 0)) - time
        if reset < 0 then
            reset = 0
        end
    end
    if not taken or cost == 0 and early == 0 or cost < 0 and not entered then
        return code, remaining, reset, wait
    end
    if current == 0 and before == 0 then
        return code, remaining, reset, wait, false
    end
    local fresh
    if current < 10000 and before < 10000 and start % 1000 == 0 and w <= 2592000000000 and start <= now then
        fresh = format('3%010d%04d%04d', start / 1000 % 10000000000, current, before)
    else
        fresh = format('s%d:%d:%d', start, current, before)
    end
    return code, remaining, reset, wait, fresh, start + (current > 0 and 2 or 1) * w
end
