"""The contract as types and as published schemas: what the module says is like them, and each of them can tell what is not.

That every reply of every other test is like them, harness.witness sees to.
"""

import base64
import json
import re

import jsonschema
import pytest

import schemas
from harness import Refused, rooms, wait_until
from harness.conform import Unlike, names_of
from harness.contract import REFUSALS, REPLIES, AnyEvent, Grant, Holder
from harness.events import entry, stream
from harness.resp import words
from harness.witness import SCRIPT, Witness
from test_docs import ROOT, code, table

# The clock starts at 2030-01-07T09:00:00Z.
pytestmark = [pytest.mark.server(clock=1894006800000), pytest.mark.no_restart("a room under precision-ms does not tell how much is left")]
ODD = b"\xff\x00{"


def eventful(client):
    """A room with leases of every kind, and every type of event but `closed`."""
    client("LEASE.SETPOLICY r log-renewals yes announce-messages yes")
    client("LEASE.OPEN r u1 SESSION plain")
    client("LEASE.SEND r plain 1 m1 x")
    client("LEASE.POST", "r", ODD, ODD, ODD)
    client("LEASE.RENEW r plain 1 1")
    client("LEASE.RENEW r plain 1 2 STATE connected OBSERVED 5")
    client("LEASE.RENEW", "r", "plain", 1, 3, "OBSERVED", 2**63 - 1)
    client("LEASE.OPEN", "r", ODD, "DEVICE", ODD, "SESSION", ODD, "META", ODD)
    client("LEASE.RENEW", "r", ODD, 1, 2**63 - 1, "META", "")
    client("LEASE.OPEN r u2 SESSION superseded META x")
    client("LEASE.OPEN r u2 SESSION current TTL 3600000")
    client("LEASE.OPEN r u3 SESSION kicked")
    client("LEASE.KICK r USER u3")
    client("LEASE.OPEN r u4 SESSION left")
    client("LEASE.LEAVE r left 1")
    client("LEASE.OPEN r u5 SESSION closed")
    client("LEASE.RENEW r closed 1 1 STATE closed")
    client("LEASE.GRANT r u9 READ")
    client("LEASE.GRANT", "r", ODD, "WRITE", "UNTIL", client.now() + 3600000)
    client("LEASE.OPEN r u9 SESSION revoked")
    client("LEASE.REVOKE r u9")
    client("LEASE.REVOKE", "r", "u9", "DEVICE", ODD)
    client("LEASE.OPEN r u6 SESSION expired TTL 1000")
    client("LEASE.OPEN r u7 SESSION lingered")
    client("LEASE.LEAVE r lingered 1 LINGER 500")
    client("LEASE.OPEN r u8 SESSION lingering")
    client("LEASE.LEAVE r lingering 1 LINGER 20000")
    client.advance(2000)


def coarse(client):
    """A room that tells no movements."""
    client.server.aside.add((0, b"c"))  # its events do not all have `at`
    client("LEASE.SETPOLICY c precision-ms 60000 announce-messages yes")
    client("LEASE.OPEN c u1 SESSION coarse META x")
    client("LEASE.SEND c coarse 1 m1 x")
    client("LEASE.RENEW c coarse 1 1 STATE disconnected META y OBSERVED 7")
    client.advance(15000)
    client("LEASE.OPEN c u2 SESSION active")


def with_closed(client):
    """The room goes; on Redis 7.0 a moment passes until that is told."""
    client.raw("DEL r")
    wait_until(lambda: client.events("r", newest=1)[0]["type"] == "closed")


# -------------------------------------------------------------------- what is right, and what is not


def as_json(value):
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [as_json(part) for part in value]
    if isinstance(value, dict):
        return {as_json(name): as_json(part) for name, part in value.items()}
    return value


def flat(value):
    """What RESP2 makes of a reply of RESP3."""
    if isinstance(value, dict):
        return [part for pair in value.items() for part in map(flat, pair)]
    return [flat(part) for part in value] if isinstance(value, list) else value


FOREIGN = {b"foreign": 1}


def spoiled(value):
    """The value with one thing wrong, each thing in turn."""
    yield FOREIGN
    if isinstance(value, dict):
        yield value | FOREIGN
        yield from (value | {name: wrong} for name, part in value.items() for wrong in spoiled(part))
    elif isinstance(value, list):
        yield from (value[:place] + [wrong] + value[place + 1 :] for place, part in enumerate(value) for wrong in spoiled(part))


