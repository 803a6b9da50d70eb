-- Ledgers of what this region consumed, for other regions: docs/internals/regions.md. A part of main.lua, for exchanges
-- of rules that count in all regions.
local root = ARGV[3] and string.match(keys[#keys], '^(.*::)[^:]*:%d+$')
local state = root and call('HMGET', root .. '{regions}', 'regions', 'interval') or {}
local others = {}
for region in string.gmatch(state[1] or '', '%S+') do
    others[#others + 1] = region
end
local interval = tonumber(state[2] or '') or 0
root = (root or '') .. '{regions}'
-- Adds `units` of a counter to the ledgers, once the counter is hot: `share` units in this window and the one before it.
-- What was used before that is in its own record. `remaining`: of the counter; `ends`: of a fixed window, else 0; `owner`:
-- rule and tier. `share` nil: the units are of another region, and only those of this one are pushed. `since`: when a late
-- delta began, unless of a fixed window; it is in the field, to the second, in place of the end.
record = function(name, units, remaining, ends, share, window, owner, since)
    if not others[1] then
        return
    end
    local at = root .. ':u:' .. name
    local value = try('GET', at)
    local number, current, before, hot, pushed, length, known =
        string.match(type(value) == 'string' and value or '', '^(%d+) (%-?%d+) (%-?%d+) ([01]) (%d+) (%d+) (%x+)$')
    local wanted = ends
    if share and ends == 0 then
        wanted = (now - now % window) / window
    elseif not share and (not known or hot == '0' or ends > 0 and number + 0 ~= ends) then
        return
    end
    number, current, before = (number or 0) + 0, (current or 0) + 0, (before or 0) + 0
    hot, pushed, owner, window = hot == '1', (pushed or 0) + 0, owner or known, window or length + 0
    if share and number ~= wanted then
        local next = ends == 0 and number == wanted - 1
        local stays = next and hot and current + before >= share
        before = next and (stays or not hot) and current or 0
        number, current, hot = wanted, 0, stays
    end
    local out = hot and units or 0
    if share then
        if not hot and current + before + units >= share then
            hot, out = true, current + before + units
        end
        current = current + units
    end
    local punctual, field = owner .. format('%016d', ends) .. name, nil
    if since then
        field = owner .. format('%016d', 5000000000000000 + since - since % 1000000) .. name
    end
    local urgent = hot and remaining <= 0 and (now - pushed >= interval or now < pushed)
    pushed = urgent and now or pushed
    for _, region in ipairs(others) do
        local ledger = root .. ':to:' .. region
        local into = field or punctual
        if out ~= 0 and call('HINCRBY', ledger, into, format('%d', out)) == out and call('HLEN', ledger) > 100000 then
            call('HDEL', ledger, into)
            call('HINCRBY', root, 'dropped:' .. region, format('%d', out > 0 and out or -out))
        elseif urgent then
            call('SADD', root .. ':push:' .. region, punctual, into)
        end
    end
    if share or urgent then
        local left = ends > 0 and ends - now or 2 * window
        call('PSETEX', at, format('%d', (left > 0 and left - left % 1000 or 0) / 1000 + 2),
            format('%d %d %d %d %d %d %s', number, current, before, hot and 1 or 0, pushed, window, owner))
    end
end
