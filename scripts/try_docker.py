"""Tries the Dockerfile: `make test-docker`.

With a Docker engine its images are built, for Redis and for Valkey, and started. Without one, as root, its steps are carried out
in clean Debian roots that stand in for the base images: that shows whether the steps work and the server starts as the
image's user, and leaves open what only the base images can tell.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
VALKEY = "valkey/valkey:8.1-bookworm"
OPTIONS = ["--lease.ttl-ms", "20000", "--loglevel", "verbose"]
# What a started image answers, as redis-cli prints it.
ANSWERS = {
    "CONFIG GET lease.ttl-ms": r"20000",
    "LEASE.OPEN class ann SESSION tab": r"epoch\s+1\b",
    "SAVE": r"OK",
}


def output(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout.strip()


def until_healthy(healthy, what):
    for _ in range(60):
        if healthy():
            return
        time.sleep(1)
    sys.exit(f"{what} is not healthy within a minute")


def ask(*client):
    for command, expected in ANSWERS.items():
        answer = output(*client, *command.split(" "))
        assert re.search(expected, answer), f"{command}: {answer}"


# -------------------------------------------------------------------- with an engine


def build_and_start(image, *options):
    output("docker", "build", "--tag", image, *options, str(ROOT))
    container = output("docker", "run", "--detach", image, *OPTIONS)
    try:
        until_healthy(lambda: output("docker", "inspect", "--format", "{{.State.Health.Status}}", container) == "healthy", image)
        assert output("docker", "exec", container, "id", "-u") == "999"
        ask("docker", "exec", container, "redis-cli")
    finally:
        output("docker", "rm", "--force", container)


# -------------------------------------------------------------------- without one

# What the steps rely on of the base images: by the head of their names, what makes it of a bare Debian, and where RUN works.
RUST = "apt-get -qq update && apt-get -qq install --no-install-recommends ca-certificates gcc libc6-dev"
REDIS = """groupadd -r -g 999 redis && useradd -r -g redis -u 999 redis && mkdir /data && chown redis:redis /data
apt-get -qq update && apt-get -qq install --no-install-recommends redis-server
cat >/usr/local/bin/docker-entrypoint.sh <<'SCRIPT' && chmod 755 /usr/local/bin/docker-entrypoint.sh
#!/bin/sh
case $1 in -*|*.conf) set -- redis-server "$@" ;; esac
exec "$@"
SCRIPT"""
BASES = {"rust:": (RUST, "/"), "redis:": (REDIS, "/data")}
ENVIRONMENT = {
    "PATH": "/usr/local/rustup/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "CARGO_HOME": "/usr/local/cargo",
    "CARGO_NET_OFFLINE": "true",
    "DEBIAN_FRONTEND": "noninteractive",
}


class Stage:
    """A root, and what the instructions since its FROM say of the image."""

    def __init__(self, root, base):
        prepare, directory = next(stand_in for head, stand_in in BASES.items() if base.startswith(head))
        self.root, self.directory, self.user, self.health, self.entrypoint = root, "/", "0:0", [], []
        # This machine's Rust and the crates it has fetched take the place of the official image's.
        cargo = os.environ.get("CARGO_HOME", f"{pathlib.Path.home()}/.cargo")
        self.mounts = {"/proc": "proc", output("rustc", "--print", "sysroot"): "usr/local/rustup", cargo: "usr/local/cargo"}
        for target in self.mounts.values():
            (root / target).mkdir(parents=True, exist_ok=True)
        subprocess.run(self.within("/bin/sh", "-ec", prepare), check=True, stdout=subprocess.DEVNULL)
        self.directory = directory

    def within(self, *command, alone=False):
        """A command as the image's user would run it; `alone`: with a network of its own."""
        variables = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        inner = ["env", "-i", "-C", self.directory, *variables, *command]
        lines = [shlex.join(["mount", "--rbind", source, f"{self.root}/{target}"]) for source, target in self.mounts.items()]
        lines += ["ip link set lo up"] if alone else []
        lines += [shlex.join(["exec", "chroot", f"--userspec={self.user}", str(self.root), *inner])]
        return ["unshare", "--mount", *(["--net"] if alone else []), "/bin/sh", "-ec", "\n".join(lines)]

    def copy(self, origin, sources, target):
        place = self.root / os.path.join(self.directory, target).lstrip("/")
        if target.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
        for source in sources:
            source = origin / source.lstrip("/")
            if source.is_dir():
                shutil.copytree(source, place, dirs_exist_ok=True)
            else:
                shutil.copy(source, place)

    def carry_out(self, instruction, value, stages, context):
        if instruction == "RUN":
            subprocess.run(self.within("/bin/sh", "-c", value), check=True)
        elif instruction == "WORKDIR":
            (self.root / value.lstrip("/")).mkdir(parents=True, exist_ok=True)
            self.directory = value
        elif instruction == "COPY":
            *sources, target = value.split()
            origin = stages[sources.pop(0).removeprefix("--from=")].root if value.startswith("--from=") else context
            self.copy(origin, sources, target)
        elif instruction == "USER":
            self.user = value
        elif instruction == "HEALTHCHECK":
            self.health = json.loads(value.split("CMD ")[1])
        elif instruction == "ENTRYPOINT":
            self.entrypoint = json.loads(value)
        else:
            sys.exit(f"no step is known for {instruction}")


