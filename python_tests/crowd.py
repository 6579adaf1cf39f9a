"""Rooms full of leases, opened by a script inside the server: a million of them takes seconds."""

FILL = """
for number = 0, ARGV[1] - 1 do
    redis.call('LEASE.OPEN', KEYS[1], 'u' .. number, 'SESSION', 's' .. number, unpack(ARGV, 2))
end
"""


def fill(server, room, size, *options):
    """Opens `size` leases with the same options: sessions s0, s1, … of users u0, u1, …"""
    server.call("EVAL", FILL, 1, room, size, *options)
