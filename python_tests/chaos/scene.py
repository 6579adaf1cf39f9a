"""Where a run plays: the rooms, their settings and those who are in them. Traffic and rules both go by it."""

ROOMS = ["plain", "{tag}granted", "quiet", "{tag}busy", "short", "fleeting"]
GRANTED = {"{tag}granted"}
SHORT = "short"  # keeps few messages, so that readers fall behind
RETAINED = [8, 30, 100]
FLEETING = "fleeting"  # goes by itself when memory is short, its streams stay
USERS = [f"user{number}" for number in range(8)]
DEVICES = ["phone", "laptop"]
TTL_MS = 5000
# How long a lease lasts at most once its session reports a bad connection.
SPANS = {"disconnected": 2000, "failed": 1000}
# The whole history is to be there at the end: nothing but the short log is trimmed.
LEASE = {"events-maxlen": 0, "retain-count": 0, "disconnect-ms": SPANS["disconnected"], "failed-ms": SPANS["failed"]}


def settings(room):
    """What SETPOLICY gives a room that begins."""
    own = ["access", "granted" if room in GRANTED else "open"]
    return own + ["retain-count", RETAINED[0]] if room == SHORT else own
