"""A server process of our own with the module: a free port, a temporary directory, stopped by its process id."""

import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import redis

from .resp import Connection, Refused

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = pathlib.Path(os.environ.get("LEASE_MODULE", ROOT / "target/release/libredis_lease.so")).resolve()
# Absolute, as each server starts in a folder of its own.
EXECUTABLE = os.path.abspath(shutil.which(name := os.environ.get("REDIS_SERVER", "redis-server")) or name)

DEFAULTS = {
    "bind": "127.0.0.1",
    "daemonize": "no",
    "logfile": "server.log",
    "loglevel": "verbose",
    "save": '""',
    "appendonly": "no",
    "enable-debug-command": "yes",
    "enable-module-command": "yes",
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "3600",
    "notify-keyspace-events": '""',
}


def wait_until(condition, seconds=10, what=None):
    """Polls until `condition()` is true and returns what it gave: for what no event announces."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what or condition}"
        time.sleep(0.005)
    return value


def free_port():
    """Below the range of outgoing connections, so that none takes it while its server restarts."""
    while True:
        port = random.SystemRandom().randrange(20000, 30000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port


class Server:
    """`clock`: where the manual clock starts, in unix ms; None for the real clock. `lease`: settings of the module as load
    arguments; `redis`: settings of the server, as a dict each."""

    def __init__(self, clock=0, lease=None, redis=None, primary=None):
        self.clock, self.primary, self.replicas = clock, primary, []
        self.lease = {name: str(value) for name, value in (lease or {}).items()}
        self.folder = tempfile.TemporaryDirectory(prefix="lease-test-")
        self.path = pathlib.Path(self.folder.name).resolve()
        self.config = self.path / "server.conf"
        self.process, self.port, self.connections, self.by_db = None, None, [], {}
        self.aside = set()  # (db, room) whose events do not tell the whole story: renamed, copied, restored, flushed
        # The cron is where the server notices that a child has ended. Where time is real it runs as often as everywhere.
        often = {} if clock is None else {"hz": "100"}
        settings = DEFAULTS | often | {"dir": str(self.path)} | {name: str(value) for name, value in (redis or {}).items()}
        if primary:
            settings["replicaof"] = f"127.0.0.1 {primary.port}"
        self.config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()) + self.load_line())
        try:
            self.find_port_and_start()
        except BaseException:
            self.discard()
            raise

    def find_port_and_start(self):
        for _ in range(5):  # a free port may be taken before the server has it
            self.port = free_port()
            self.set(port=self.port)
            try:
                self.start()
                return
            except PortTaken:
                (self.path / "server.log").unlink()
        raise AssertionError("no free port in five tries")

    # ---------------------------------------------------------------- configuration file

    def load_line(self):
        clock = [] if self.clock is None else ["clock", "manual", str(self.clock)]
        settings = [word for pair in self.lease.items() for word in pair]
        return " ".join(["loadmodule", str(MODULE), *clock, *settings]) + "\n"

    def set(self, **settings):
        """Settings of the server from its next start on (`_` for `-`)."""
        with self.config.open("a") as config:
            config.writelines(f"{name.replace('_', '-')} {value}\n" for name, value in settings.items())

    def set_clock(self, now):
        """The manual clock of the next start."""
        self.clock = now
        text = re.sub(r"clock manual \d+", f"clock manual {now}", self.config.read_text())
        self.config.write_text(text)

    # ---------------------------------------------------------------- life

    def start(self):
        """Starts the process and waits until it answers and has loaded its data."""
        self.process = self.launched([EXECUTABLE, self.config], stdout=(self.path / "stdout").open("ab"), stderr=subprocess.STDOUT)
        wait_until(self.answers, 30, "the server answers")
        self.call = self.connect()

    def launched(self, command, **options):
        """The process, in a group of its own with the children that it forks to write files."""
        return subprocess.Popen(command, cwd=self.path, process_group=0, **options)

    def answers(self):
        """Whether this server, not one that has taken its port, answers and has loaded its data."""
        if self.process.poll() is not None:
            if "Address already in use" in self.log():
                raise PortTaken
            raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log()[-4000:]}")
        try:
            connection = Connection(self.port)
            try:
                connection("PING")
                return connection("CONFIG GET dir")[b"dir"] == bytes(self.path)
            finally:
                connection.close()
        except (redis.ConnectionError, OSError, Refused):
            return False

    def connect(self, protocol=3, **options):
        connection = Connection(self.port, protocol, **options)
        self.connections.append(connection)
        return connection

    def in_db(self, db):
        """The plain connection to a database."""
        if db not in self.by_db:
            self.by_db[db] = self.connect(db=db)
        return self.by_db[db]

    def stop(self, how="nosave"):
        """Ends the process: `nosave` or `save` by SHUTDOWN, `kill` by SIGKILL. The manual clock of the next start stands where it stood."""
        if not self.running():
            return
        if self.clock is not None:
            self.set_clock(self.now())
        if how == "kill":
            self.process.kill()
        else:
            self.call.send([["SHUTDOWN", how.upper()]])
        self.process.wait(60)
        self.close_connections()

    def restart(self, how="nosave", **settings):
        """Stops and starts again, with further settings; connections of before are closed, `call` is a new one."""
        self.stop(how)
        self.set(**settings)
        self.start()

    def running(self):
        return self.process is not None and self.process.poll() is None

    def discard(self):
        """The end of the test: the process is killed, and a child that still writes, its folder removed."""
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.close_connections()
        self.folder.cleanup()

    def close_connections(self):
        for connection in self.connections:
            connection.close()
        self.connections, self.by_db = [], {}

    # ---------------------------------------------------------------- replicas and time

    def replica(self, **options):
        """A replica of this server, in step with it."""
        clock = None if self.clock is None else self.now()
        replica = Server(clock=clock, lease=self.lease, primary=self, **options)
        self.replicas.append(replica)
        replica.in_step()
        return replica

    def in_step(self):
        """Waits until this replica has everything its primary has written."""

        def same():
            mine, theirs = self.info("replication"), self.primary.info("replication")
            return mine.get("master_link_status") == "up" and mine["slave_repl_offset"] == theirs["master_repl_offset"]

        wait_until(same, 30, "the replica is in step")

    def now(self):
        return self.call("LEASE.CLOCK GET")

    def advance(self, ms):
        """Lets `ms` pass on this node, its reaper run to the end, and then on its replicas."""
        now = self.call("LEASE.CLOCK", "ADVANCE", ms)
        self.replicas_follow()
        return now

    def replicas_follow(self):
        now = self.now()
        for replica in self.replicas:
            if replica.running() and replica.primary is self:
                replica.call("LEASE.CLOCK", "SET", now)

    # ---------------------------------------------------------------- what it tells

    def log(self):
        return "".join((self.path / name).read_text(errors="replace") for name in ("server.log", "stdout") if (self.path / name).exists())

    def info(self, section):
        """A section of INFO as a dict of numbers and texts."""
        lines = self.call("INFO", section).decode().splitlines()
        pairs = (line.split(":", 1) for line in lines if ":" in line)
        return {name: int(value) if re.fullmatch(r"-?\d+", value) else value for name, value in pairs}

    def lease_info(self):
        """`INFO lease` with the prefix off the names."""
        return {name.removeprefix("lease_"): value for name, value in self.info("lease").items()}

    def rewrite_aof(self, preamble):
        """Turns the AOF on and writes it anew, with or without an RDB at its head."""
        self.call("CONFIG", "SET", "aof-use-rdb-preamble", preamble)
        if self.call("CONFIG GET appendonly")[b"appendonly"] == b"no":
            self.call("CONFIG SET appendonly yes")  # rewrites by itself
        else:
            self.call("BGREWRITEAOF")

        def done():
            state = self.info("persistence")
            return not state["aof_rewrite_in_progress"] and not state["aof_rewrite_scheduled"]

        wait_until(done, 60, "the AOF is rewritten")
        assert self.info("persistence")["aof_last_bgrewrite_status"] == "ok", self.log()[-4000:]
        self.set(appendonly="yes", aof_use_rdb_preamble=preamble)


class PortTaken(Exception):
    pass
