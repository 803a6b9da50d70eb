-- Looks. ARGV[1] 'find': ARGV[2] ticket; the answer: ticket, headers and body, what is told of it, or nothing.
-- 'list': state (-1: any), rule ('': any), after, how many, bytes; the answer: 1 if there may be more, and what was found.
-- 'figures': for each rule its name, waiting, under way, dead, bytes, when the oldest was accepted.
--@queue.lua
local PAGE = 256
if ARGV[1] == 'find' then
    local item = told(ARGV[2])
    return item[1] and {ARGV[2], call('GET', base .. ':p:' .. ARGV[2]) or '', item} or {}
end
local rules = call('SMEMBERS', base .. ':rules')
if ARGV[1] == 'figures' then
    local answer = {}
    table.sort(rules)
    for _, rule in ipairs(rules) do
        local figures = base .. ':r:' .. rule
        local f = call('HMGET', figures, 'waiting', 'under_way', 'dead', 'bytes', 'from')
        local oldest, from, last = nil, f[5] or 0, nil
        local lives = number(f[1] or 0) + number(f[2] or 0) > 0
        -- Dead ones may be before it: where they end is remembered.
        while lives and not oldest do
            local page = call('XRANGE', base .. ':s:' .. rule, last and next_id(last) or from, '+', 'COUNT', PAGE)
            for _, entry in ipairs(page) do
                last = entry[1]
                local hash = call('HMGET', base .. ':t:' .. entry[2][2], 's', 'a', 'q')
                if hash[1] == '0' or hash[1] == '1' then
                    oldest = hash[2]
                    call('HSET', figures, 'from', hash[3])
                    break
                end
            end
            if #page < PAGE then
                break
            end
        end
        answer[#answer + 1] = {rule, f[1] or '0', f[2] or '0', f[3] or '0', f[4] or '0', oldest or '0'}
    end
    return answer
end
local state, wanted, after, limit, most = ARGV[2], ARGV[3], ARGV[4], number(ARGV[5]), number(ARGV[6])
local found = {}
local function matches(ticket)
    local f = call('HMGET', base .. ':t:' .. ticket, 's', 'r')
    return f[1] and (state == '-1' or f[1] == state) and (wanted == '' or f[2] == wanted)
end
local function add_set(name)
    local from, count = '(' .. after, 0
    while count < limit do
        local page = call('ZRANGEBYSCORE', base .. name, from, '+inf', 'WITHSCORES', 'LIMIT', 0, PAGE)
        for i = 1, #page, 2 do
            from = '(' .. page[i + 1]
            if count < limit and matches(page[i]) then
                found[#found + 1] = {number(page[i + 1]), page[i]}
                count = count + 1
            end
        end
        if #page < 2 * PAGE then
            break
        end
    end
end
local function add_stream(rule)
    local from, count = next_id(after .. '-0'), 0
    while count < limit do
        local page = call('XRANGE', base .. ':s:' .. rule, from, '+', 'COUNT', PAGE)
        for _, entry in ipairs(page) do
            from = next_id(entry[1])
            if count < limit and matches(entry[2][2]) then
                found[#found + 1] = {number(string.match(entry[1], '^%d+')), entry[2][2]}
                count = count + 1
            end
        end
        if #page < PAGE then
            break
        end
    end
end
-- What is under way is pending, and that are few.
local function add_pending(rule)
    for _, entry in ipairs(call('XPENDING', base .. ':s:' .. rule, 'weir', next_id(after .. '-0'), '+', limit)) do
        local sequence = number(string.match(entry[1], '^%d+'))
        found[#found + 1] = {sequence, call('XRANGE', base .. ':s:' .. rule, entry[1], entry[1])[1][2][2]}
    end
end
local ended = state == '2' or state == '4'
if state == '3' then
    add_set(':dead')
elseif not ended then
    for _, rule in ipairs(rules) do
        if wanted == '' or rule == wanted then
            if state == '1' then
                add_pending(rule)
            else
                add_stream(rule)
            end
        end
    end
end
if ended or state == '-1' then
    add_set(':ended')
end
table.sort(found, function(one, other) return one[1] < other[1] end)
local answer, bytes = {0}, 0
for i = 1, math.min(limit, #found) do
    local item = told(found[i][2])
    bytes = bytes + 512 + #item[2] + #item[3] + #item[5] + #item[6]
    if bytes > most and i > 1 then
        answer[1] = 1
        break
    end
    answer[#answer + 1] = {found[i][2], '', item}
end
return answer
