-- The usual token bucket of a rate limiter on Redis: what `./dev bench core` compares weir with.
-- KEYS[1]: the bucket. ARGV: tokens a second, bucket size, cost. Returns {1 if it passes, tokens left}.
local rate = tonumber(ARGV[1])
local burst = tonumber(ARGV[2])
local cost = tonumber(ARGV[3])

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000

local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'ts')
local tokens = tonumber(bucket[1]) or burst
local ts = tonumber(bucket[2]) or now

tokens = math.min(burst, tokens + math.max(0, now - ts) * rate)
local allowed = tokens >= cost
if allowed then
    tokens = tokens - cost
end

redis.call('HMSET', KEYS[1], 'tokens', tokens, 'ts', now)
redis.call('EXPIRE', KEYS[1], math.ceil(burst / rate) * 2)
return {allowed and 1 or 0, math.floor(tokens)}
