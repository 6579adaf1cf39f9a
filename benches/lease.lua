-- A lease's contract as a script: what one would write without the module, for comparison. Epochs and seqs are checked,
-- deadlines stand in a sorted set, removals are told on the room's stream, a message id is accepted once. It is kind to
-- itself: no states, tokens, devices, tombstones or policies, no `opened` events, no end of grants, dedupe records or
-- messages, and one set of deadlines for all rooms, which a cluster forbids.
--
-- KEYS  due: sorted set of room and session by deadline; then, but for `expire`, the room's
--       sessions: hash of session -> user, epoch, seq, ttl
--       of `open`: holders: hash of user -> epoch, session
--       of `send`: grants: hash of user -> WRITE, READ or revoked; sent: hash of user and message id -> digest of
--       the payload, seq, at; seq: that of the newest message; log: stream of messages
-- ARGV  renew room session epoch seq | send room session epoch message-id payload | open room session user ttl | expire count
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

if verb == 'send' then
  local lease = redis.call('HGET', sessions, session)
  if not lease then
    return redis.error_reply('STALE unknown')
  end
  local user, epoch = cmsgpack.unpack(lease)
  local grant = redis.call('HGET', KEYS[3], user)
  if grant == 'revoked' then
    return redis.error_reply('DENIED revoked')
  end
  if tonumber(ARGV[4]) ~= epoch then
    return redis.error_reply('STALE superseded')
  end
  if tonumber(redis.call('ZSCORE', due, room .. ' ' .. session)) <= now then
    return redis.error_reply('STALE expired')
  end
  if grant ~= 'WRITE' then
    return redis.error_reply(grant and 'DENIED readonly' or 'DENIED nogrant')
  end
  local id, payload = ARGV[5], ARGV[6]
  local message, digest = #user .. ' ' .. user .. id, redis.sha1hex(payload)
  local before = redis.call('HGET', KEYS[4], message)
  if before then
    local same, seq, at = cmsgpack.unpack(before)
    return same == digest and {'duplicate', seq, at} or redis.error_reply('CONFLICT message')
  end
  local seq = redis.call('INCR', KEYS[5])
  redis.call('XADD', KEYS[6], seq .. '-0', 'id', id, 'user', user, 'device', 'default', 'session', session, 'epoch', epoch, 'at', now,
    'gen', '1894006800000-12345678', 'payload', payload)
  redis.call('HSET', KEYS[4], message, cmsgpack.pack(digest, seq, now))
  return {'accepted', seq, now}
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
