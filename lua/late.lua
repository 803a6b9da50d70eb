-- A late exchange reports at once what was used over the time `late`. Meanwhile the bucket was full, and refill was lost that
-- would have been used if each use had been reported at once. Lost refill is kept in reserve, from the first late exchange until
-- five seconds after the last: these take from it first, each at most what refills in its own `late`. So a key pays for what was
-- used beyond its limit, and only for that; and no unit of refill counts twice.
-- `kept`, `ends`: the stored reserve; `lost`: refill beyond full since the value was written, nil: none;
-- `back`: refill in the time `late`, `most`: in five seconds; `hard`: the capacity.
-- Returns the reserve, and until when it is kept (nil: none).
reserve = function(kept, ends, lost, back, most, hard, late)
    if kept and ends > now and ends <= now + 5000000 then
        local sum = kept + (lost or 0)
        kept = sum < most and sum or kept > most and kept or most
    elseif late then
        -- A counter that expired has recovered; it may have been empty when that time began.
        kept = lost or back - hard
        kept = kept > back and back or kept > 0 and kept or 0
    else
        return 0
    end
    return kept, late and now + 5000000 or ends
end
-- How many of `cost` units the reserve covers. Afterwards no more remains than `level`, the host's own.
pays = function(kept, back, cost, remaining, level)
    local own = remaining > level and remaining - level or 0
    local paid = cost - own
    paid = paid > kept and kept or paid
    paid = paid > back and back or paid
    return paid > 0 and paid or 0
end
-- `level`: what remained at the host when it sent. Units have refilled since.
recovered = function(limit, decide, level)
    local used, p, q = a[limit + 2] - level, a[limit + 3], a[limit + 4]
    if used <= 0 or decide == fixed then
        return level
    elseif decide == bucket or decide == interval then
        used = used - (q > 1 and muldiv(transit, q, p) or (transit - transit % p) / p)
    else
        local whole = decide == log and p or decide == pair and 2 * p or p * q
        used = transit < whole and used - muldiv(transit, used, whole) or 0
    end
    return used > 0 and a[limit + 2] - used or a[limit + 2]
end
