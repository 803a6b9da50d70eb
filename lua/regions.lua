-- Regions: docs/internals/regions.md. Elects one agent of a region, and moves units out of the region's ledgers, which
-- lua/region.lua fills. All times are the server's, in microseconds.
-- KEYS[1]: the hash of the region's state; the other keys begin with its name.
-- ARGV: 'elect', agent, its host, region, the others, their interval, identity if there is none yet, last known term.
-- Reply: 1: elected, 0: another agent is, -1: the store is another region's; the term; the identity; the elected agent's host,
-- or the region's name; if it is elected, then for each other region the counters that wait, for how long, and units dropped.
-- ARGV: 'leave', agent.
-- ARGV: 'take', agent, term, other region, maximum of counters, 1 for all counters or 0 for exhausted ones, number of the last
-- batch that the agent knows. Reply: 0: not elected; or the term; whether more may wait that this call asks for; number of the
-- batch, or 0: there is none; sender; age; the server's time; then for each counter its field and units.
-- ARGV: 'done', agent, term, other region, number, how many earlier batches are unknown there; then for counters that took
-- nothing 'keep' or 'drop' and the field. Reply: 1; 0: not elected, or it was done before.
-- ARGV: 'meet', expected name, own name, own identity: at another region's store. Reply: 1; 0: it has no agent; -1: it is
-- another region's, and its name; -2: another region of this name sends to it.
local call, format = redis.call, string.format
local root, what, agent = KEYS[1], ARGV[1], ARGV[2]
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local LEASE, NAMED, ABSENT, KEPT, ALL, PAGE, LATE = 1500, 10000, 86400000, 16, 1099511627776, 64, 5000000000000000
local function digits(number)
    return format('%.0f', number)
end
local function words(text)
    return string.match(text or '', '^(%S+) (.*)$')
end
-- Whether a field of a ledger is one of lua/region.lua: rule and tier, a time (from LATE on: of a late delta, plus LATE; else
-- the end of the window, or 0), the counter's name.
local function is_counter(field)
    return type(field) == 'string' and #field > 42 and not string.find(string.sub(field, 1, 26), '[^0-9a-f]') and
        not string.find(string.sub(field, 27, 42), '%D')
end
-- A batch; nil: none, or something else.
local function unpacked(value)
    local good, batch = pcall(cmsgpack.unpack, value or '')
    if not good or type(batch) ~= 'table' or type(batch.counters) ~= 'table' or type(batch.number) ~= 'number' or
        type(batch.since) ~= 'number' or type(batch.sender) ~= 'string' then
        return nil
    end
    for i = 1, #batch.counters, 2 do
        if not is_counter(batch.counters[i]) or type(batch.counters[i + 1]) ~= 'number' then
            return nil
        end
    end
    return batch
end

if what == 'meet' then
    local name, identity = words(call('GET', root .. ':name'))
    local from = root .. ':from:' .. ARGV[3]
    if not name then
        return {0}
    elseif name ~= agent or identity == ARGV[4] then
        return {-1, name}
    end
    local sender = call('GET', from)
    if sender and sender ~= ARGV[4] then
        return {-2, ''}
    end
    call('PSETEX', from, NAMED, ARGV[4])
    return {1, name}
end

local leader, host = words(call('GET', root .. ':leader'))
if what == 'leave' then
    return leader == agent and call('DEL', root .. ':leader') or 0
end

