-- The script that decides in the store: several groups of counters in one run, each taken as a whole or not at all.
--
-- KEYS: the name of each counter, in order; with a third argument, the key of the sender after them.
-- ARGV[1]: integers in MessagePack, one after the other; if there are thousands, as an array:
--     number of limits; 7 numbers a limit (kind, cap, hard and four more, see the file of each kind);
--     then for each group: number of counters, gate (0, or the number of the group that must have passed);
--     then for each counter: the offset of its limit, kind of operation, cost; then for permits the lease (two numbers);
--     else for a refund the time of the take (negative: its age); for an exchange: the host's level, what is left of the host's
--     window (negative: it is over; algorithms other than fixed windows: how long the delta accumulated), and 1 to reseed (the
--     store may have lost deltas: minimum of server and host), or 2 if it lost deltas that each host re-sends itself; for a
--     lease: sequence number, number of the batch that was acknowledged last, host, units held, units given back.
-- ARGV[2], exchanges: this server's time when the command was sent, estimated by the sender from earlier replies; 0: unknown.
-- ARGV[3]: the number of the sender's batch, as text; ARGV[4]: that of the batch before it.
-- Reply: the server's time (8 bytes), then for each counter a code (1 byte), what remains, time to reset, time to wait (8 bytes
-- each), big-endian, in microseconds. An exchange has, instead of the time to wait, the number of the sender's batches before
-- this one that the server does not know (2^40: it does not know the sender); so has a lease, and two more numbers (8 bytes
-- each): twice the units granted, plus 1 if the units held are known; and how long the lease lasts.
--
-- Kind of operation: see enum weir__store_op_kind. COUNT (7) is charged whether or not it, or its group, passes.
--
-- Code: verdict (0 to 3) + 8 over soft + 16 taken + 32 the host's window is over + 64 it has not begun; or a negative error.
--
-- Every algorithm is a function (offset of the limit, value, time, cost, whether it is charged unconditionally, what is left of
-- the host's window or the delay, name, whether the value is complete, level) -> code, remaining, reset, wait, new value (nil:
-- unchanged, false: deleted), expiry, whether it is written even if the group is denied; or an error alone.
--
-- Functions and tables are created only when a run needs them: most runs decide a few buckets. Numbers stay below 2^53,
-- where doubles are exact.
local call, try = redis.call, redis.pcall
local byte, sub, format, tonumber = string.byte, string.sub, string.format, tonumber
local keys = KEYS
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
-- So the table is allocated at once; unpack returns some thousands of results at most.
local a = {cmsgpack.unpack(ARGV[1])}
if not a[2] then
    a = a[1]
