-- b * d / c rounded down, and whether something is left; exact for c below 2^45 and d below 2^35, also when the product
-- is beyond what a double holds: then d goes through a long division seven bits at a time. Beyond 2^52 the result
-- is a lower bound.
muldiv = function(b, d, c)
    local product = b * d
    if product < 9007199254740992 then
        local rest = product % c
        return (product - rest) / c, rest > 0
    end
    local part = b % c
    local quotient = (b - part) / c * d
    if quotient > 4503599627370496 then
        return quotient, false
    end
    local rest, low, scale = 0, 0, 268435456
    for _ = 1, 5 do
        local digit = (d - d % scale) / scale
        d = d - digit * scale
        scale = scale / 128
        local n = rest * 128 + part * digit
        rest = n % c
        low = low * 128 + (n - rest) / c
    end
    return quotient + low, rest > 0
end
-- Whether it is taken, code and what remains.
judge = function(in_use, cost, charge, cap, hard)
    if in_use + cost <= cap or cost < 0 or charge then
        local after = in_use + cost
        if after < 0 then
            after = 0
        end
        return true, cost > 0 and after > hard and 8 or 0, hard - after
    end
    return false, cost > cap and 3 or 2, hard - in_use
end
