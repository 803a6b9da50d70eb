-- Who is there: all hosts that share the store, in one hash. A field is a host; its value the server's time in
-- milliseconds, a space, and what the host tells of itself, which is nobody's business here.
-- KEYS[1]: the hash. ARGV: the host; what it tells, or nothing: it leaves; after how many milliseconds a host is forgotten;
-- how many there may be; 1: who else is there?
-- The answer: how many there are; then for each the host, how long ago in milliseconds it told, and what.
local call = redis.call
local key, host, told, forget, most = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if told == '' then
    call('HDEL', key, host)
    return {call('HLEN', key)}
end
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local fits = call('HEXISTS', key, host) == 1 or call('HLEN', key) < most
if fits then
    call('HSET', key, host, string.format('%d', now) .. ' ' .. told)
    call('PEXPIRE', key, forget)
end
local answer = {0}
-- Without room somebody has to look for those that are gone.
if ARGV[5] == '1' or not fits then
    local all = call('HGETALL', key)
    for i = 1, math.min(#all, 4 * most), 2 do
        local at, what = string.match(all[i + 1], '^(%d+) (.*)$')
        local ago = at and now - tonumber(at)
        -- A server's clock that was set back makes times to come: small ones are now, others are as good as none.
        if not ago or ago > forget or ago < -forget then
            call('HDEL', key, all[i])
        elseif #answer < 1 + 3 * most then
            answer[#answer + 1] = all[i]
            answer[#answer + 1] = math.max(ago, 0)
            answer[#answer + 1] = string.sub(what, 1, 1024)
        end
    end
end
answer[1] = call('HLEN', key)
return answer
