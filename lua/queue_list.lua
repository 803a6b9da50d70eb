-- Find, list, stats. ARGV[1] 'find': ARGV[2] ticket. Reply: 0; then the request (item_of), if there is one.
-- 'list': state (-1: any), rule ('': any), after, maximum number, maximum bytes. Reply: the sequence to
-- continue after, or 0 at the end; then the requests.
-- 'stats': stats. Reply: 1 if another call is needed to find all ages; then for each rule its name, waiting, under way,
-- dead, bytes, accepted time of the oldest.
--@queue.lua
-- Entries scanned by one call, which blocks the server.
local SCANNED_MAX = 1000
if ARGV[1] == 'find' then
    local item = item_of(ARGV[2], call('GET', base .. ':p:' .. ARGV[2]) or '')
    return item[SEQUENCE] and {0, item} or {0}
end
local function share_of(sources)
    return math.max(math.floor(SCANNED_MAX / sources), 16)
end
local function sequence_of(id)
    return string.match(id, '^%d+')
end
local rules = call('SMEMBERS', base .. ':rules')
if ARGV[1] == 'stats' then
    local reply, share = {0}, share_of(#rules + 1)
    table.sort(rules)
    for _, rule in ipairs(rules) do
        local stats = base .. ':r:' .. rule
        local f = call('HMGET', stats, 'waiting', 'under_way', 'dead', 'bytes', 'from')
        local lives = number(f[1] or 0) + number(f[2] or 0) > 0
        local page = lives and call('XRANGE', base .. ':s:' .. rule, f[5] or '-', '+', 'COUNT', share) or {}
        local oldest, from
        -- Dead requests may precede it: remembers where the search ended.
        for _, entry in ipairs(page) do
            local hash = call('HMGET', base .. ':t:' .. entry[2][2], 's', 'a')
            from = sequence_of(entry[1])
            if hash[1] == '0' or hash[1] == '1' then
                oldest = hash[2]
                break
            end
        end
        if from and from ~= f[5] then
            call('HSET', stats, 'from', from)
        end
        if not oldest and #page == share then
            reply[1] = 1
        end
        reply[#reply + 1] = {rule, f[1] or '0', f[2] or '0', f[3] or '0', f[4] or '0', oldest or '0'}
    end
    return reply
end
local state, wanted, after, limit, most = ARGV[2], ARGV[3], ARGV[4], number(ARGV[5]), number(ARGV[6])
local ended = state == '2' or state == '4'
local streams = {}
for _, rule in ipairs(rules) do
    if state ~= '3' and not ended and (wanted == '' or rule == wanted) then
        streams[#streams + 1] = rule
    end
end
-- How many entries of each source are scanned; and the sequence up to which all sources were.
local share, edge = share_of(#streams + 1), FOREVER
local found = {}
local function matches(ticket)
    local f = call('HMGET', base .. ':t:' .. ticket, 's', 'r')
    return f[1] and (state == '-1' or f[1] == state) and (wanted == '' or f[2] == wanted)
end
-- Adds the next entries {sequence, ticket} of a source.
local function add(entries)
    local count = 0
    for _, entry in ipairs(entries) do
        if count == limit then
            return
        end
        if matches(entry[2]) then
            found[#found + 1] = entry
            count = count + 1
        end
    end
    if #entries == share and count < limit then
        edge = math.min(edge, entries[share][1])
    end
end
local function in_set(name)
    local entries = {}
    local page = call('ZRANGEBYSCORE', base .. name, '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0, share)
    for i = 1, #page, 2 do
        entries[#entries + 1] = {number(page[i + 1]), page[i]}
    end
    return entries
end
local function in_stream(rule)
    local entries = {}
    for _, entry in ipairs(call('XRANGE', base .. ':s:' .. rule, next_id(after .. '-0'), '+', 'COUNT', share)) do
        entries[#entries + 1] = {number(sequence_of(entry[1])), entry[2][2]}
    end
    return entries
end
-- Under-way requests are the pending ones: few.
local function pending(rule)
    local entries = {}
    for _, entry in ipairs(call('XPENDING', base .. ':s:' .. rule, 'weir', next_id(after .. '-0'), '+', share)) do
        local sequence = number(sequence_of(entry[1]))
        local kept = call('XRANGE', base .. ':s:' .. rule, entry[1], entry[1])[1]
        entries[#entries + 1] = {sequence, kept and kept[2][2] or ''} -- removed from outside: no ticket matches
    end
    return entries
end
for _, rule in ipairs(streams) do
    add(state == '1' and pending(rule) or in_stream(rule))
end
if state == '3' then
    add(in_set(':dead'))
elseif ended or state == '-1' then
    add(in_set(':ended'))
end
table.sort(found, function(one, other) return one[1] < other[1] end)
local reply, bytes = {edge < FOREVER and edge or 0}, 0
for i = 1, math.min(limit, #found) do
    if found[i][1] > edge then
        break
    end
    local item = item_of(found[i][2], '')
    bytes = bytes + 512 + #item[4] + #item[5] + #item[6] + #item[7]
    if bytes > most and i > 1 then
        reply[1] = found[i - 1][1]
        break
    end
    reply[#reply + 1] = item
end
return reply