def lacking(value):
    """The value without one of its fields or members, each in turn."""
    if isinstance(value, dict):
        yield from ({name: part for name, part in value.items() if name != gone} for gone in value)
        yield from (value | {name: less} for name, part in value.items() for less in lacking(part))
    elif isinstance(value, list):
        yield from (value[:place] + value[place + 1 :] for place in range(len(value)))
        yield from (value[:place] + [less] + value[place + 1 :] for place, part in enumerate(value) for less in lacking(part))


def validator(name):
    """Of one of the published schemas."""
    schema = json.loads((schemas.FOLDER / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def passes(check, *args):
    try:
        check(*args)
    except Unlike:
        return False
    return True


# -------------------------------------------------------------------- replies

SOME = """OPEN r u1 SESSION a | OPEN r u1 SESSION a | RENEW r a 1 1 STATE failed | RENEW r a 1 1 STATE closed | OPEN r u2 SESSION b | MRENEW r b 1 1 a 1 1 b 2 1
    | OPEN r u2 SESSION c | SEND r c 2 m1 x | POST r u2 m2 x | POST r u2 m2 x | SNAPSHOT r c 2 | REPLAY r c 2 * 0 | REPLAY r c 2 * 9 | ACK r c 2 1
    | MARK r u2 default QUEUED 1 | LAG r | LEAVE r c 2 LINGER 500 | LEAVE r a 1 | GET r a | GET r b | GET r c | GET r d | ROSTER r ENDED | COUNT r | INSPECT r
    | GRANT r u3 READ UNTIL 1894007800000 VERSION 4 | GRANT r u3 READ VERSION 3 | REVOKE r u4 DEVICE d | GRANTS r | KICK r USER u2 | POLICY r
    | SETPOLICY r retain-count 1 | HOLD r h | HOLDS r | UNHOLD r h | TRIM r | STATS r | STATS s | REAP r | CLOCK GET | HELP""".split("|")


@pytest.fixture
def replies(server):
    """(command, reply as RESP3 has it) of every command, most of them in more than one form."""
    found = []
    for text in SOME:
        command = words("LEASE." + text.strip())
        found.append((command, server.call(*command)))
    assert {command[0] for command, _ in found} == REPLIES.keys() - {"LEASE.APPLY"}
    return found


def test_replies_are_held_to_their_types(replies):
    """A true reply passes, in either protocol and in the other one's form never; one that is spoiled does not."""
    for command, reply in replies:
        maps = reply != flat(reply)
        assert passes(Witness(3), command, reply) and passes(Witness(2), command, flat(reply)), command
        assert passes(Witness(3), command, flat(reply)) is not maps and passes(Witness(2), command, reply) is not maps, command
        for wrong in spoiled(reply):
            assert not passes(Witness(3), command, wrong) and not passes(Witness(2), command, flat(wrong)), (command, wrong)


def test_replies_are_held_in_transactions_and_scripts(replies):
    for command, reply in replies:
        for held in reply, FOREIGN:
            witness = Witness(3)
            for step in (["MULTI"], b"OK"), (command, b"QUEUED"), (["PING"], b"QUEUED"):
                witness(*step)
            assert passes(witness, ["EXEC"], [held, b"PONG"]) is (held is reply)
            assert passes(Witness(3), ["EVAL", SCRIPT, 0, *command], flat(held)) is (held is reply)


def test_replies_are_held_on_every_connection(client):
    connection = client.connection
    read, connection.read = connection.read, lambda **options: mistaken(read(**options))
    for ask in client, client.raw, client.transaction:
        with pytest.raises(Unlike):
            ask("LEASE.LEAVE r a 1")


def mistaken(reply):
    return list(map(mistaken, reply)) if isinstance(reply, list) else b"away" if reply == b"gone" else reply


@pytest.mark.parametrize("text", sorted(REFUSALS))
def test_refusals_are_held_to_the_contract(text):
    head, command = text.replace("#", "7"), ["LEASE.RENEW", "r", "a", 1, 1]
    assert passes(Witness(3), command, Refused(head + ": so it is"))
    for wrong in head, head + ":", head + " at all: so it is", head + " 7 7: so it is":
        assert not passes(Witness(3), command, Refused(wrong)), wrong


def test_replies_by_their_schema(replies):
    """The published schema and the types agree on what is right and what is wrong."""
    schema = validator("replies")
    for command, reply in replies:
        one = schema.evolve(schema={"$ref": f"#/$defs/{command[0]}", "$defs": schema.schema["$defs"]})
        one.validate(as_json(reply))
        for wrong in spoiled(reply):
            assert not one.is_valid(as_json(wrong)), (command, wrong)
        for less in lacking(reply):
            assert one.is_valid(as_json(less)) is passes(Witness(3), command, less), (command, less)


def test_replies_by_their_pages():
    """The tables of the commands' pages have the fields of the types."""
    listed = {"LEASE.GRANTS": Grant, "LEASE.LAG": Holder}
    for name, kind in REPLIES.items():
        page = (ROOT / f"docs/commands/{name.lower()}.md").read_text()
        if "| field | type | meaning |" in page:
            told = {field for cell, *_ in table(page, "| field | type | meaning |") for field in code(cell)}
            assert told == names_of(listed.get(name, kind), lambda _: True), name


def test_refusals_by_their_page():
    rows = table((ROOT / "docs/errors.md").read_text(), "| error | when | what the caller does |")
    assert {re.sub("<.*>", "#", code(cell)[0]) for cell, *_ in rows} == REFUSALS


# -------------------------------------------------------------------- events


@pytest.mark.ways("plain-resp3")
def test_events_by_their_types_and_schema(client):
    eventful(client)
    coarse(client)
    with_closed(client)
    schema, types = validator("event"), set()
    for id, values in (one for room in ("r", "c") for one in client.raw("XRANGE", stream(room), "-", "+")):
        event = dict(zip(values[::2], values[1::2]))
        types.add(event[b"type"].decode())
        entry(id, values)
        schema.validate(as_json(event))
        assert not any(passes(entry, id, flat(event | {name: b""})) for name in (b"v", b"type", b"room", b"n", b"gen", b"log_seq"))
        changes = [{name: value} for name in event | dict.fromkeys((b"active", b"session", b"seq", b"foreign")) for value in (b"", b"x", b"01", b"1")]
        for changed in (*lacking(event), *(event | change for change in changes)):
            assert passes(entry, id, flat(changed)) is schema.is_valid(as_json(changed)), changed
    page = (ROOT / "docs/events.md").read_text()
    assert {name for cell, _ in table(page, "| type | when |") for name in code(cell)} == types
    assert {name for cell, *_ in table(page, "| field | in | meaning |") for name in code(cell)} == names_of(AnyEvent, lambda _: True)


@pytest.mark.parametrize("name", schemas.WRITTEN)
def test_schemas_are_those_of_the_types(name):
    assert (schemas.FOLDER / f"{name}.json").read_text() == schemas.written(name), "run python_tests/schemas.py"


# -------------------------------------------------------------------- INSPECT


@pytest.mark.ways("plain-resp3")
def test_schema_of_inspect(client):
    eventful(client)
    coarse(client)
    documents = []
    for room in "r", "c":
        documents += [client.raw("LEASE.INSPECT", room), client.raw("LEASE.INSPECT", room, "COUNT", 1)]
        leases, _ = rooms.leases(client, room)
        documents += [client.raw("LEASE.INSPECT", room, "SESSION", session) for session in leases]
    documents, schema = list(map(json.loads, documents)), validator("inspect")
    for document in documents:
        schema.validate(document)
        for wrong in (*map(as_json, spoiled(document)), *lacking(document)):
            # What it lists may be fewer.
            assert not schema.is_valid(wrong) or len(wrong["leases"]) < len(document["leases"]), wrong
    told = [document["lease"] for document in documents if "lease" in document]
    assert [*told[0]] == [*client("LEASE.GET r plain")]
    assert {lease["reason"] for lease in told} == {None, "expired", "left", "superseded", "revoked", "kicked"}
    assert {lease["state"] for lease in told} == {"active", "lingering", "ended"}
    assert {"base64": base64.b64encode(ODD).decode()} in [lease["session"] for lease in told]
    assert any(lease["seq"] is None for lease in told)
