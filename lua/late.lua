-- Exchanges that come late report at once what was used in all the time `late`. Meanwhile the bucket was full and regained
-- nothing; had it been reported at once, it had. What was lost so is kept in reserve from the first late exchange on until
-- five seconds after the last: these take from it first, each no more than came back in its own `late`. So a key pays
-- for what was used beyond its limit, and for that only; and no unit of refill pays twice.
-- `kept`, `ends`: what is stored of it; `lost`: regained beyond full since the value was written, nil: there is none;
-- `back`: what comes back in the time `late`, `most`: in five seconds; `hard`: the size.
-- Returns the reserve, and until when it is kept (nil: there is none).
reserve = function(kept, ends, lost, back, most, hard, late)
    if kept and ends > now and ends <= now + 5000000 then
        local sum = kept + (lost or 0)
        kept = sum < most and sum or kept > most and kept or most
    elseif late then
        -- One that is gone has recovered; it may have been empty when that time began.
        kept = lost or back - hard
        kept = kept > back and back or kept > 0 and kept or 0
    else
        return 0
    end
    return kept, late and now + 5000000 or ends
end
-- How many of `cost` units the reserve pays. No more is left afterwards than `level`, which the host has left itself.
pays = function(kept, back, cost, remaining, level)
    local own = remaining > level and remaining - level or 0
    local paid = cost - own
    paid = paid > kept and kept or paid
    paid = paid > back and back or paid
    return paid > 0 and paid or 0
end
-- `level` is what the host had left when it sent. Meanwhile some has come back.
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
