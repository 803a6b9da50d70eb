-- Leases of units: docs/internals/leases.md. The value of a counter that hosts have leased units of: L, and a MessagePack
-- array: the counter's own value (empty: none), then five numbers for each lease: host (0: no longer known), units, last
-- grant (twice the units, plus 1 if the units held before it were known), sequence number, expiry; and at last which window
-- the units were charged in, two numbers. An expired lease is kept for LIFE, for its sequence number alone.
local LIFE, AHEAD, HOSTS = 5000000, 4000000, 64
-- Units that refill in a time; buckets only.
local function refilled(limit, decide, time)
    local p, q = a[limit + 3], a[limit + 4]
    if time <= 0 then
        return 0
    elseif decide == interval then
        return (time - time % p) / p * q
    end
    return q > 1 and muldiv(time, q, p) or (time - time % p) / p
end
-- The sum of the units of leases that end at `from` or later.
local function units_on_record(leases, from)
    local sum = 0
    for i = 3, #leases, 5 do
        sum = leases[i + 3] >= from and sum + leases[i] or sum
    end
    return sum
end
-- The window, or part of it, that units are charged in now: its end, and its kind and length. 0, 0: a bucket.
local function window_of(value, limit, decide)
    local length, kind = a[limit + 3], a[limit + 4]
    if decide == fixed then
        local _, _, _, wait = decide(limit, value, now, 0, false)
        return wait and now + wait or 0, kind > 1 and 1 or length * 256 + kind -- of the calendar: several lengths
    elseif decide == pair or decide == parts then
        return now - now % length + length, length * 256 + (decide == pair and 2 or kind)
    end
    return 0, 0
