-- weir doctor: which of the commands that weir's scripts call does the user of this connection lack?
-- KEYS[1]: a key that nothing else uses. It becomes a string that expires after a second, so that commands for other types
-- fail without an effect, after the check of the user's rights.
-- ARGV[1]: the commands with their arguments but the key: 'set 1 PX 1000;get;hset 0 0'. The first is that SET, the last DEL.
-- Reply: the server's version ('' before Redis 7); the commands that were refused; the server's seconds and microseconds.
if redis.replicate_commands then
    redis.replicate_commands()
end
local refused = {}
for words in string.gmatch(ARGV[1], '[^;]+') do
    local command = {}
    for word in string.gmatch(words, '%S+') do
        command[#command + 1] = word
        if #command == 1 then
            command[2] = KEYS[1]
        end
    end
    local reply = redis.pcall(unpack(command))
    local why = type(reply) == 'table' and reply['err'] or ''
    if string.find(why, 'NOPERM') or string.find(why, 'ermission') or string.find(why, 'can.t run this command')
        or string.find(why, 'can.t access') or string.find(why, 'ACL failure') then
        refused[#refused + 1] = command[1]
    elseif why ~= '' and #refused == 0 and command[1] == 'set' then
        return redis.error_reply(why)
    end
    if command[1] == 'set' and refused[1] then
        break
    end
end
local clock = redis.pcall('TIME')
if clock['err'] then
    refused[#refused + 1] = 'time'
    clock = {'0', '0'}
end
return {redis.REDIS_VERSION or '', table.concat(refused, ' '), clock[1], clock[2]}
