"""Fixtures: servers of a test, the client in each way of calling, and the check after every scenario."""

import os

import pytest

from harness import Client, Server, Way, aftermath, ways
from harness.process import EXECUTABLE

PLAIN = Way("plain", 3)


def pytest_generate_tests(metafunc):
    """Every test with a client runs in all ways, unless its mark `ways` names some."""
    if "way" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("ways")
        chosen = [way for way in ways.ALL if not mark or str(way) in mark.args]
        assert chosen, f"{metafunc.definition.nodeid}: the mark names no way"
        metafunc.parametrize("way", chosen, ids=str)


@pytest.fixture
def start(request):
    """Starts servers that end with the test: start(clock=0, lease={…}, redis={…})."""
    servers = request.node.servers = []

    def start(**options):
        servers.append(Server(**options))
        return servers[-1]

    yield start
    for server in servers:
        for node in (*server.replicas, server):
            node.discard()


@pytest.fixture
def server(request, start):
    """One server, started as the test's mark `server` says."""
    mark = request.node.get_closest_marker("server")
    return start(**(mark.kwargs if mark else {}))


@pytest.fixture
def client(server, way):
    return Client(server, way)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """The check after the scenario belongs to the test: it fails with it. Reload and restart once a test, in the plain way."""
    result = yield
    restart = pyfuncitem.funcargs.get("way", PLAIN) == PLAIN and not pyfuncitem.get_closest_marker("no_restart")
    for server in getattr(pyfuncitem, "servers", []):
        if server.running() and "master" == server.info("replication")["role"]:
            aftermath.check(server, restart)
    return result


@pytest.fixture
def figure(record_property):
    """Notes what a test has measured: figure(what, value)."""

    def note(what, value):
        record_property(what, (value, os.getloadavg()[0]))

    return note


def pytest_terminal_summary(terminalreporter):
    """All figures in a table, each beside the machine's load when it was seen."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    rows = [(report.nodeid.split("::")[-1], what, *seen) for report in reports for what, seen in report.user_properties]
    if not rows:
        return
    terminalreporter.section(f"figures: {EXECUTABLE}, {os.cpu_count()} CPUs")
    for number, (test, what, value, load) in enumerate(rows):
        if number == 0 or rows[number - 1][0] != test:
            terminalreporter.line(test)
        terminalreporter.line(f"  {what:<46}{value:<76}load {load:.1f}")
