-- The other usual token bucket: a key for the tokens and one for the time, each with an expiry, as Spring Cloud Gateway
-- and many after it have them. What `./dev bench store` compares weir's memory with, beside token_bucket.lua.
-- KEYS: the tokens, the time of the last request. ARGV: tokens a second, bucket size, cost. Returns as the other does.
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local now = tonumber(redis.call('TIME')[1])
local tokens = tonumber(redis.call('GET', KEYS[1])) or burst
local last = tonumber(redis.call('GET', KEYS[2])) or now

tokens = math.min(burst, tokens + math.max(0, now - last) * rate)
local allowed = tokens >= cost
if allowed then
    tokens = tokens - cost
end

local keep = math.ceil(burst / rate) * 2
redis.call('SETEX', KEYS[1], keep, tokens)
redis.call('SETEX', KEYS[2], keep, now)
return {allowed and 1 or 0, math.floor(tokens)}
