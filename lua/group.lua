-- A group of several counters. Each sees what those before it would have written; that is written if all pass.
local pending, others, results, pass = {}, {}, {}, true
for i = counter + 1, counter + count do
    others[keys[i]] = (others[keys[i]] or 0) + 1
end
for i = 1, count do
    local r = {evaluate(pending, others)}
    results[i] = r
    pass = pass and r[1] >= 0 and r[1] % 8 < 2
    if r[5] ~= nil then
        -- A denied request is logged alone, without what the group does not take after all.
        r[7] = r[10] or (r[7] and pending[r[8]] == nil)
        if r[10] or not r[7] then
            pending[r[8]] = r[5]
        end
    end
end
passed[group] = pass
for i = 1, count do
    local r = results[i]
    if r[5] ~= nil and not look and (pass or r[7]) then
        write(r[8], r[5], r[6])
        if pass and r[9] > 0 then
            r[1] = r[1] + 16
        end
    end
    filled = filled + 1
    out[filled] = pack('>bi8I8I8', r[1], r[2] or 0, r[3] or 0, r[4] or 0)
end
