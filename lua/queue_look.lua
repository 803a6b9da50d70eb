-- Looks. ARGV[1] 'find': ARGV[2] ticket; the answer: ticket, headers and body, what is told of it, or nothing.
-- 'list': state (-1: any), rule ('': any), after, how many, bytes; the answer: after which one to go on, or 0 if that was
-- all, and what was found.
-- 'figures': the answer: 1 if there is more to look at before all is known, and for each rule its name, waiting, under way,
-- dead, bytes, when the oldest was accepted.
--@queue.lua
-- At once, as the server does nothing else meanwhile.
local LOOKS = 1000
if ARGV[1] == 'find' then
    local item = told(ARGV[2])
    return item[1] and {ARGV[2], call('GET', base .. ':p:' .. ARGV[2]) or '', item} or {}
end
local function share_of(sources)
    return math.max(math.floor(LOOKS / sources), 16)
end
local function sequence_of(id)
    return string.match(id, '^%d+')
end
local rules = call('SMEMBERS', base .. ':rules')
if ARGV[1] == 'figures' then
    local answer, share = {0}, share_of(#rules + 1)
    table.sort(rules)
    for _, rule in ipairs(rules) do
        local figures = base .. ':r:' .. rule
        local f = call('HMGET', figures, 'waiting', 'under_way', 'dead', 'bytes', 'from')
        local lives = number(f[1] or 0) + number(f[2] or 0) > 0
        local page = lives and call('XRANGE', base .. ':s:' .. rule, f[5] or '-', '+', 'COUNT', share) or {}
        local oldest, from
        -- Dead ones may be before it: where they end is remembered.
        for _, entry in ipairs(page) do
            local hash = call('HMGET', base .. ':t:' .. entry[2][2], 's', 'a')
            from = sequence_of(entry[1])
            if hash[1] == '0' or hash[1] == '1' then
                oldest = hash[2]
                break
            end
        end
        if from and from ~= f[5] then
            call('HSET', figures, 'from', from)
        end
        if not oldest and #page == share then
            answer[1] = 1
        end
        answer[#answer + 1] = {rule, f[1] or '0', f[2] or '0', f[3] or '0', f[4] or '0', oldest or '0'}
    end
    return answer
end
local state, wanted, after, limit, most = ARGV[2], ARGV[3], ARGV[4], number(ARGV[5]), number(ARGV[6])
local ended = state == '2' or state == '4'
local streams = {}
for _, rule in ipairs(rules) do
    if state ~= '3' and not ended and (wanted == '' or rule == wanted) then
        streams[#streams + 1] = rule
    end
end
-- How much of each source is looked at; and up to where all of them were.
local share, edge = share_of(#streams + 1), FOREVER
local found = {}
local function matches(ticket)
    local f = call('HMGET', base .. ':t:' .. ticket, 's', 'r')
    return f[1] and (state == '-1' or f[1] == state) and (wanted == '' or f[2] == wanted)
end
-- What one source has next: each a sequence and a ticket.
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
-- What is under way is pending, and that are few.
local function pending(rule)
    local entries = {}
    for _, entry in ipairs(call('XPENDING', base .. ':s:' .. rule, 'weir', next_id(after .. '-0'), '+', share)) do
        local sequence = number(sequence_of(entry[1]))
        local kept = call('XRANGE', base .. ':s:' .. rule, entry[1], entry[1])[1]
        entries[#entries + 1] = {sequence, kept and kept[2][2] or ''} -- somebody else removed it: no ticket matches
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
local answer, bytes = {edge < FOREVER and edge or 0}, 0
for i = 1, math.min(limit, #found) do
    if found[i][1] > edge then
        break
    end
    local item = told(found[i][2])
    bytes = bytes + 512 + #item[2] + #item[3] + #item[5] + #item[6]
    if bytes > most and i > 1 then
        answer[1] = found[i - 1][1]
        break
    end
    answer[#answer + 1] = {found[i][2], '', item}
end
return answer
