"""What the module costs: `make bench`, or `benches/run.py --quick` for a look of some 20 seconds.

Other work on the machine moves every rate, so no rate says anything by itself. Each load runs once a round, in changing
order, and is compared with `SET key value PX` of the same round: what is printed is the median of these ratios and their
quartiles. The same ratio by CPU time of the server's main thread tells what is left of it when the client is the limit.
An aim that is missed is shown; it is no error.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "python_tests"))

from harness.process import Server  # noqa: E402

LOAD = HERE.parent / os.environ.get("CARGO_TARGET_DIR", "target") / "load"
LONGEST_TTL_MS = 3600000
EXPIRING_PER_S = 20000
PINGS_PER_S = 1000
MODES = {"pipelined": {"connections": 4, "pipeline": 32}, "one by one": {"connections": 50, "pipeline": 1}}

SET, RENEW, MRENEW, LUA = "SET key value PX", "LEASE.RENEW", "LEASE.MRENEW of 100", "the Lua script"
# The kind of load, the server it goes to, and how many heartbeats a command is.
LOADS = {
    SET: ("set", "bare", 1), "SET beside the module": ("set", "leased", 1), RENEW: ("renew", "leased", 1),
    MRENEW: ("mrenew", "leased", 100), LUA: ("lua-renew", "bare", 1),
}
AIMS = {
    ("pipelined", RENEW, SET): 0.9, ("one by one", RENEW, SET): 0.95, ("pipelined", RENEW, LUA): 4,
    ("pipelined", MRENEW, SET): 4, ("one by one", MRENEW, SET): 4,
}


class Bare(Server):
    """A server without the module."""

    def load_line(self):
        return ""


def load(server, kind, **options):
    """Runs load.rs against the server: what it prints, and the seconds of CPU it cost the server's main thread."""
    before = cpu_seconds(server)
    words = [f"{name.replace('_', '-')}={value}" for name, value in options.items()]
    printed = subprocess.run([LOAD, kind, str(server.port), *words], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(printed) | {"cpu": cpu_seconds(server) - before}


def cpu_seconds(server):
    info = server.info("cpu")
    return sum(float(info[f"used_cpu_{kind}_main_thread"]) for kind in ("user", "sys"))


def script(server):
    """Loads the script and takes it through a lease's whole life, as the loads only open and renew."""
    sha = server.call("SCRIPT", "LOAD", (HERE / "lease.lua").read_text()).decode()
    keys = ["{tried}:sessions", "{tried}:holders"]
    lives = [[3, "due", *keys, "open", "tried", session, "user", 0] for session in ("first", "second")] + [[1, "due", "expire", 100]]
    assert server.call.pipeline([["EVALSHA", sha, *life] for life in lives]) == [1, 2, 1]
    assert server.call("XLEN {tried}:events") == 2
    server.call("DEL", *keys, "{tried}:events")
    return sha


def names(rooms):
    return [f"room-{room:06}" for room in range(rooms)]


def percentile(values, share):
    return sorted(values)[int((len(values) - 1) * share)]


def verdict(met, aim):
    return f"aim {aim}: {'met' if met else 'missed'}"


# -------------------------------------------------------------------- heartbeats

def heartbeats(bare, leased, rounds, seconds, leases, rooms):
    print(f"\nHeartbeats: {leases} leases in {rooms} rooms, {rounds} rounds of {seconds} s")
    size, servers, sha = {"leases": leases, "rooms": rooms}, {"bare": bare, "leased": leased}, script(bare)
    load(leased, "open", ttl_ms=LONGEST_TTL_MS, **size, **MODES["pipelined"])
    load(bare, "lua-open", ttl_ms=LONGEST_TTL_MS, sha=sha, **size, **MODES["pipelined"])
    runs, lap = [(mode, name) for mode in MODES for name in LOADS], 1000
    rates, costs = {run: [] for run in runs}, {run: [] for run in runs}
    for _ in range(rounds):
        for mode, name in random.sample(runs, len(runs)):
            kind, server, beats = LOADS[name]
            # As many heartbeats under way, or nearly, whether they come in one command or in many.
            depth = {"pipeline": 2} if beats > 1 and mode == "pipelined" else {}
            result = load(servers[server], kind, **{"seconds": seconds, "lap": lap, "sha": sha} | size | MODES[mode] | depth)
            lap = max(lap, result["next_lap"])
            rates[mode, name].append(result["commands"] * beats / result["seconds"])
            costs[mode, name].append(result["cpu"] / result["commands"] / beats)
    print(f"  {'':<12}{'':<24}{'thousand/s':>12}{'ratio':>8}  {'(quartiles)':<16}{'by CPU':>8}")
    for mode, name in runs:
        compare(mode, name, SET, rates, costs)
    for mode in MODES:
        compare(mode, RENEW, LUA, rates, costs)


def compare(mode, name, base, rates, costs):
    ratios = [rate / of_base for rate, of_base in zip(rates[mode, name], rates[mode, base])]
    by_cpu = statistics.median(of_base / cost for cost, of_base in zip(costs[mode, name], costs[mode, base]))
    low, ratio, high = statistics.quantiles(ratios, method="inclusive")
    label, rate = (name, f"{statistics.median(rates[mode, name]) / 1000:.0f}") if base == SET else (f"{name} to {base[4:]}", "")
    aim = AIMS.get((mode, name, base))
    print(f"  {mode:<12}{label:<24}{rate:>12}{ratio:>8.2f}  {f'({low:.2f} … {high:.2f})':<16}{by_cpu:>8.2f}  "
          f"{verdict(ratio >= aim, f'≥ {aim}') if aim else ''}".rstrip())


# -------------------------------------------------------------------- expiry on an idle server

def idle_expiry(leased, leases, per_s):
    """Each lease comes due at a moment of its own; until then and between them the server does nothing."""
    leased.call.pipeline([f"LEASE.OPEN idle-{n % 20} user-{n} TTL {1000 + n * 1000 // per_s}" for n in range(leases)])
    time.sleep(1.5 + leases / per_s)
    late = lags(leased, [f"idle-{n}" for n in range(20)])
    assert len(late) == leases, f"{len(late)} of {leases} leases have expired"
    p99 = percentile(late, 0.99)
    print(f"\nExpiry on an idle server: {leases} leases, {per_s} a second\n  removal after the deadline: p50 {percentile(late, 0.5)} ms, "
          f"p99 {p99} ms, max {max(late)} ms  {verdict(p99 <= 5, 'p99 ≤ 5 ms')}")


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
    print(f"\nPING, {PINGS_PER_S} a second, of a server without the module and of one with {leases} leases in {rooms} rooms, of which "
          f"{EXPIRING_PER_S} expire\neach second; {rounds} rounds of {seconds} s, medians in µs")
    seen = {(state, server): [] for state in ("nothing due", "leases expire") for server in ("bare", "leased")}
    expiring, opened = int(EXPIRING_PER_S * seconds), leases
    for _ in range(rounds):
        ping(bare, leased, seconds, seen, "nothing due")
        took = load(leased, "open", first=opened, leases=opened + expiring, rooms=rooms, due_in_ms=due_in_ms, due_per_s=EXPIRING_PER_S,
                    **MODES["pipelined"])["seconds"]
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
    print(f"  removal after the deadline: p50 {percentile(late, 0.5)} ms, p99 {percentile(late, 0.99)} ms, max {max(late)} ms  "
          f"{verdict(percentile(late, 0.99) <= 50, 'p99 ≤ 50 ms')}")


def ping(bare, leased, seconds, seen, state):
    servers = {"bare": bare, "leased": leased}
    before = {name: cpu_seconds(server) for name, server in servers.items()}
    printed = subprocess.run([LOAD, "ping", *(str(server.port) for server in servers.values()), f"per-s={PINGS_PER_S}", f"seconds={seconds}"],
                             check=True, stdout=subprocess.PIPE).stdout
    for (name, server), figures in zip(servers.items(), json.loads(printed)):
        seen[state, name].append(figures | {"busy": (cpu_seconds(server) - before[name]) / seconds})


# -------------------------------------------------------------------- the run

def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a look of some 20 seconds; its figures prove nothing")
    quick = parser.parse_args().quick
    subprocess.run(["rustc", "--edition", "2021", "-O", "-o", LOAD, HERE / "load.rs"], check=True)
    bare, leased = Bare(clock=None), Server(clock=None)
    try:
        version = bare.info("server")
        print(f"{version.get('server_name', 'redis')} {version.get('valkey_version', version['redis_version'])}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
        idle_expiry(leased, *((300, 300) if quick else (1000, 200)))
        heartbeats(bare, leased, *((3, 0.1, 10000, 100) if quick else (12, 0.25, 100000, 1000)))
        for server in (bare, leased):
            server.call("FLUSHALL", "SYNC")
        size = (100000, 1000) if quick else (1000000, 10000)
        memory(bare, leased, *size)
        busy_expiry(bare, leased, *((1, 1.5, *size, 2500) if quick else (3, 4, *size, 4500)))
        print(f"\nload {os.getloadavg()[0]:.1f}")
    finally:
        for server in (bare, leased):
            server.discard()


if __name__ == "__main__":
    main()
