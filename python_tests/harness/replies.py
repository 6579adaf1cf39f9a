"""Map replies as dicts, whatever the protocol made of them.

A map is a RESP3 map, but a flat field/value array in RESP2 and in scripts. Field names become text, values stay bytes.
"""

MAPS = {"OPEN", "GET", "ROSTER", "STATS", "SEND", "POST", "REPLAY", "SNAPSHOT", "GRANTS", "LAG"}
LISTS_OF_MAPS = {"leases", "grants", "holders"}


def as_map(reply):
    if reply is None:
        return None
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {field.decode(): value for field, value in pairs}


def normal(command, reply):
    """The reply to `command` (a list of arguments) with its maps as dicts."""
    name = command[0].upper() if isinstance(command[0], str) else command[0].decode("latin1").upper()
    if isinstance(reply, Exception) or not name.startswith("LEASE.") or name[6:] not in MAPS:
        return reply
    found = as_map(reply)
    for field in LISTS_OF_MAPS & set(found or {}):
        if isinstance(found[field], list):  # STATS tells their number
            found[field] = [as_map(part) for part in found[field]]
    if found and "entries" in found:
        found["entries"] = [(seq, as_map(entry)) for seq, entry in found["entries"]]
    return found
