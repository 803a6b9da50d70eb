-- Blocks and resets of keys that hold on all hosts: docs/internals/sync.md, "Blocks and resets".
-- All times are the server's.
-- KEYS[1]: a hash; a field is an entry, by its kind, rule and key. KEYS[2]: a sorted set of the fields by their sequence
-- numbers, which rise: microseconds, or the last one plus 1. KEYS[3]: the number of the sender's last command. KEYS[4]:
-- the open queries of lua/queries.lua, which all hosts see with this script.
-- A block has an end, and is kept until no host can have an older block of the key that ends later: so an unblocked
-- entry is kept as long as its block would have lasted.
-- ARGV: 'put', kind ('block' or 'reset'), rule, key, by, reason, host; milliseconds to its end (0: unblocks), number of
-- the command, milliseconds that an entry is kept at least, maximum number of entries. Reply: its sequence number; 1: the
-- command is a repetition; 0: no room.
-- ARGV: 'restore', the same up to the end; milliseconds that it is kept, sequence number, maximum. Writes the entry
-- unless the server has it with this number or a later one. Reply: 2: written; 1: the server has it; 0: no room, which
-- removes no other entry.
-- ARGV: 'read', sequence number, maximum. Reply: the server's last number, the number to go on from (the entries end
-- there if it is the last), a list of ids and texts of open queries, then 9 elements for each entry after the given number: its number, kind, rule, key, by,
-- reason, host, milliseconds to its end, and milliseconds that it is kept.
local call = redis.call
local entries, order, what = KEYS[1], KEYS[2], ARGV[1]
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function digits(number)
    return string.format('%.0f', number)
end
-- An entry of the hash; nil: none, or something else.
local function unpacked(value)
    local good, e = pcall(cmsgpack.unpack, value or '')
    if not good or type(e) ~= 'table' then
        return nil
    end
    for k = 1, 9 do
        if type(e[k]) ~= (k > 1 and k < 8 and 'string' or 'number') then
            return nil
        end
    end
    return e
end
local newest = tonumber(call('ZRANGE', order, -1, -1, 'WITHSCORES')[2] or 0)

if what == 'read' then
    local fields = call('ZRANGEBYSCORE', order, '(' .. ARGV[2], '+inf', 'LIMIT', 0, tonumber(ARGV[3]))
    local queries, open = call('HGETALL', KEYS[4]), {}
    for i = 1, math.min(#queries, 64), 2 do
        local good, query = pcall(cmsgpack.unpack, queries[i + 1])
        if good and type(query) == 'table' and type(query[1]) == 'number' and query[1] > now and type(query[2]) == 'string' then
            open[#open + 1] = queries[i]
            open[#open + 1] = query[2]
        end
    end
    local reply = {digits(newest), digits(newest), open}
    if #fields == 0 then
        return reply
    end
    if #fields == tonumber(ARGV[3]) then
        reply[2] = digits(tonumber(call('ZSCORE', order, fields[#fields])))
    end
    local values = call('HMGET', entries, unpack(fields))
    for i = 1, #fields do
        local e = unpacked(values[i])
        if e and e[9] > now then
            reply[#reply + 1] = digits(e[1])
            for k = 2, 7 do
                reply[#reply + 1] = e[k]
            end
            reply[#reply + 1] = math.max(e[8] - now, 0)
            reply[#reply + 1] = e[9] - now
        end
    end
    return reply
end

local kind, rule, key = ARGV[2], ARGV[3], ARGV[4]
local left, most = tonumber(ARGV[8]), tonumber(ARGV[11])
local field = kind .. '\0' .. rule .. '\0' .. key
local old = unpacked(call('HMGET', entries, field)[1])

local function remove(one)
    call('HDEL', entries, one)
    call('ZREM', order, one)
end

-- Removes those of the fields that are no longer kept; with `ended` also those whose block is over.
local function purge(fields, ended)
    for i = 1, #fields do
        local e = unpacked(call('HMGET', entries, fields[i])[1])
        if not e or e[9] <= now or (ended and e[8] <= now) then
            remove(fields[i])
        end
    end
end

local function has_room()
    for round = 1, 3 do
        if old or call('ZCARD', order) < most then
            return true
        end
        if round < 3 then
            purge(call('ZRANGE', order, 0, -1), round == 2)
        end
    end
    return false
end

local function write(sequence, keep)
    call('HSET', entries, field,
        cmsgpack.pack({sequence, kind, rule, key, ARGV[5], ARGV[6], ARGV[7], left > 0 and now + left or 0, now + keep}))
    call('ZADD', order, digits(sequence), field)
    for i = 1, 2 do
        if call('PTTL', KEYS[i]) < keep + 60000 then
            call('PEXPIRE', KEYS[i], digits(keep + 60000))
        end
    end
end

if what == 'restore' then
    local sequence = tonumber(ARGV[10])
    if old and old[1] >= sequence then
        return '1'
    end
    if not old and call('ZCARD', order) >= most then
        return '0'
    end
    write(sequence, tonumber(ARGV[9]))
    return '2'
end

if tonumber(ARGV[9]) <= tonumber(call('GET', KEYS[3]) or '0') then
    return '1'
end
purge(call('ZRANGE', order, 0, 15), false)
if not has_room() then
    return '0'
end
local keep = math.max(left, tonumber(ARGV[10]), old and old[9] - now or 0)
local sequence = math.max(now * 1000, newest + 1)
write(sequence, keep)
call('PSETEX', KEYS[3], 14400000, ARGV[9])
return digits(sequence)
