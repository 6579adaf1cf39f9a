"""What the module costs: `make bench`, or `benches/run.py --quick` for a look of some 30 seconds.

Other work on the machine moves every rate, so no rate says anything by itself. Each load runs once a round, in changing
order, and is compared with a plain command of the same round: what is printed is the median of these ratios and their
quartiles. The same ratio by CPU time of the server's main thread tells what is left of it when the client is the limit.
An aim that is missed is shown; it is no error.
"""

import argparse
import os
import pathlib
import random
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "python_tests"))

from harness.generator import cpu_seconds, load, ping_each  # noqa: E402
from harness.process import Server  # noqa: E402

LONGEST_TTL_MS = 3600000
EXPIRING_PER_S = 20000
PINGS_PER_S = 1000
MODES = {"pipelined": {"connections": 4, "pipeline": 32}, "one by one": {"connections": 50, "pipeline": 1}}

SET, RENEW, MRENEW, LUA = "SET key value PX", "LEASE.RENEW", "LEASE.MRENEW of 100", "the Lua script"
XADD, SEND, XRANGE, REPLAY = "XADD of eight fields", "LEASE.SEND", "XRANGE of 100 messages", "LEASE.REPLAY of 100"
# The kind of load, the server it goes to, and how many heartbeats a command is. The first is what the others are compared with.
LOADS = {
    SET: ("set", "bare", 1),
    "SET beside the module": ("set", "leased", 1),
    RENEW: ("renew", "leased", 1),
    MRENEW: ("mrenew", "leased", 100),
    LUA: ("lua-renew", "bare", 1),
}
SENDS = {XADD: ("xadd", "bare", 1), SEND: ("send", "leased", 1), LUA: ("lua-send", "bare", 1)}
PAGES = {XRANGE: ("xrange", "leased", 1), REPLAY: ("replay", "leased", 1)}
AIMS = {
    ("pipelined", RENEW, SET): 0.9,
    ("one by one", RENEW, SET): 0.95,
    ("pipelined", RENEW, LUA): 4,
    ("pipelined", MRENEW, SET): 4,
    ("one by one", MRENEW, SET): 4,
    ("pipelined", SEND, XADD): 0.6,
    ("pipelined", SEND, LUA): 3,
    ("pages", REPLAY, XRANGE): 0.5,
}
REVOKED_DEVICES = 1000


class Bare(Server):
    """A server without the module."""

    def load_line(self):
        return ""


def script(server):
    """Loads the script and takes it through a lease's whole life and a message's fates, as the loads only see what goes well."""
    sha = server.call("SCRIPT", "LOAD", (HERE / "lease.lua").read_text()).decode()
    keys = {name: f"{{tried}}:{name}" for name in ("sessions", "holders", "grants", "sent", "seq", "lua-log", "events")}

    def run(*steps):
        return server.call.pipeline([["EVALSHA", sha, *step] for step in steps])

    def opened(session, ttl_ms):
        return [3, "due", keys["sessions"], keys["holders"], "open", "tried", session, "user", ttl_ms]

    def sent(payload):
        used = [keys[name] for name in ("sessions", "grants", "sent", "seq", "lua-log")]
        return [6, "due", *used, "send", "tried", "third", 3, "id", payload]

    assert run(opened("first", 0), opened("second", 0), [1, "due", "expire", 100]) == [1, 2, 1]
    assert server.call("XLEN", keys["events"]) == 2
    _, refused = run(opened("third", LONGEST_TTL_MS), sent("text"))
    server.call("HSET", keys["grants"], "user", "WRITE")
    accepted, duplicate, conflict = run(sent("text"), sent("text"), sent("other"))
    assert (refused.head, accepted[0], conflict.head) == ("DENIED nogrant", b"accepted", "CONFLICT message")
    assert duplicate == [b"duplicate", *accepted[1:]]
    assert server.call("XLEN", keys["lua-log"]) == 1
    server.call("DEL", *keys.values())
    server.call("ZREM", "due", "tried third")
    return sha


def empty(*servers):
    for server in servers:
        server.call("FLUSHALL", "SYNC")


