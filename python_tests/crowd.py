"""Rooms full of leases, opened and counted by scripts inside the server: a million of them takes seconds."""

FILL = """
for number = 0, ARGV[1] - 1 do
    redis.call('LEASE.OPEN', KEYS[1], 'u' .. number, 'SESSION', 's' .. number, unpack(ARGV, 2))
end
"""

COUNT = """
local events, sessions = {opened = 0, removed = 0}, {opened = {}, removed = {}}
local after = '-'
repeat
    local page = redis.call('XRANGE', KEYS[1], after, '+', 'COUNT', 1000)
    for _, entry in ipairs(page) do
        local id, fields, event = entry[1], entry[2], {}
        for place = 1, #fields, 2 do
            event[fields[place]] = fields[place + 1]
        end
        events[event.type] = events[event.type] + 1
        sessions[event.type][event.session] = true
        after = '(' .. id
    end
until #page == 0
local opened, of_these_removed = 0, 0
for session in pairs(sessions.opened) do
    opened = opened + 1
    of_these_removed = of_these_removed + (sessions.removed[session] and 1 or 0)
end
return {events.opened, opened, events.removed, of_these_removed}
"""


def fill(server, room, size, *options):
    """Opens `size` leases with the same options: sessions s0, s1, … of users u0, u1, …"""
    server.call("EVAL", FILL, 1, room, size, *options)


def told(server, room):
    """How many sessions a room's untrimmed event stream tells to be opened, and how many to be removed: each of them once."""
    opened, sessions, removed, of_these = server.call("EVAL", COUNT, 1, f"{{{room}}}:events")
    assert (opened, removed) == (sessions, of_these), f"{room}: {opened} opened for {sessions} sessions, {removed} removed for {of_these} of them"
    return opened, removed
