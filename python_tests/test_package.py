"""The tarball that `make package` makes: complete, the same each time, and its module opens a lease."""

import os
import re
import subprocess
import tarfile

import pytest

from harness import process
from harness.process import ROOT

VERSION = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
NAME = f"redis-lease-{VERSION}-{os.uname().machine}-linux"


def output(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def packed(folder, **options):
    output(ROOT / "scripts/package.sh", folder, env=os.environ | {"LEASE_MODULE": str(process.MODULE)}, **options)
    return folder / f"{NAME}.tar.gz"


@pytest.fixture(scope="module")
def tarball(tmp_path_factory):
    return packed(tmp_path_factory.mktemp("dist"))


@pytest.fixture
def unpacked(tarball, tmp_path):
    with tarfile.open(tarball) as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path / NAME


@pytest.fixture
def module(unpacked, monkeypatch):
    """The packed module is what servers of the test load."""
    monkeypatch.setattr(process, "MODULE", unpacked / "libredis_lease.so")
    return process.MODULE


def test_what_is_in_it(unpacked):
    sums = dict(reversed(line.split("  ", 1)) for line in (unpacked / "SHA256SUMS").read_text().splitlines())
    files = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert sums.keys() | {"SHA256SUMS"} == files
    assert files > {
        "libredis_lease.so",
        "libredis_lease.so.debug",
        "LICENSE",
        "NOTICE",
        "README.md",
        "CHANGELOG.md",
        "examples/redis-lease.conf",
        "scripts/watch.py",
    }
    output("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=unpacked)
    links = re.findall(r"\]\((?!https:)([^)#]+)", (unpacked / "README.md").read_text())
    assert links and not [link for link in links if not (unpacked / link).exists()]
    assert f"\n## [{VERSION}]" in (unpacked / "CHANGELOG.md").read_text()
    notice = (unpacked / "NOTICE").read_text()
    assert re.search(r"\n\n=+\nredis-module \d\S+\n\n.*Redistribution and use", notice, re.S)
    assert "proptest" not in notice, "what only tests use is not linked"


def test_the_same_bytes_again(tarball, tmp_path):
    again = packed(tmp_path, umask=0o077)
    assert again.read_bytes() == tarball.read_bytes()


def test_a_module_that_names_a_folder_of_this_machine_is_refused(tmp_path):
    tell_tale = tmp_path / "module.so"
    tell_tale.write_bytes(process.MODULE.read_bytes())
    (tmp_path / "path").write_text(f"{ROOT}/src/lib.rs")
    output("objcopy", "--add-section", f".tale={tmp_path}/path", tell_tale)
    refused = subprocess.run(
        [ROOT / "scripts/package.sh", tmp_path], env=os.environ | {"LEASE_MODULE": str(tell_tale)}, stderr=subprocess.PIPE, text=True
    )
    assert refused.returncode == 1 and f"names {ROOT}" in refused.stderr


def test_it_opens_a_lease(module, start):
    server = start()
    (loaded,) = (one for one in server.call("MODULE LIST") if one[b"name"] == b"lease")  # Redis 8 brings one of its own
    major, minor, patch = map(int, VERSION.split("."))
    assert (loaded[b"path"], loaded[b"ver"]) == (bytes(module), major * 10000 + minor * 100 + patch)
    assert server.call("LEASE.OPEN r u1 SESSION a")[b"epoch"] == 1


def test_the_example_of_a_configuration(module, start):
    server = start(clock=None, redis={})
    server.stop()
    lines = (ROOT / "examples/redis-lease.conf").read_text().replace("/usr/local/lib/redis-lease/libredis_lease.so", str(module))
    assert str(module) in lines
    assert server.load_line() in server.config.read_text()
    server.config.write_text(server.config.read_text().replace(server.load_line(), lines))
    server.start()
    assert server.call("CONFIG GET maxmemory-policy")[b"maxmemory-policy"] == b"noeviction"
    assert server.call("LEASE.OPEN r u1 SESSION a")[b"epoch"] == 1


def test_symbols_of_a_crash_report(module):
    """An address that a crash report tells as `libredis_lease.so(+0x…)` leads to its line."""
    (address,) = re.findall(r"^(\w+) T RedisModule_OnLoad$", output("nm", "--dynamic", module), re.M)
    assert "/src/server/load.rs:" in output("addr2line", "-e", f"{module}.debug", address)
