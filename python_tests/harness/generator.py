"""benches/load.rs beside a test or benchmark: a process of its own, so that Python's threads are neither its limit nor timed."""

import functools
import json
import os
import subprocess

from .process import ROOT

PROBES_PER_S = 200


@functools.cache
def program():
    built = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "load"
    built.parent.mkdir(exist_ok=True)
    subprocess.run(["rustc", "--edition", "2021", "-O", "-o", built, ROOT / "benches/load.rs"], check=True)
    return built


class Generator:
    """One run of the program, under way."""

    def __init__(self, *words, **options):
        pairs = (f"{name.replace('_', '-')}={value}" for name, value in options.items())
        self.process = subprocess.Popen([program(), *map(str, words), *pairs], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def end(self):
        """What it prints once it is done; probes without a time of their own are done now."""
        printed, _ = self.process.communicate()
        assert self.process.returncode == 0, "the load generator has failed"
        return json.loads(printed)


def load(server, kind, **options):
    """A load from begin to end: what it prints, and the seconds of CPU it cost the server's main thread."""
    before = cpu_seconds(server)
    return Generator(kind, server.port, **options).end() | {"cpu": cpu_seconds(server) - before}


def cpu_seconds(server):
    info = server.info("cpu")
    return sum(float(info[f"used_cpu_{kind}_main_thread"]) for kind in ("user", "sys"))


def ping_each(servers, **options):
    """What a PING of each server takes, all at the same time."""
    return Generator("probe", *(f"ping:{server.port}" for server in servers), **options).end()


class Probes:
    """What commands take from now on until `end`, each kind on a connection of its own."""

    def __init__(self, server, *kinds):
        self.kinds = kinds
        self.generator = Generator("probe", *(f"{kind}:{server.port}" for kind in kinds), per_s=PROBES_PER_S)

    def end(self):
        return dict(zip(self.kinds, self.generator.end()))
