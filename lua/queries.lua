-- Queries of all hosts, and their replies: docs/reference/hosts.md, "All hosts". All times are the server's.
-- KEYS[1]: a hash of the open queries; a field is a query's id, its value its end and its text, packed. lua/keys.lua reads
-- it for all hosts. KEYS[2]: a list of the replies to one query.
-- ARGV: 'send', id, text, milliseconds that it is open, maximum number of open queries. Reply: 1; 0: no room.
-- ARGV: 'reply', id, text, milliseconds that replies are kept, maximum number. Reply: 1; 0: no longer open, or no room.
-- ARGV: 'read', number of replies to leave out, maximum number. Reply: the next ones, in the order in which they came.
-- ARGV: 'end', id. Removes query and replies.
local call = redis.call
local queries, replies, what, id = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if what == 'read' then
    return call('LRANGE', replies, id, tonumber(id) + tonumber(ARGV[3]) - 1)
end
if what == 'end' then
    call('DEL', replies)
    return call('HDEL', queries, id)
end
if what == 'reply' then
    if call('HEXISTS', queries, id) == 0 or call('LLEN', replies) >= tonumber(ARGV[5]) then
        return 0
    end
    call('RPUSH', replies, ARGV[3])
    return call('PEXPIRE', replies, ARGV[4])
end
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local all = call('HGETALL', queries)
for i = 1, #all, 2 do
    local good, query = pcall(cmsgpack.unpack, all[i + 1])
    if not good or type(query) ~= 'table' or type(query[1]) ~= 'number' or query[1] <= now then
        call('HDEL', queries, all[i])
    end
end
if call('HLEN', queries) >= tonumber(ARGV[5]) then
    return 0
end
call('HSET', queries, id, cmsgpack.pack({now + tonumber(ARGV[4]), ARGV[3]}))
call('PEXPIRE', queries, ARGV[4])
return 1
