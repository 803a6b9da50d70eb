-- Whether a value looks like one of this script.
local function ours(value)
    local first, second = byte(value, 1, 2)
    return #value == 19 and string.find(value, '^[1-5]%d+$') or string.find(value, '^[bw]%d+:%d+$') or
        string.find(value, '^b%d+:%d+:%d+:%d+$') or
        string.find(value, '^s%d+:%d+:%d+$') or first == 110 and (second or 0) > 143 and second < 222 or
        first == 108 and #value >= 22 and second < 2 or first == 76 and (second or 0) > 143 and second < 222
end
-- Whether a member of a sorted set looks like one of this script.
local function is_lease(member)
    return member and #member == 26 and not string.find(member, '[^0-9a-f]')
end
-- The value of a bucket or a fixed window: since when it counts, and how much. 19 digits that make a signed 64-bit
-- integer, which the server keeps without a string of its own: kind, microseconds modulo a power of ten, units.
--     k tttttttttttttt uuuu     kind 1 bucket, 2 window: 14 digits of time, 4 of units
--     k tttttttttttt uuuuuu     kind 4 bucket, 5 window: 12 digits of time, 6 of units
-- A value that does not fit is a letter (b, w), the time, a colon and the units.
-- A time more than three years ahead is invalid.
-- A bucket may have two more numbers after colons: units that refilled while it was full and no exchange arrived, and until when
-- they count; see late.lua.
-- Returns time and units (0, 0: none, or of another algorithm), and these two; nil: not written by this script.
local beyond = now + 100000000000000
local function stored(value, kind)
    if not value then
        return 0, 0
    end
    local since = #value == 19 and tonumber(sub(value, 1, 15))
    if since then
        local modulus, used = 100000000000000, tonumber(sub(value, 16))
        local digit = (since - since % modulus) / modulus
        if digit == kind + 3 then
            modulus, since, used = 1000000000000, tonumber(sub(value, 1, 13)), tonumber(sub(value, 14))
        elseif digit ~= kind then
            used = nil
        end
        if not since or not used then
            if ours(value) then
                return 0, 0
            end
            return nil
        end
        -- At most seven eighths of the modulus ago; what seems older is ahead: the clock was stepped back.
        local age = (now - since) % modulus
        if age >= modulus / 8 * 7 then
            age = age - modulus
        end
        -- Also for what only looks like a number.
        if age % 1 ~= 0 or used % 1 ~= 0 or used < 0 or used > 999999 then
            return nil
        end
        return now - age, used
    end
    local own = kind == 1 and 'b' or 'w'
    local letter, used, spare, ends
    letter, since, used = string.match(value, '^(%l)(%d+):(%d+)$')
    if not letter then
        letter, since, used, spare, ends = string.match(value, '^(b)(%d+):(%d+):(%d+):(%d+)$')
    end
    if letter == own and #used < 11 and since + 0 < beyond then
        return since + 0, used + 0, tonumber(spare), tonumber(ends)
    elseif letter ~= own and ours(value) then
        return 0, 0
    end
    return nil
end
-- The value for it, when it is needed no longer than until `till`.
local function packed(kind, since, used, till)
    local span = till - since
    if used < 10000 and span < 80000000000000 and since - now < 10000000000000 then
        return format('%015d%04d', kind * 100000000000000 + since % 100000000000000, used)
    elseif used < 1000000 and span < 800000000000 and since - now < 100000000000 then
        return format('%013d%06d', (kind + 3) * 1000000000000 + since % 1000000000000, used)
    end
    return format('%s%d:%d', kind == 1 and 'b' or 'w', since, used)
end
