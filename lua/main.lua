-- The script that decides in the store: several groups of counters in one run, each taken as a whole or not at all.
--
-- KEYS: one name a counter, in order; with a second argument, the sender's own key after them.
-- ARGV[1]: a MessagePack array of whole numbers:
--     number of limits, 7 numbers a limit (kind, cap, hard and four more, see the file of each kind),
--     then for each group: number of counters, gate (0, or the number of the group that must have passed),
--     then for each counter: limit, how, cost, and for a refund its time, for an exchange level and what is left of
--     the host's window (-1: none).
-- ARGV[2]: the number of a sender's batch, as text.
-- The answer: a MessagePack array: the server's time, then for each counter a code, and if it is not negative what
-- remains, the time to reset, and with a denial or a delay the time to wait. Times are in microseconds.
--
-- Code: verdict (0 to 3) + 8 over soft + 16 taken + 32 the host's window is over + 64 it has not begun.
--
-- Every algorithm is a function (limit's place, value, time, cost, whether it is charged, what is left of the host's
-- window, name, whether the value is all there is) -> code, remaining, reset, wait, new value (nil: as it was, false:
-- none), until when it is needed, whether it is written even if the group is denied; or nil and an error. Functions are
-- made only for what a run needs. Numbers stay below 2^53, where doubles are exact.
local call, ask = redis.call, redis.pcall
local byte, sub, find, format, match = string.byte, string.sub, string.find, string.format, string.match
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local a = cmsgpack.unpack(ARGV[1])
local repeated = false
if ARGV[2] then
    local sender = KEYS[#KEYS]
    repeated = call('GET', sender) == ARGV[2]
    if not repeated then
        call('SET', sender, ARGV[2], 'PX', 3600000)
    end
end
--@arith.lua
--@state.lua
local decide = {}
local place = 2
for _ = 1, a[1] do
    local kind = a[place]
    if not decide[kind] then
        if kind == 1 then
            --@bucket.lua
        elseif kind == 2 then
            --@interval.lua
        elseif kind < 6 then
            --@window.lua
        elseif kind == 6 then
            --@counter.lua
        elseif kind == 7 then
            --@counter_n.lua
        else
            --@log.lua
        end
    end
    place = place + 7
end

local out, filled = {now}, 1
local passed, group, counter = {}, 0, 0
local names, values, untils, places, forced = {}, {}, {}, {}, {}
local last = #a
while place < last do
    local count, gate = a[place], a[place + 1]
    local look = gate > 0 and not passed[gate]
    local pass, writes = true, 0
    local pending = count > 1 and {}
    place = place + 2
    group = group + 1
    for nth = 1, count do
        counter = counter + 1
        local limit, how, cost, time = a[place], a[place + 1], a[place + 2], now
        local name, kind, charge, left, level = KEYS[counter], a[limit], how == 3, nil, nil
        place = place + 3
        if how == 2 then
            cost = -cost
            if a[place] < now then
                time = a[place]
            end
            place = place + 1
        elseif how == 4 then
            charge, level, left = true, a[place], a[place + 1]
            place = place + 2
        end
        local whole, value = false, pending and pending[name]
        if value == nil or not pending then
            if kind == 8 then
                -- A long log is not read whole, unless another counter of the group has its name.
                for i = counter - nth + 1, counter - nth + count do
                    whole = whole or i ~= counter and KEYS[i] == name
                end
                value = whole and ask('GET', name) or ask('GETRANGE', name, 0, 1045)
                value = value ~= '' and value
            else
                value = ask('GET', name)
            end
        else
            whole = true
        end
        local code, remaining, reset, wait, fresh, till, always
        if type(value) == 'table' then
            code, remaining = nil, -43
        else
            if level then
                if not value then
                    cost = a[limit + 2] - level
                    if cost < 0 then
                        cost = 0
                    end
                elseif repeated then
                    cost = 0
                end
            end
            code, remaining, reset, wait, fresh, till, always = decide[kind](limit, value, time, cost, charge, left, name,
                whole)
        end
        filled = filled + 1
        if not code then
            pass = false
            out[filled] = remaining
        else
            if how == 5 then
                code, remaining, reset, fresh = 0, a[limit + 2], 0, false
            end
            local verdict = code % 8
            if verdict > 1 then
                pass = false
            end
            if fresh ~= nil and how ~= 1 and not look then
                writes = writes + 1
                names[writes], values[writes], untils[writes] = name, fresh, till
                places[writes] = cost > 0 and how ~= 5 and filled
                forced[writes] = always and not (pending and pending[name] ~= nil)
                if pending and not always then
                    pending[name] = fresh
                end
            end
            out[filled], out[filled + 1], out[filled + 2] = code, remaining, reset
            filled = filled + 2
            if verdict == 1 or verdict == 2 then
                filled = filled + 1
                out[filled] = wait
            end
        end
    end
    passed[group] = pass
    for i = 1, writes do
        if pass or forced[i] then
            local name, value = names[i], values[i]
            if value then
                -- Rounded up twice: the server counts from a whole millisecond that has begun before.
                local ttl = untils[i] - now
                ttl = ttl > 0 and (ttl - ttl % 1000) / 1000 + 2 or 1
                if type(value) == 'table' then
                    call('SETRANGE', name, 0, value[1])
                    if value[3] ~= '' then
                        call('SETRANGE', name, value[2], value[3])
                    end
                    call('PEXPIRE', name, ttl)
                else
                    call('SET', name, value, 'PX', ttl)
                end
            else
                call('DEL', name)
            end
            if pass and places[i] then
                out[places[i]] = out[places[i]] + 16
            end
        end
    end
end
return cmsgpack.pack(out)
