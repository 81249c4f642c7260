"""What a Redis-protocol server does in one step for a fetch, in its own language."""

import hashlib

#: KEYS: kombu's two of unacknowledged messages, then the lists. ARGV: tag, time, then for each list how its notes end.
#: Answers nothing, or (number of the list, item, was it noted). What can hardly be a message stays where it was: nobody
#: could read its note. Pops first, for a full memory refuses to begin with a write that takes more of it. EXISTS: by
#: what was read, the server knows whom to tell of a change; a thousand at a time, for Lua's stack is small.
FETCH = """
for n = 3, #KEYS do
  local item = redis.call('RPOP', KEYS[n])
  if item then
    local noted = nil
    if string.byte(item) == 123 and string.byte(item, -1) == 125 and string.find(item, '"delivery_tag"', 1, true) then
      noted = redis.pcall('HSET', KEYS[1], ARGV[1], '[' .. item .. ARGV[n])
      if type(noted) == 'number' then
        noted = redis.pcall('ZADD', KEYS[2], ARGV[2], ARGV[1])
        if type(noted) == 'number' then return {n - 2, item, 1} end
        redis.call('HDEL', KEYS[1], ARGV[1])
      end
    end
    redis.call('RPUSH', KEYS[n], item)
    return noted or {n - 2, item, 0}
  end
end
for n = 3, #KEYS, 1000 do redis.call('EXISTS', unpack(KEYS, n, math.min(n + 999, #KEYS))) end
return false
"""
SHA = hashlib.sha1(FETCH.encode(), usedforsecurity=False).hexdigest()
#: KEYS: the same two, one list. ARGV: tag, time, item, its note. Answers 1, or 0 where another has taken the item.
#: Begins with a pop, too.
TAKE = """
if redis.call('LINDEX', KEYS[3], -1) ~= ARGV[3] then return 0 end
redis.call('RPUSH', KEYS[3], redis.call('RPOP', KEYS[3]))
redis.call('HSET', KEYS[1], ARGV[1], ARGV[4])
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
redis.call('RPOP', KEYS[3])
return 1
"""