def names(rooms):
    return [f"room-{room:06}" for room in range(rooms)]


def percentile(values, share):
    return sorted(values)[int((len(values) - 1) * share)]


def verdict(met, aim):
    return f"aim {aim}: {'met' if met else 'missed'}"


# -------------------------------------------------------------------- one load against another


def compare(servers, loads, modes, rounds, also=(), **options):
    """Prints what each load does in each mode, beside the first of them; then each load of `also` beside another."""
    runs, lap = [(mode, name) for mode in modes for name in loads], 1000
    rates, costs = {run: [] for run in runs}, {run: [] for run in runs}
    for _ in range(rounds):
        for mode, name in random.sample(runs, len(runs)):
            kind, server, each = loads[name]
            # As many heartbeats under way, or nearly, whether they come in one command or in many.
            depth = {"pipeline": 2} if each > 1 and mode == "pipelined" else {}
            result = load(servers[server], kind, **{"lap": lap} | options | modes[mode] | depth)
            lap = max(lap, result["next_lap"])
            rates[mode, name].append(result["commands"] * each / result["seconds"])
            costs[mode, name].append(result["cpu"] / result["commands"] / each)
    print(f"  {'':<12}{'':<28}{'thousand/s':>12}{'ratio':>8}  {'(quartiles)':<16}{'by CPU':>8}")
    base = next(iter(loads))
    for mode, name in runs:
        row(mode, name, base, rates, costs, name, f"{statistics.median(rates[mode, name]) / 1000:.1f}")
    for mode in modes:
        for name, other in also:
            row(mode, name, other, rates, costs, f"{name} to {other.removeprefix('the ')}", "")


def row(mode, name, base, rates, costs, label, rate):
    ratios = [rate / of_base for rate, of_base in zip(rates[mode, name], rates[mode, base])]
    by_cpu = statistics.median(of_base / cost for cost, of_base in zip(costs[mode, name], costs[mode, base]))
    low, ratio, high = statistics.quantiles(ratios, method="inclusive")
    aim = AIMS.get((mode, name, base))
    print(
        f"  {mode:<12}{label:<28}{rate:>12}{ratio:>8.2f}  {f'({low:.2f} … {high:.2f})':<16}{by_cpu:>8.2f}  "
        f"{verdict(ratio >= aim, f'≥ {aim}') if aim else ''}".rstrip()
    )


# -------------------------------------------------------------------- heartbeats


def heartbeats(bare, leased, rounds, seconds, leases, rooms):
    print(f"\nHeartbeats: {leases} leases in {rooms} rooms, {rounds} rounds of {seconds} s")
    size, sha = {"leases": leases, "rooms": rooms}, script(bare)
    load(leased, "open", ttl_ms=LONGEST_TTL_MS, **size, **MODES["pipelined"])
    load(bare, "lua-open", ttl_ms=LONGEST_TTL_MS, sha=sha, **size, **MODES["pipelined"])
    compare({"bare": bare, "leased": leased}, LOADS, MODES, rounds, also=[(RENEW, LUA)], seconds=seconds, sha=sha, **size)


# -------------------------------------------------------------------- messages


def messages(bare, leased, rounds, seconds, leases, rooms):
    print(f"\nMessages of 100 bytes: {leases} senders with grants in {rooms} rooms, {rounds} rounds of {seconds} s")
    size = {"leases": leases, "rooms": rooms, "sha": script(bare)}
    open_senders(bare, leased, **size)
    compare({"bare": bare, "leased": leased}, SENDS, {"pipelined": MODES["pipelined"]}, rounds, also=[(SEND, LUA)], seconds=seconds, **size)


def open_senders(bare, leased, **size):
    leased.call("CONFIG SET lease.default-access granted")
    for kind in ("grant", "open"):
        load(leased, kind, ttl_ms=LONGEST_TTL_MS, **size, **MODES["pipelined"])
        load(bare, f"lua-{kind}", ttl_ms=LONGEST_TTL_MS, **size, **MODES["pipelined"])


