-- Sliding window log. Limit: window, resolution of times, whether denied requests are logged, too, units that are kept.
-- The value: l, whether it is aged, resolution, newest time, units before the first that counts, units that count; then
-- 4 bytes a unit: its time in quanta, modulo 2^32, the oldest first. Below LOG_SHORT bytes it is read and written whole;
-- a longer one is read and changed in place, and rewritten when more than half of it has left.
-- Aged: units were dropped while others stayed. Nothing is logged before `newest` then, even if that was refunded.
log = function(limit, value, time, cost, charge, late, name, whole, level)
    local cap, hard, window, quantum, keep = a[limit + 1], a[limit + 2], a[limit + 3], a[limit + 4], a[limit + 6]
    local HEAD, SHORT = 22, 1046
    local aged, newest, first, span, full = 0, 0, 0, 0, true
    if value then
        if byte(value) == 108 and #value >= HEAD then
            local _, old, resolution, latest, gone, count = struct.unpack('>BBI4I8I4I4', value)
            full = whole or #value < SHORT
            if full and HEAD + 4 * (gone + count) > #value or count > 65535 or latest > beyond then
                return -43
            end
            if resolution == quantum then
                aged, newest, first, span = old, latest, gone, count
            else
                full = true
            end
        elseif byte(value) == 108 or not ours(value) then
            return -43
        end
    end
    local block, from = value, 0
    -- When unit i of the span was logged, 0 the oldest.
    local function at(i)
        local offset = HEAD + 4 * (first + i)
        if offset < from or offset + 4 > from + #block then
            from = offset > HEAD + 512 and offset - 512 or HEAD
            block = call('GETRANGE', name, from, from + 1023)
            if #block < offset + 4 - from then
                return newest
            end
        end
        local latest = newest / quantum
        return (latest - (latest - struct.unpack('>I4', block, offset - from + 1)) % 4294967296) * quantum
    end
    local function rounded(us)
        local rest = us % quantum
        return rest > 0 and us + quantum - rest or us
    end
    -- Units later than a window ago: those before are few, so from the oldest on in growing steps, then by halving.
    local edge, live = time - window, 0
    if span > 0 and newest > edge then
        local low, high = 0, 0
        while high < span and at(high) <= edge do
            low = high + 1
            high = 2 * high + 1
        end
        if high > span then
            high = span
        end
        while low < high do
            local middle = (low + high - (low + high) % 2) / 2
            if at(middle) > edge then
                high = middle
            else
                low = middle + 1
            end
        end
        live = span - low
    end
    local skip = span - live
    local least = (span > 0 or aged > 0) and newest or 0
    if level and late > 0 and cost > 0 then
        -- Evenly over that time, among those that are there: what is older than the window has left.
        local span = late < window and late or window
        local more = cost - muldiv(late - span, cost, late)
        local own = hard - live - level -- no more is left than the host has left itself
        more = more < own and own or more
        more = more < keep and more or keep
        local merged, i, total = {}, 0, live + more
        for j = 1, more do
            local moment = rounded(time - span + muldiv(span, j, more))
            while i < live and at(skip + i) <= moment do
                merged[#merged + 1] = struct.pack('>I4', at(skip + i) / quantum % 4294967296)
                i = i + 1
            end
            merged[#merged + 1] = struct.pack('>I4', moment / quantum % 4294967296)
        end
        for rest = i, live - 1 do
            merged[#merged + 1] = struct.pack('>I4', at(skip + rest) / quantum % 4294967296)
        end
        local from, moment = total > keep and total - keep or 0, rounded(time)
        local latest = newest > moment and newest or moment
        local fresh = struct.pack('>BBI4I8I4I4', 108, live > 0 and (skip > 0 and 1 or aged) or 0, quantum, latest, 0, total - from)
        return 0, hard - total + from, latest + window - time, 0, fresh .. table.concat(merged, '', from + 1), latest + window
    end
    local taken, code, remaining = judge(live, cost, charge, cap, hard)
    local units = taken and cost or 0
    local always = false
    if not taken and a[limit + 5] == 1 and cost > 0 then
        units, always = cost < keep and cost or keep, true
    end
    local stamp = rounded(least > time and least or time)
    local late, early = 0, 0
    if units < 0 then
        local most, taken_at = -units, rounded(time)
        while late < most and late < live and at(skip + live - 1 - late) == taken_at do
            late = late + 1
        end
        most = most - late
        while early < most and late + early < live and at(skip + early) <= taken_at do
            early = early + 1
        end
        units = -late - early
    end
    local wait, reset = 0, 0
    if code == 2 then
        local missing = live + units + cost - cap
        wait = (missing <= live and at(skip + missing - 1) or stamp) + window - time
        if wait < 0 then
            wait = 0
        end
    end
    local left = live + units
    if units > 0 and left > keep then
        left = keep
    end
    if units ~= 0 or cost < 0 then
        remaining = hard - left
    end
    if left > 0 then
        reset = (units > 0 and stamp or at(skip + live - 1 - late)) + window - time
        if reset < 0 then
            reset = 0
        end
    end
    if units == 0 then
        return code, remaining, reset, wait
    end

    local latest = newest
    if skip > 0 then
        aged = 1
        local moment = rounded(time)
        latest = moment > newest and moment or newest
    end
    local kept, added = live, ''
    if units > 0 then
        local more = units < keep and units or keep
        kept = left - more
        skip = span - kept
        latest = stamp
        if live == 0 then
            aged = 0
        end
        added = string.rep(struct.pack('>I4', stamp / quantum % 4294967296), more)
    else
        kept = live - late - early
        skip = skip + early
        if aged == 0 then
            if kept == 0 then
                return code, remaining, reset, wait, false
            end
            latest = at(skip + kept - 1)
        end
    end
    local start, count = first + skip, kept + #added / 4
    local fresh
    if full or start > 256 and start > count then
        local body = ''
        if kept > 0 then
            local begin = HEAD + 4 * start
            body = full and sub(value, begin + 1, begin + 4 * kept) or
                call('GETRANGE', name, begin, begin + 4 * kept - 1)
        end
        fresh = struct.pack('>BBI4I8I4I4', 108, aged, quantum, latest, 0, count) .. body .. added
    else
        fresh = {struct.pack('>BBI4I8I4I4', 108, aged, quantum, latest, start, count), HEAD + 4 * (start + kept), added}
    end
    return code, remaining, reset, wait, fresh, latest + window, always
end