def instructions():
    """The Dockerfile's instructions and their values, with the defaults of its build arguments in place."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.M).replace("\\\n", "")
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.M))
    for line in text.splitlines():
        if line and not line.startswith("ARG "):
            yield re.sub(r"\$\{(\w+)\}", lambda name: defaults[name[1]], line).split(" ", 1)


def carry_out_and_start(work):
    bare, context, stages = work / "bare", work / "context", {}
    subprocess.run(["debootstrap", "--variant=minbase", "bookworm", bare, mirror()], check=True, stdout=subprocess.DEVNULL)
    context.mkdir()
    for name in re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.M):
        subprocess.run(["cp", "-r", "--parents", name, context], check=True, cwd=ROOT)
    for instruction, value in instructions():
        print("--", instruction, value, flush=True)
        if instruction == "FROM":
            base, _, name = value.partition(" AS ")
            subprocess.run(["cp", "-a", bare, root := work / f"stage{len(stages)}"], check=True)
            stage = stages[name] = Stage(root, base)
        else:
            stage.carry_out(instruction, value, stages, context)
    start(stage)


def mirror():
    """The one this machine's apt uses."""
    return re.search(r"^\S+/debian/?$", output("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"), re.M)[0]


def start(stage):
    """The image's server, with options, in a network of its own, whose port is therefore free."""
    server = subprocess.Popen(stage.within(*stage.entrypoint, *OPTIONS, alone=True), stdout=subprocess.DEVNULL)
    beside = ["nsenter", "--net", "--target", str(server.pid), "chroot", str(stage.root)]
    try:
        until_healthy(lambda: subprocess.run([*beside, *stage.health], capture_output=True).returncode == 0, "the server")
        of = os.stat(f"/proc/{server.pid}")
        assert f"{of.st_uid}:{of.st_gid}" == stage.user
        ask(*beside, "redis-cli")
    finally:
        server.terminate()
        server.wait()


if shutil.which("docker") and subprocess.run(["docker", "info"], capture_output=True).returncode == 0:
    build_and_start("redis-lease")
    build_and_start("valkey-lease", "--build-arg", f"SERVER={VALKEY}")
    print("both images are built, become healthy and open a lease")
else:
    with tempfile.TemporaryDirectory() as work:
        carry_out_and_start(pathlib.Path(work))
    print(
        "the steps work in clean roots, and their server becomes healthy and opens a lease\n"
        "not tried, for no Docker engine runs here: the base images, Valkey's at all; the Debian roots stood in for them with this machine's Rust"
    )
