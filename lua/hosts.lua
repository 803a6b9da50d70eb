-- Membership: all hosts that share the store, in one hash. A field is a host; its value is the server's time in
-- milliseconds, a space, and the host's heartbeat, which this script does not parse.
-- KEYS[1]: the hash. ARGV: the host; its heartbeat, or '' to remove the host; after how many milliseconds a silent host is
-- removed; maximum number of hosts; 1 to return all hosts.
-- Reply: the number of hosts; then for each the host, the age of its heartbeat in milliseconds, and the heartbeat.
local call = redis.call
local key, host, heartbeat, forget, most = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if heartbeat == '' then
    call('HDEL', key, host)
    return {call('HLEN', key)}
end
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local fits = call('HEXISTS', key, host) == 1 or call('HLEN', key) < most
if fits then
    call('HSET', key, host, string.format('%d', now) .. ' ' .. heartbeat)
    call('PEXPIRE', key, forget)
end
local reply = {0}
-- A full hash is searched for silent hosts, too.
if ARGV[5] == '1' or not fits then
    local all = call('HGETALL', key)
    for i = 1, math.min(#all, 4 * most), 2 do
        local at, what = string.match(all[i + 1], '^(%d+) (.*)$')
        local ago = at and now - tonumber(at)
        -- A negative age: the server's clock was set back. Small ones count as 0, others as silent.
        if not ago or ago > forget or ago < -forget then
            call('HDEL', key, all[i])
        elseif #reply < 1 + 3 * most then
            reply[#reply + 1] = all[i]
            reply[#reply + 1] = math.max(ago, 0)
            reply[#reply + 1] = string.sub(what, 1, 1024)
        end
    end
end
reply[1] = call('HLEN', key)
return reply