def pages(leased, rounds, seconds, rooms):
    """Each room's first session reads its log over a connection of its own, in the middle of 1,000 messages."""
    print(f"\nPages of 100 messages: {rooms} logs of 1000 messages, {rounds} rounds of {seconds} s")
    fill_logs(leased, rooms)
    compare({"leased": leased}, PAGES, {"pages": {"connections": rooms, "pipeline": 1}}, rounds, seconds=seconds, leases=rooms, rooms=rooms)


def fill_logs(leased, rooms):
    for kind in ("grant", "open", "send"):
        load(leased, kind, leases=1000 * rooms, rooms=rooms, ttl_ms=LONGEST_TTL_MS, lap=1000, connections=rooms, pipeline=32)


# -------------------------------------------------------------------- revocation


def revocation(leased, rounds):
    took, cpu = [], []
    for _ in range(rounds):
        open_devices(leased)
        before, start = cpu_seconds(leased), time.perf_counter()
        revoke_devices(leased)
        took.append((time.perf_counter() - start) * 1000)
        cpu.append((cpu_seconds(leased) - before) * 1000)
    median = statistics.median(took)
    print(
        f"\nRevoking a user with {REVOKED_DEVICES} leases, {rounds} rounds\n"
        f"  median {median:.1f} ms ({min(took):.1f} … {max(took):.1f}), {statistics.median(cpu):.1f} ms of CPU  {verdict(median < 5, '< 5 ms')}"
    )


def open_devices(leased):
    leased.call("LEASE.GRANT revoked user WRITE")
    leased.call.pipeline([f"LEASE.OPEN revoked user DEVICE device-{n}" for n in range(REVOKED_DEVICES)])


def revoke_devices(leased):
    assert leased.call("LEASE.REVOKE revoked user") == [b"ok", REVOKED_DEVICES]


# -------------------------------------------------------------------- expiry on an idle server


def idle_expiry(leased, leases, per_s):
    """Each lease comes due at a moment of its own; until then and between them the server does nothing."""
    leased.call.pipeline([f"LEASE.OPEN idle-{n % 20} user-{n} TTL {1000 + n * 1000 // per_s}" for n in range(leases)])
    time.sleep(1.5 + leases / per_s)
    late = lags(leased, [f"idle-{n}" for n in range(20)])
    assert len(late) == leases, f"{len(late)} of {leases} leases have expired"
    p99 = percentile(late, 0.99)
    print(
        f"\nExpiry on an idle server: {leases} leases, {per_s} a second\n  removal after the deadline: p50 {percentile(late, 0.5)} ms, "
        f"p99 {p99} ms, max {max(late)} ms  {verdict(p99 <= 5, 'p99 ≤ 5 ms')}"
    )


def lags(leased, rooms):
    """How late removals came, as their events tell."""
    streams = leased.call.pipeline([["XRANGE", f"{{{room}}}:events", "-", "+"] for room in rooms])
    events = [dict(zip(fields[::2], fields[1::2])) for stream in streams for _, fields in stream]
    return [int(event[b"lag_ms"]) for event in events if b"lag_ms" in event]


# -------------------------------------------------------------------- a million leases


def memory(bare, leased, leases, rooms):
    print(f"\nMemory: {leases} leases in {rooms} rooms, sessions as UUIDs, users of 16 bytes, the default device")
    size = {"leases": leases, "rooms": rooms, "ttl_ms": LONGEST_TTL_MS} | MODES["pipelined"]
    before = used_memory(bare)
    load(bare, "lua-open", sha=script(bare), **size)
    lua = (used_memory(bare) - before) / leases
    before = used_memory(leased)
    load(leased, "open", **size)
    with_events = (used_memory(leased) - before) / leases
    leased.call("DEL", *(f"{{{room}}}:events" for room in names(rooms)))
    module = (used_memory(leased) - before) / leases
    print(f"  the module {module:.0f} bytes a lease  {verdict(module <= 160, '≤ 160')}; the Lua script {lua:.0f}")
    print(f"  an `opened` event on a room's stream: {with_events - module:.0f} bytes more")


def used_memory(server):
    return server.info("memory")["used_memory"]