if what == 'elect' then
    local state = call('HMGET', root, 'identity', 'term', 'regions', 'interval')
    local identity, term, regions = state[1] or ARGV[7], tonumber(state[2] or '0'), ARGV[5]
    local name = words(call('GET', root .. ':name'))
    if name and name ~= ARGV[4] then
        return {-1, 0, identity, name}
    end
    local elected = not leader or leader == agent
    if elected then
        -- A store that was set back must not repeat a term.
        if not leader or term < tonumber(ARGV[8]) then
            term = math.max(term, tonumber(ARGV[8]), (now - now % 1000) / 1000 - 1) + 1
        end
        -- A region that is no longer listed may have been left out by mistake, or on one host: its ledger stays for a day.
        local before = state[3] or ''
        for region in string.gmatch(before ~= regions and before .. ' ' .. regions or '', '%S+') do
            local function has(list)
                return string.find(' ' .. list .. ' ', ' ' .. region .. ' ', 1, true)
            end
            local ledger, push, sent = root .. ':to:' .. region, root .. ':push:' .. region, root .. ':sent:' .. region
            if not has(regions) then
                call('PEXPIRE', ledger, ABSENT)
                call('PEXPIRE', push, ABSENT)
                call('PEXPIRE', sent, ABSENT)
            elseif not has(before) then
                local kept = call('PERSIST', ledger) + call('PERSIST', push) + call('PERSIST', sent)
                if kept == 0 then
                    call('HDEL', root, 'since:' .. region, 'begun:' .. region, 'cursor:' .. region)
                end
            end
        end
        host = ARGV[3]
        call('PSETEX', root .. ':leader', LEASE, agent .. ' ' .. host)
        call('PSETEX', root .. ':name', NAMED, ARGV[4] .. ' ' .. identity)
        call('HMSET', root, 'identity', identity, 'term', digits(term), 'regions', regions, 'interval', ARGV[6])
    end
    local reply = {elected and 1 or 0, digits(term), identity, host}
    for region in string.gmatch(elected and regions or '', '%S+') do
        local batch = unpacked(call('GET', root .. ':sent:' .. region))
        call('HSETNX', root, 'begun:' .. region, digits(now))
        local f = call('HMGET', root, 'begun:' .. region, 'dropped:' .. region)
        local waiting = call('HLEN', root .. ':to:' .. region) + (batch and #batch.counters / 2 or 0)
        local since = tonumber(f[1]) or now
        reply[#reply + 1] = waiting
        reply[#reply + 1] = waiting > 0 and now > since and digits(now - since) or '0'
        reply[#reply + 1] = f[2] or '0'
    end
    return reply
end

local term, region = ARGV[3], ARGV[4]
local state = call('HMGET', root, 'term', 'identity', 'batch:' .. region, 'since:' .. region, 'cursor:' .. region,
    'begun:' .. region)
if leader ~= agent or state[1] ~= term then
    return {'0'}
end
local ledger, push, sent = root .. ':to:' .. region, root .. ':push:' .. region, root .. ':sent:' .. region
local batch = unpacked(call('GET', sent))
local function add(counter, units)
    call('HINCRBY', ledger, counter, digits(units))
end

if what == 'done' then
    if not batch or digits(batch.number) ~= ARGV[5] then
        return {'0'}
    end
    local returned, counters = {}, {}
    for i = 7, #ARGV, 2 do
        returned[ARGV[i + 1]] = ARGV[i]
    end
    for i = 1, #batch.counters, 2 do
        local counter, units = batch.counters[i], batch.counters[i + 1]
        if returned[counter] == 'keep' then
            add(counter, units)
        elseif returned[counter] then
            call('HINCRBY', root, 'dropped:' .. region, digits(math.abs(units)))
        else
            counters[#counters + 1] = counter
            counters[#counters + 1] = units
        end
    end
    -- The other store was set back: it lacks batches before this one.
    local missed, acked = tonumber(ARGV[6]), root .. ':acked:' .. region
    for _, value in ipairs(missed > 0 and missed < ALL and call('LRANGE', acked, 0, -1) or {}) do
        local old = unpacked(value)
        if old and old.sender == batch.sender and old.number >= batch.number - missed then
            for i = 1, #old.counters, 2 do
                add(old.counters[i], old.counters[i + 1])
            end
        end
    end
    if missed > 0 then
        call('DEL', acked)
    end
    batch.counters = counters
    call('RPUSH', acked, cmsgpack.pack(batch))
    call('LTRIM', acked, -KEPT, -1)
    call('PEXPIRE', acked, 60000)
    call('DEL', sent)
    return {'1'}
end

-- Takes a batch.
local sender = 'r' .. state[2] .. '-' .. term
local mine, number = words(state[3])
number = mine == term and tonumber(number) or 0
if number < tonumber(ARGV[7]) then
    -- The store was set back: this term has sent other batches with the next numbers, and one that seems to be in flight
    -- was acknowledged.
    if batch and batch.sender == sender then
        call('DEL', sent)
    end
    call('HSET', root, 'term', digits(math.max(tonumber(term), (now - now % 1000) / 1000) + 1))
    return {'0'}
end
local all, most, cursor = ARGV[6] == '1', tonumber(ARGV[5]), state[5]
if not batch then
    local counters, punctual, room, begun = {}, {}, most, tonumber(state[6] or '') or now
    local since = tonumber(state[4] or '') or begun
    -- A scan begins. What it finds came after the scan before it began, which has found all that waited then.
    if all and not cursor then
        since = begun
        call('HMSET', root, 'since:' .. region, digits(begun), 'begun:' .. region, digits(now))
    end
    local function take(counter)
        local units, ends = tonumber(call('HGET', ledger, counter) or '0'), 0
        room = room - 1
        call('HDEL', ledger, counter)
        if is_counter(counter) then
            ends = string.sub(counter, 27, 42) + 0
        else
            units = 0
        end
        if units and units ~= 0 and (ends == 0 or ends > now) then
            -- Late units first: the other store forgives none to a counter that was just used.
            local into = ends < LATE and punctual or counters
            into[#into + 1] = counter
            into[#into + 1] = units
        end
    end
    -- Exhausted counters first, and at most half of a batch of all: the scan goes on however many there are.
    for _, counter in ipairs(call('SPOP', push, all and (most - most % 2) / 2 or most)) do
        take(counter)
    end
    -- The scan continues where the batch before ended. A page that does not fit is read again by the next batch, which has
    -- room for it.
    while all and room > 0 do
        local page = call('HSCAN', ledger, cursor or '0', 'COUNT', PAGE)
        local fits = #page[2] / 2 <= room
        for i = 1, fits and #page[2] or 2 * room, 2 do
            take(page[2][i])
            call('SREM', push, page[2][i])
        end
        cursor = fits and page[1] or cursor or '0'
        if fits and cursor == '0' then
            cursor = false
            break
        end
    end
    if cursor then
        call('HSET', root, 'cursor:' .. region, cursor)
    elseif all then
        call('HDEL', root, 'cursor:' .. region)
    end
    for i = 1, #punctual do
        counters[#counters + 1] = punctual[i]
    end
    if counters[1] then
        batch = {sender = sender, number = number + 1, since = since, counters = counters}
        call('HSET', root, 'batch:' .. region, term .. ' ' .. digits(batch.number))
        call('SET', sent, cmsgpack.pack(batch))
    end
end
local reply = {term, (all and cursor or call('SCARD', push) > 0) and '1' or '0', '0'}
if not batch then
    return reply
end
reply[3], reply[4], reply[6] = digits(batch.number), batch.sender, digits(now)
reply[5] = digits(now > batch.since and now - batch.since or 0)
for i = 1, #batch.counters, 2 do
    reply[#reply + 1] = batch.counters[i]
    reply[#reply + 1] = digits(batch.counters[i + 1])
end
return reply