end
-- Returns the counter's own value as of now, and the array of those leases that are kept; nil, nil: not written by this
-- script. Units on record do not recover: a bucket's use is the largest of what it was, less the refill since; of what was
-- on record until some lease expired, less the refill since then; and of what is on record now. Units that were charged in
-- another window and have not expired are of another version of the rule: they are charged in this one.
unwrap = function(value, limit, decide)
    local leases, charged_kind, charged_end = {''}
    if value and byte(value) == 76 then
        local good
        good, leases = pcall(cmsgpack.unpack, sub(value, 2))
        if not good or type(leases) ~= 'table' or #leases % 5 ~= 3 or #leases > 5 * HOSTS + 8 or
            type(leases[1]) ~= 'string' then
            return nil, nil
        end
        for i = 2, #leases do
            if type(leases[i]) ~= 'number' or leases[i] < 0 or leases[i] % 1 ~= 0 then
                return nil, nil
            end
        end
        value = leases[1] ~= '' and leases[1]
        charged_kind, charged_end = table.remove(leases), table.remove(leases)
    end
    local kept = {''}
    for i = 2, #leases, 5 do
        -- Further ahead than any lease: the clock was stepped back.
        if leases[i + 4] > now + LIFE then
            leases[i + 4] = now + LIFE
        end
    end
    if decide == bucket or decide == interval then
        local since, used = stored(value, 1)
        if not since then
            return nil, nil
        end
        local rest = used - refilled(limit, decide, now - since)
        for i = 2, #leases + 1, 5 do
            local at = leases[i + 4] and leases[i + 4] < now and leases[i + 4] or now
            local units = units_on_record(leases, at) -- also of what ends just now
            local left = units - refilled(limit, decide, now - at)
            if left > 0 and (left > rest or left == rest and at > since) then
                since, used, rest = at, units, left
                value = format('b%d:%d', since, used)
            end
        end
    end
    for i = 2, #leases, 5 do
        if leases[i + 4] <= now then
            leases[i + 1] = 0
        end
        if leases[i + 4] > now - LIFE and (leases[i] > 0 or leases[i + 1] > 0) then
            for k = i, i + 4 do
                kept[#kept + 1] = leases[k]
            end
        end
    end
    local units = units_on_record(kept, now + 1)
    local ends, kind = 0, 0
    if units > 0 then
        ends, kind = window_of(value, limit, decide)
    end
    if ends > 0 and (ends ~= charged_end or kind ~= charged_kind) then
        -- What a refund would take away is counted here already: a window that became longer has the shorter one's units.
        local _, left = decide(limit, value, now, 0, false)
        local _, refunded = decide(limit, value, now, -units, true)
        local _, _, _, _, charged = decide(limit, value, now, units + left - refunded, true)
        value = charged or value
    end
    return value, kept
end
-- The value of a counter with leases, and until when it is needed.
wrap = function(value, till, leases, limit, decide)
    if not leases[2] then
        return value, till
    end
    local last, units = 0, 0
    for i = 2, #leases, 5 do
        last = leases[i + 4] > last and leases[i + 4] or last
        units = units + leases[i + 1]
    end
    local needed = last + LIFE
    if units > 0 and (decide == bucket or decide == interval) then
        local recovery = last + (units / a[limit + 4] + 1) * a[limit + 3] + 1
        recovery = recovery < now + 281474976710656 and recovery - recovery % 1 or now + 281474976710656
        needed = recovery > needed and recovery or needed
    end
    leases[1] = value or ''
    leases[#leases + 1], leases[#leases + 2] = window_of(value, limit, decide)
    return 'L' .. cmsgpack.pack(leases), till and till > needed and till or needed
end
-- Reports what a host holds and gives back, and grants it at most `want`. Returns code, remaining, reset, the counter's own
-- value and until when it is needed (nil, nil: nothing is to be written), and the reply's two more numbers.
lease = function(limit, decide, value, leases, want, sequence, previous, host, held, give)
    local code, remaining, reset, wait = decide(limit, value, now, 0, false)
    if code < 0 then
        return code
    end
    local own, hosts, anonymous = nil, 1, nil
    for i = 2, #leases, 5 do
        if leases[i] == host then
            own = i
        elseif leases[i] == 0 then
            anonymous = i
        elseif leases[i + 1] > 0 then
            hosts = hosts + 1
        end
    end
    if own and sequence <= leases[own + 3] then
        local lasts = leases[own + 4] - now
        if sequence < leases[own + 3] or lasts <= 0 then
            return 0, remaining, reset, nil, nil, 0, 0
        end
        return 0, remaining, reset, nil, nil, leases[own + 2], lasts
    elseif transit >= LIFE / 2 or not own and #leases >= 5 * HOSTS then
        -- Too old to be sure that it is the last one, or too many hosts.
        return 0, remaining, reset, nil, nil, 0, 0
    end
    local known = own and previous > 0 and leases[own + 4] > now and
        (leases[own + 3] - leases[own + 3] % 4096) / 4096 % 8388608 == previous
    if not known then
        held, give = 0, 0
        if own and leases[own + 1] > 0 then
            -- They may still be spent until they expire.
            if anonymous then
                leases[anonymous + 1] = leases[anonymous + 1] + leases[own + 1]
                leases[anonymous + 4] = math.max(leases[anonymous + 4], leases[own + 4])
            else
                for k, number in ipairs({0, leases[own + 1], 0, 0, leases[own + 4]}) do
                    leases[#leases + 1] = number
                end
            end
        end
    end
    local lasts = decide == fixed and wait or (decide == pair or decide == parts) and a[limit + 3] - now % a[limit + 3] or LIFE
    lasts = lasts < LIFE and lasts or LIFE
    local share = remaining + give
    share = share > 0 and (share - share % (2 * hosts)) / (2 * hosts) or 0
    local granted = want < share and want or share
    if lasts < AHEAD then
        granted = granted * lasts
        granted = (granted - granted % AHEAD) / AHEAD
    end
    local fresh, till = value, now + reset
    if granted ~= give then
        local changed, ends
        code, remaining, reset, wait, changed, ends = decide(limit, value, now, granted - give, true)
        if changed ~= nil then
            fresh, till = changed, ends
        end
    end
    if not own then
        own = #leases + 1
    end
    leases[own], leases[own + 1], leases[own + 2] = host, held + granted, granted * 2 + (known and 1 or 0)
    leases[own + 3], leases[own + 4] = sequence, now + lasts
    return 0, remaining, reset, fresh, till, leases[own + 2], lasts
end