def busy_expiry(bare, leased, rounds, seconds, leases, rooms, due_in_ms):
    """On top of `leases` that stay, each round opens those that expire while it pings both servers."""
    print(
        f"\nPING, {PINGS_PER_S} a second, of a server without the module and of one with {leases} leases in {rooms} rooms, of which "
        f"{EXPIRING_PER_S} expire\neach second; {rounds} rounds of {seconds} s, medians in µs"
    )
    seen = {(state, server): [] for state in ("nothing due", "leases expire") for server in ("bare", "leased")}
    expiring, opened = int(EXPIRING_PER_S * seconds), leases
    for _ in range(rounds):
        ping(bare, leased, seconds, seen, "nothing due")
        took = load(
            leased, "open", first=opened, leases=opened + expiring, rooms=rooms, due_in_ms=due_in_ms, due_per_s=EXPIRING_PER_S, **MODES["pipelined"]
        )["seconds"]
        opened += expiring
        time.sleep(max(0, due_in_ms / 1000 - took))
        ping(bare, leased, seconds, seen, "leases expire")
    print(f"  {'':<15}{'':<22}{'p50':>8}{'p99':>8}  {'(all rounds)':<16}{'max':>8}{'server busy':>14}")
    for (state, server), pings in seen.items():
        p50, p99, most, busy = (statistics.median(p[column] for p in pings) for column in ("p50_us", "p99_us", "max_us", "busy"))
        spread = f"({min(p['p99_us'] for p in pings):.0f} … {max(p['p99_us'] for p in pings):.0f})"
        label = "with the module" if server == "leased" else "without the module"
        print(f"  {state:<15}{label:<22}{p50:>8.0f}{p99:>8.0f}  {spread:<16}{most:>8.0f}{busy:>14.0%}")
    more = [noisy["p99_us"] - quiet["p99_us"] for noisy, quiet in zip(seen["leases expire", "leased"], seen["leases expire", "bare"])]
    late = lags(leased, names(rooms)[:1000])
    print(f"  p99 above that of the server without: {statistics.median(more):.0f} µs  {verdict(statistics.median(more) <= 2000, '≤ 2000')}")
    print(
        f"  removal after the deadline: p50 {percentile(late, 0.5)} ms, p99 {percentile(late, 0.99)} ms, max {max(late)} ms  "
        f"{verdict(percentile(late, 0.99) <= 50, 'p99 ≤ 50 ms')}"
    )


def ping(bare, leased, seconds, seen, state):
    servers = {"bare": bare, "leased": leased}
    before = {name: cpu_seconds(server) for name, server in servers.items()}
    for (name, server), figures in zip(servers.items(), ping_each(servers.values(), per_s=PINGS_PER_S, seconds=seconds)):
        seen[state, name].append(figures | {"busy": (cpu_seconds(server) - before[name]) / seconds})


# -------------------------------------------------------------------- the run


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a look of some 30 seconds; its figures prove nothing")
    quick = parser.parse_args().quick
    bare, leased = Bare(clock=None), Server(clock=None)
    try:
        version = bare.info("server")
        print(
            f"{version.get('server_name', 'redis')} {version.get('valkey_version', version['redis_version'])}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
        )
        idle_expiry(leased, *((300, 300) if quick else (1000, 200)))
        heartbeats(bare, leased, *((3, 0.1, 10000, 100) if quick else (12, 0.25, 100000, 1000)))
        empty(bare, leased)
        messages(bare, leased, *((3, 0.1) if quick else (12, 0.25)), leases=10000, rooms=500)
        empty(bare, leased)
        pages(leased, *((3, 0.1) if quick else (12, 0.25)), rooms=4)
        revocation(leased, 3 if quick else 12)
        leased.call("CONFIG SET lease.default-access open")
        empty(bare, leased)
        size = (100000, 1000) if quick else (1000000, 10000)
        memory(bare, leased, *size)
        busy_expiry(bare, leased, *((1, 1.5, *size, 2500) if quick else (3, 4, *size, 4500)))
        print(f"\nload {os.getloadavg()[0]:.1f}")
    finally:
        for server in (bare, leased):
            server.discard()


if __name__ == "__main__":
    main()