end
-- How long exchanges were delayed, by a server or a network that stalled; 0 if by no more than a busy machine adds. A
-- stepped clock looks the same: hence the bound.
local transit = ARGV[2] and ARGV[2] + 0 or 0
transit = transit > 0 and now - transit or 0
transit = transit < 100000 and 0 or transit > 14400000000 and 14400000000 or transit
local repeated, missed, all = false, 0, 1099511627776
if ARGV[3] then
    local sender = keys[#keys]
    local last = call('GET', sender)
    repeated = last == ARGV[3]
    if not repeated then
        call('SET', sender, ARGV[3], 'PX', 14400000) -- a sync_interval is an hour at most, and one may fail
        if ARGV[4] and last ~= ARGV[4] then
            local gap = ARGV[4] - (tonumber(last or '') or -1000000)
            missed = gap > 0 and gap < 1000000 and gap % 1 == 0 and gap or all
        end
    end
end
--@state.lua
local bucket, interval, fixed, pair, parts, log, flight, enter, muldiv, judge, reserve, pays, recovered
local unwrap, wrap, lease, more
local place = 2
for _ = 1, a[1] do
    local kind = a[place]
    if not muldiv and (kind > 1 or a[place + 4] > 1 or a[place + 6] > 1) then
        --@arith.lua
    end
    if ARGV[2] and not reserve then
        --@late.lua
    end
    if kind == 1 then
        if not bucket then
            --@bucket.lua
        end
        a[place] = bucket
    elseif kind == 2 then
        if not interval then
            --@interval.lua
        end
        a[place] = interval
    elseif kind == 3 then
        if not fixed then
            --@window.lua
        end
        a[place] = fixed
    elseif kind == 4 then
        if not pair then
            --@counter.lua
        end
        a[place] = pair
    elseif kind == 5 then
        if not parts then
            --@counter_n.lua
        end
        a[place] = parts
    elseif kind == 6 then
        if not log then
            --@log.lua
        end
        a[place] = log
    else
        if not flight then
            --@flight.lua
        end
        a[place] = flight
    end
    place = place + 7
end

local counter = 0
-- The next counter, on its stored value or on what the group has not written yet.
local function evaluate(pending, others)
    counter = counter + 1
    local limit, how, cost, time = a[place], a[place + 1], a[place + 2], now
    local name, decide, charge, level, left, doubt = keys[counter], a[limit], how == 3, nil, nil, 0
    local leases
    place = place + 3
    local at = place
    if how == 8 then
        place = place + 5
        more = struct.pack('>I8I8', 0, 0)
    end
    if decide == flight then
        return flight(limit, how, cost, name, pending and pending[name])
    end
    if how == 2 then
        cost = -cost
        local at = a[place]
        if at < 0 then
            at = at + now > 0 and at + now or 0
        end
        if at < now then
            time = at
        end
        place = place + 1
    elseif how == 4 then
        charge, level, left, doubt = true, a[place], a[place + 1], a[place + 2]
        place = place + 3
        -- -1 is a window that has not begun.
        if transit > 0 and left ~= -1 then
            left = decide == fixed and left - transit or left + transit
            level = recovered(limit, decide, level)
        end
    end
    local value, whole = pending and pending[name], false
    if value == nil or not pending then
        if decide == log then
            -- A long log is not read as a whole, unless another counter of the group has its name, or an exchange is late.
            whole = others and others[name] > 1 or level and left > 0
            value = whole and try('GET', name) or try('GETRANGE', name, 0, 1045)
            value = value ~= '' and value
        else
            value = try('GET', name)
        end
    else
        whole = true
    end
    -- An error reply is a table with the field err; a text has no such field.
    if value and value.err then
        local first = try('ZRANGE', name, 0, 0)
        if first.err or not is_lease(first[1]) then
            return -43
        end
        value = false
    end
    if value and byte(value) == 76 and decide ~= log or how == 8 then
        if not lease then
            --@leases.lua
        end
        value, leases = unwrap(value, limit, decide)
        if not leases then
            return -43
        end
        if how == 8 then
            local code, remaining, reset, fresh, till, granted, lasts =
                lease(limit, decide, value, leases, cost, a[at], a[at + 1], a[at + 2], a[at + 3], a[at + 4])
            if fresh ~= nil then
                fresh, till = wrap(fresh, till, leases, limit, decide)
            end
            more = struct.pack('>I8I8', granted or 0, lasts or 0)
            return code, remaining, reset, missed, fresh, till, false, name, 0
        end
    elseif value and decide == log and byte(value) == 76 and ours(value) then
        value = false
    end
    if level then
        if repeated then
            cost = 0
        end
        if not value then
            -- An unknown counter is seeded with the host's level, and not with less than its delta: the host's counter may have
            -- recovered since. After a store reset each host re-sends its own deltas, so the level, which has all of them, is not used.
            local owed = a[limit + 2] - level
            if owed > cost and doubt < 2 and (missed == 0 or missed == all) then
                cost = owed
            end
            cost = cost > 0 and cost or 0
        end
        cost = cost < 4294967295 and cost or 4294967295
    end
    local code, remaining, reset, wait, fresh, till, always =
        decide(limit, value, time, cost, charge, left, name, whole, level)
    if level then
        if doubt == 1 and value and code >= 0 and code < 32 and remaining > level then
            -- Reseed: the minimum of server and host.
            cost = cost + remaining - level
            code, remaining, reset, wait, fresh, till = decide(limit, value, time, cost, charge, left, name, whole, level)
        end
        wait = missed
        if fresh == false and cost < 0 then
            -- Refunded to the last unit. If the key were deleted, the next host would seed it with its own level: a value of 0
            -- stays until all hosts have exchanged.
            fresh, till = format(decide == fixed and 'b%d:0' or 'w%d:0', now), now + 10000000
        end
    end
    if how == 7 and code >= 0 then
        if code % 8 > 1 and not always then
            local charged = {decide(limit, value, time, cost, true, left, name, whole, level)}
            fresh, till = charged[5], charged[6]
        end
        if leases and fresh ~= nil then
            fresh, till = wrap(fresh, till, leases, limit, decide)
        end
        return code, remaining, reset, wait, fresh, till, true, name, cost, true
    end
    if how == 1 then
        fresh = nil
    elseif how == 5 and code >= 0 then
        if leases and leases[2] then
            -- What hosts may still spend stays used.
            local units = 0
            for i = 3, #leases, 5 do
                units = units + leases[i]
            end
            local charged = {decide(limit, false, now, units, true)}
            fresh, till = wrap(charged[5] or false, charged[6], leases, limit, decide)
            return 0, charged[2], charged[3], 0, fresh, till, false, name, 0
        end
        return 0, a[limit + 2], 0, 0, false, now, false, name, 0
    end
    if leases and fresh ~= nil then
        fresh, till = wrap(fresh, till, leases, limit, decide)
    end
    return code, remaining, reset, wait, fresh, till, always, name, cost
end
local function write(name, value, till)
    if not value then
        call('DEL', name)
        return
    end
    -- Rounded up twice, since the server counts expiry from the last whole millisecond.
    local ttl = till - now
    ttl = format('%d', ttl > 0 and (ttl - ttl % 1000) / 1000 + 2 or 1)
    if enter and (value.count or value.dropped) then
        enter(name, value, ttl)
    elseif value[1] then
        call('SETRANGE', name, 0, value[1])
        if value[3] ~= '' then
            call('SETRANGE', name, value[2], value[3])
        end
        call('PEXPIRE', name, ttl)
    else
        call('PSETEX', name, ttl, value)
    end
end

local last, pack = #a, struct.pack
local out, filled, passed
if last ~= place + 4 then
    out, filled, passed = {pack('>I8', now)}, 1, {}
end
local group = 0
while place < last do
    local count, gate = a[place], a[place + 1]
    local look = gate > 0 and not (passed and passed[gate])
    place = place + 2
    group = group + 1
    if count == 1 then
        local code, remaining, reset, wait, fresh, till, always, name, cost = evaluate()
        local verdict = code % 8
        local pass = code >= 0 and verdict < 2
        if fresh ~= nil and not look and (pass or always) then
            write(name, fresh, till)
            if pass and cost > 0 then
                code = code + 16
            end
        end
        if not passed then
            return pack('>I8bi8I8I8', now, code, remaining or 0, reset or 0, wait or 0) .. (more or '')
        end
        passed[group] = pass
        filled = filled + 1
        out[filled] = pack('>bi8I8I8', code, remaining or 0, reset or 0, wait or 0)
        if more then
            filled = filled + 1
            out[filled], more = more, nil
        end
    else
        --@group.lua
    end
end
return table.concat(out)
