"""Instructions that a heartbeat, a message, a page or a removal costs the server, counted by valgrind: the same, within two
per cent, however busy the machine is. Mispredicted branches and cache misses are not in them, so this finds causes and
`run.py` has the last word. Valgrind's CPU has no instructions for SHA-256: where there are some, a message costs less.
It needs what `make bench` has built: `.venv/bin/python benches/instructions.py`.
"""

import itertools
import os
import pathlib
import shutil
import tempfile

SERVER = shutil.which(os.environ.get("REDIS_SERVER", "redis-server"))
FOLDER = tempfile.TemporaryDirectory(prefix="lease-instructions-")
# The server under valgrind, which writes what it has counted and starts anew whenever an ECHO comes.
WRAPPER = pathlib.Path(FOLDER.name, "server")
WRAPPER.write_text(f"""#!/bin/sh
exec valgrind -q --tool=callgrind --callgrind-out-file={FOLDER.name}/counts.$$ --compress-strings=no --compress-pos=no --dump-before=echoCommand {SERVER} "$@"
""")
WRAPPER.chmod(0o700)
os.environ["REDIS_SERVER"] = str(WRAPPER)

import run  # noqa: E402
from run import LONGEST_TTL_MS, MODES, Bare, Server, load  # noqa: E402

from harness.process import MODULE  # noqa: E402

SIZE = {"leases": 2000, "rooms": 20}


def counted(server, work):
    """Instructions of the whole server and of the module alone while `work` runs."""
    server.call("ECHO before")
    work()
    server.call("ECHO after")
    newest = max(pathlib.Path(FOLDER.name).glob(f"counts.{server.process.pid}.*"), key=os.path.getmtime)
    total = of_module = 0
    module = called = False
    for line in newest.read_text().splitlines():
        if line.startswith("ob="):
            module = line.endswith(MODULE.name)
        elif line.startswith("calls="):
            called = True  # the next line tells what the call cost in all; its own lines tell it too
        elif line[:1].isdigit():
            if not called:
                total += int(line.split()[1])
                of_module += module * int(line.split()[1])
            called = False
    return total, of_module


def row(name, mode, counts, each, base=None):
    total, of_module = (count / each for count in counts)
    print(f"{name:<28}{mode:<12}{total:>8.0f}{of_module:>12.0f}{f'{base / total:.2f}' if base else '':>8}", flush=True)
    return total


def table(servers, loads, mode, laps, leases, **options):
    """What each load costs for each lease, and how it compares with the first."""
    base = None
    for name, (kind, server, _) in loads.items():
        counts = counted(servers[server], lambda: load(servers[server], kind, lap=next(laps), leases=leases, **options))
        total = row(name, mode, counts, leases, base)
        base = base or total


def main():
    print(f"{'':<40}{'in all':>8}{'the module':>12}{'to first':>8}")
    bare, leased = Bare(clock=None), Server(clock=0)
    try:
        servers, laps, sized = {"bare": bare, "leased": leased}, itertools.count(1001), SIZE | {"sha": run.script(bare)}
        load(leased, "open", ttl_ms=LONGEST_TTL_MS, **SIZE, **MODES["pipelined"])
        load(bare, "lua-open", ttl_ms=LONGEST_TTL_MS, **sized, **MODES["pipelined"])
        for server in servers.values():
            load(server, "set", **SIZE, **MODES["pipelined"])
        for mode in MODES:
            table(servers, run.LOADS, mode, laps, **sized, **MODES[mode] | {"connections": 1})
        row("removal by the reaper", "", counted(leased, lambda: leased.call("LEASE.CLOCK", "ADVANCE", LONGEST_TTL_MS)), SIZE["leases"])
        run.empty(bare, leased)
        run.open_senders(bare, leased, **sized)
        table(servers, run.SENDS, "pipelined", laps, **sized, **MODES["pipelined"] | {"connections": 1})
        run.empty(leased)
        run.fill_logs(leased, 1)
        table(servers, run.PAGES, "a page", laps, leases=1, rooms=1, connections=1, pipeline=1)
        run.open_devices(leased)
        row("removal by a REVOKE", "", counted(leased, lambda: run.revoke_devices(leased)), run.REVOKED_DEVICES)
    finally:
        for server in (bare, leased):
            server.discard()
        FOLDER.cleanup()


if __name__ == "__main__":
    main()
