-- A lease's contract as a script: what one would write without the module, for comparison. Epochs and seqs are checked,
-- deadlines stand in a sorted set, removals are told on the room's stream. It is kind to itself: no states, tokens,
-- devices, tombstones or policies, no `opened` events, and one set of deadlines for all rooms, which a cluster forbids.
--
-- KEYS  due: sorted set of room and session by deadline; then, but for `expire`, the room's
--       sessions: hash of session -> user, epoch, seq, ttl; holders: hash of user -> epoch, session
-- ARGV  renew room session epoch seq | open room session user ttl | expire count
local due, sessions, holders = KEYS[1], KEYS[2], KEYS[3]
local verb, room, session = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

if verb == 'renew' then  -- first, so that the hot path makes no closures
  local lease = redis.call('HGET', sessions, session)
  if not lease then
    return redis.error_reply('STALE unknown')
  end
  local user, epoch, seen, ttl = cmsgpack.unpack(lease)
  local seq, member = tonumber(ARGV[5]), room .. ' ' .. session
  if tonumber(ARGV[4]) ~= epoch then
    return redis.error_reply('STALE superseded')
  end
  local deadline = tonumber(redis.call('ZSCORE', due, member))
  if deadline <= now then
    return redis.error_reply('STALE expired')
  end
  if seq <= seen then
    return {'duplicate', deadline - now, deadline}
  end
  redis.call('HSET', sessions, session, cmsgpack.pack(user, epoch, seq, ttl))
  redis.call('ZADD', due, now + ttl, member)
  return {'renewed', ttl, now + ttl}
end

local function remove(room, sessions, session, reason)
  local user, epoch = cmsgpack.unpack(redis.call('HGET', sessions, session))
  redis.call('HDEL', sessions, session)
  redis.call('XADD', '{' .. room .. '}:events', 'MAXLEN', '~', 10000, '*', 'type', 'removed', 'reason', reason,
    'room', room, 'session', session, 'user', user, 'epoch', epoch, 'at', now)
end

if verb == 'open' then
  local user, ttl, epoch = ARGV[4], tonumber(ARGV[5]), 1
  local holder = redis.call('HGET', holders, user)
  if holder then
    local last, current = cmsgpack.unpack(holder)
    epoch = last + 1
    if redis.call('ZREM', due, room .. ' ' .. current) == 1 then
      remove(room, sessions, current, 'superseded')
    end
  end
  redis.call('HSET', holders, user, cmsgpack.pack(epoch, session))
  redis.call('HSET', sessions, session, cmsgpack.pack(user, epoch, 0, ttl))
  redis.call('ZADD', due, now + ttl, room .. ' ' .. session)
  return epoch
end

local members = redis.call('ZRANGE', due, 0, now, 'BYSCORE', 'LIMIT', 0, ARGV[2])
for _, member in ipairs(members) do
  local room, session = member:match('^(.*) (.*)$')
  redis.call('ZREM', due, member)
  remove(room, '{' .. room .. '}:sessions', session, 'expired')
end
return #members
