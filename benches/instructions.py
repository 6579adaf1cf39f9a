"""Instructions that a heartbeat or a removal costs the server, counted by valgrind: the same, within two per cent, however busy
the machine is. Mispredicted branches and cache misses are not in them, so this finds causes and `run.py` has the last word.
It needs what `make bench` has built: `.venv/bin/python benches/instructions.py`.
"""

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

from run import LOADS, LONGEST_TTL_MS, MODES, SET, Bare, Server, load, script  # noqa: E402
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


def row(name, mode, counts, beats, base):
    total, of_module = (count / beats for count in counts)
    print(f"{name:<24}{mode:<12}{total:>8.0f}{of_module:>12.0f}{f'{base / total:.2f}' if base else '':>8}", flush=True)
    return total


def main():
    print(f"{'':<36}{'in all':>8}{'the module':>12}{'to SET':>8}")
    bare, leased = Bare(clock=None), Server(clock=0)
    try:
        sha, servers, lap = script(bare), {"bare": bare, "leased": leased}, 1000
        load(leased, "open", ttl_ms=LONGEST_TTL_MS, **SIZE, **MODES["pipelined"])
        load(bare, "lua-open", ttl_ms=LONGEST_TTL_MS, sha=sha, **SIZE, **MODES["pipelined"])
        for kind_of_set in ("bare", "leased"):
            load(servers[kind_of_set], "set", **SIZE, **MODES["pipelined"])
        for mode in MODES:
            base = None
            for name, (kind, server, _) in LOADS.items():
                lap += 1
                counts = counted(servers[server], lambda: load(servers[server], kind, lap=lap, sha=sha, **SIZE, **MODES[mode] | {"connections": 1}))
                total = row(name, mode, counts, SIZE["leases"], base)
                base = total if name == SET else base
        row("removal by the reaper", "", counted(leased, lambda: leased.call("LEASE.CLOCK", "ADVANCE", LONGEST_TTL_MS)), SIZE["leases"], None)
    finally:
        for server in (bare, leased):
            server.discard()
        FOLDER.cleanup()


if __name__ == "__main__":
    main()
