"""Which node counted as primary when, and which acknowledged writes may be lost.

A write that was acknowledged may be missing at the end only if it was answered by a node that did not count as primary, or if a later line
began on a node that was not known to have it. Everything else that is missing is a fault of the module (or of the server).
"""

import bisect


class Line:
    def __init__(self, records):
        self.begins = [record for record in records if record["kind"] == "line"]
        self.times = [begin["at"] for begin in self.begins]

    def tenure(self, call):
        """The index of the line that served this call from the request to the reply; None if it was another node, or the line changed meanwhile."""
        index = bisect.bisect_right(self.times, call["sent"]) - 1
        if index < 0 or self.begins[index]["node"] != call["node"]:
            return None
        over = self.times[index + 1] if index + 1 < len(self.times) else float("inf")
        return index if call["done"] <= over else None

    def on(self, call):
        return self.tenure(call) is not None

    def may_be_lost(self, call, by=float("inf")):
        """Whether what this reply acknowledged may be gone at the time `by`."""
        return not self.on(call) or any(begin["known_until"] < call["done"] <= begin["at"] <= by for begin in self.begins[1:])

    def changed(self, since, until):
        """Whether a line began in between: leases may have got their grace."""
        return any(since <= at <= until for at in self.times)
