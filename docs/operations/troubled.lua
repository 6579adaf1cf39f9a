-- Rooms in trouble: redis-cli --eval troubled.lua , CURSOR COUNT. Returns SCAN's next cursor, then for each such room an array of its
-- name and what is wrong: `orphan`, its hold; `events` or `log`, which it cannot write, with the stream's last id or the key's type.
local function field(map, name)
  for at = 1, #map, 2 do
    if map[at] == name then return map[at + 1] end
  end
end

local function unwritable(key, written)
  local type = redis.call('TYPE', key).ok
  if type == 'none' then return nil end
  if type ~= 'stream' then return type end
  local last = field(redis.call('XINFO', 'STREAM', key), 'last-generated-id')
  return tonumber(string.match(last, '%d+')) > written and last or nil
end

local page = redis.call('SCAN', ARGV[1], 'COUNT', ARGV[2], 'TYPE', 'leaseroom')
local answer = { page[1] }
for _, room in ipairs(page[2]) do
  local stats = redis.call('LEASE.STATS', room)
  if stats then
    local found = { room }
    for _, hold in ipairs(redis.call('LEASE.HOLDS', room)) do
      if hold == 'orphan' then table.insert(found, hold) end
    end
    local base = string.match(room, '^[^{]*{[^}]+}') and room or '{' .. room .. '}'
    for _, stream in ipairs({ 'events', 'log' }) do
      local is = unwritable(base .. ':' .. stream, field(stats, stream == 'log' and 'log_seq' or 'event_n'))
      if is then table.insert(found, stream .. ' ' .. is) end
    end
    if #found > 1 then table.insert(answer, found) end
  end
end
return answer
