"""The documents say what is: transcripts run, pages and tables agree with what the server tells.

LEASE.HELP and COMMAND DOCS come from the same rows in the module; pages and README are held to both.
"""

import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

import transcripts
from harness.resp import Refused

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PAGES = sorted((ROOT / "docs/commands").glob("lease.*.md"))
PARTS = ["Arguments", "Reply", "Errors", "Example", "Replication and expiry"]
ANY_COMMAND = "Only those that [every command](../errors.md#what-every-command-can-give) can give."
SOURCE = "".join(path.read_text() for path in (ROOT / "src").rglob("*.rs"))
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
NODE = shutil.which("node")
NINE = 1894006800000  # 2030-01-07T09:00:00Z

SESSION = "RENEW SEND REPLAY SNAPSHOT ACK"
# Which commands answer with which of the module's own errors. What any command may answer is on the errors page.
ANSWERS = {
    "STALE unknown": SESSION,
    **dict.fromkeys(("STALE expired", "STALE left", "STALE superseded", "STALE kicked", "STALE revoked"), f"OPEN {SESSION}"),
    **dict.fromkeys(("DENIED revoked", "DENIED nogrant"), f"OPEN POST {SESSION}"),
    "DENIED token": f"OPEN LEAVE {SESSION}",
    "DENIED readonly": "SEND POST",
    "HELD": "OPEN",
    "CONFLICT session": "OPEN",
    "CONFLICT message": "SEND POST",
    "LIMIT leases": "OPEN",
    "LIMIT id": "OPEN GRANT REVOKE SEND POST MARK HOLD SETPOLICY",
    "LIMIT meta": "OPEN RENEW",
    "LIMIT payload": "SEND POST",
    "LIMIT items": "MRENEW MARK ACK",
    "LIMIT exhausted": "OPEN GRANT SEND POST",
    "LOGSTATE": "OPEN GRANT SEND POST REPLAY SNAPSHOT",
    "TRYAGAIN": "SEND POST TRIM",
    "OOM": "OPEN RENEW SEND POST GRANT SETPOLICY",
}


def by_name(path):
    return str(path.relative_to(ROOT))


def table(text, head):
    """The rows of the table whose head line is `head`, as lists of cells."""
    body = text.split(head + "\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip("|"))] for row in body]


def code(text):
    """What stands between backticks, one or more."""
    return [inside for _, inside in re.findall(r"(?<!`)(`+)(?!`) ?(.+?) ?(?<!`)\1(?!`)", text, re.S)]


def scripts(path):
    return re.findall(r"^```js\n(.*?)^```$", path.read_text(), re.M | re.S)


# ---------------------------------------------------------------- transcripts


@pytest.mark.skipif(transcripts.CLI is None, reason="there is no redis-cli")
@pytest.mark.server(clock=NINE)
@pytest.mark.no_restart("the commands shown are those of the scenarios")
@pytest.mark.parametrize("page", [path for path in DOCUMENTS if transcripts.steps(path.read_text())], ids=by_name)
def test_transcripts(server, page):
    for step in transcripts.steps(page.read_text()):
        if step.later_ms:
            server.advance(step.later_ms)
            continue
        printed = transcripts.run(server, step)
        assert transcripts.matches(step.printed, printed), f"> {step.command}\n" + "\n".join(["shown:", *step.printed, "printed:", *printed])


def test_transcripts_can_fail():
    shown = ["1) (integer) 5", '2) "<gen>"']
    assert transcripts.matches(shown, ["1) (integer) 5", '2) "1-a"'])
    assert transcripts.matches(["..."], ["1) (integer) 5"]) and transcripts.matches(["..."], [])
    for printed in [], ["1) (integer) 6", '2) "1-a"'], ["1) (integer) 5", '2) "1 a"'], ["1) (integer) 5", '2) "1-a"', "3) x"]:
        assert not transcripts.matches(shown, printed)
    for fault in "(error) ERR syntax error", "Invalid argument(s)":
        assert not transcripts.matches(["..."], [fault])


# ---------------------------------------------------------------- code for browsers


@pytest.mark.skipif(NODE is None, reason="there is no node")
@pytest.mark.parametrize("page", [path for path in DOCUMENTS if scripts(path) and path.name != "clients.md"], ids=by_name)
def test_code_for_browsers(page, tmp_path):
    """A page's code runs in a browser that is played by a module of its name. (test_clients.py plays that of clients.md.)"""
    (tmp_path / "page.mjs").write_text("\n".join(scripts(page)))
    player = shutil.copy(pathlib.Path(__file__).parent / f"browser/{page.stem}.mjs", tmp_path)
    done = subprocess.run([NODE, player], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- pages, README, COMMAND DOCS, LEASE.HELP


def helped(server):
    """Syntax and summary by name, as LEASE.HELP tells them."""
    lines = [line.decode() for line in server.call("LEASE.HELP")]
    return {syntax.split(" ")[0]: (syntax, summary.strip()) for syntax, summary in zip(lines[::2], lines[1::2], strict=True)}


def documented(server, name):
    (docs,) = server.call("COMMAND", "DOCS", name).values()
    return docs


def syntax(arguments):
    """What the arguments of COMMAND DOCS read as, in the servers' own way of writing."""
    return "".join(" " + one(argument) for argument in arguments)


def one(argument):
    flags = argument.get(b"flags", [])
    separator = "|" if argument[b"type"] == b"oneof" else " "
    parts = [one(part) for part in argument.get(b"arguments", [])]
    name = [] if argument[b"type"] == b"pure-token" else [separator.join(parts) or argument[b"name"].decode()]
    written = " ".join([token.decode() for token in [argument.get(b"token")] if token] + name)
    if b"multiple" in flags:
        written += f" [{written} ...]"
    return f"[{written}]" if b"optional" in flags else written


def leaves(arguments):
    """The single arguments, each with its token: `DEVICE device`, `room`, `NX`."""
    for argument in arguments:
        if argument.get(b"arguments"):
            yield from leaves(argument[b"arguments"])
        else:
            yield one({**argument, b"flags": []})


def test_a_syntax_error_tells_how_it_is_written(server):
    told = {}
    for name, (written, _) in helped(server).items():
        (reply,) = server.call.pipeline([[name.lower(), *["1"] * 20]])
        if str(reply).startswith("ERR syntax error"):
            told[str(reply)] = f"ERR syntax error; {written}"
    assert len(told) > 15 and all(text == expected for text, expected in told.items()), told


def test_every_command_is_everywhere(server):
    names = set(helped(server))
    assert {name.decode().upper() for name in server.call("COMMAND LIST FILTERBY MODULE lease")} == names
    assert {path.stem.upper() for path in PAGES} == names
    readme = table((ROOT / "README.md").read_text(), "| command | |")
    assert {cell: summary for cell, summary in readme} == {
        f"[{name}](docs/commands/{name.lower()}.md)": summary for name, (_, summary) in helped(server).items()
    }
    overview = table((ROOT / "docs/commands/README.md").read_text(), "| command | |")
    assert {name for cell, _ in overview for name in re.findall(r"\[(LEASE\.\w+)\]", cell)} == names


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_page(server, page):
    name, text = page.stem.upper(), page.read_text()
    docs = documented(server, name)
    line, summary = helped(server)[name]
    assert line == name + syntax(docs.get(b"arguments", []))
    assert summary == docs[b"summary"].decode() + "."
    _, _, flags, *_ = server.call("COMMAND", "INFO", name)[0]
    flags = sorted(flag.decode() for flag in flags if flag != b"module")
    head = re.match(rf"# {name}\n\n```text\n(.*)\n```\n\n(.*)\n\n- Complexity: (.*)\n- Flags: (.*)\n- ACL categories: (.*)\n\n", text)
    assert head, "a page begins with syntax, summary, complexity, flags and categories"
    assert head.group(1, 2, 3) == (line, summary, docs[b"complexity"].decode())
    assert sorted(code(head[4])) == flags
    parts = re.split(r"^## (.*)$", text, flags=re.M)
    assert parts[1::2] == PARTS and all(map(str.strip, parts[2::2]))
    assert transcripts.steps(parts[8]), "the example is a transcript"
    if docs.get(b"arguments"):
        rows = table(text, "| argument | meaning |")
        assert {argument for cell, _ in rows for argument in code(cell)} == set(leaves(docs[b"arguments"]))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_errors_of_a_page(page):
    """It names each error of the module that its command answers with, no other, and what to do; each text of an ERR is one of the module's."""
    text = re.search(r"^## Errors\n(.*?)^## ", page.read_text(), re.M | re.S)[1]
    named = [error for cell, _ in table(text, "| error | what to do |") for error in code(cell)] if ANY_COMMAND not in text else []
    assert ANY_COMMAND in text or named
    own = {re.sub(r" <\w+>", "", error) for error in named if not error.startswith("ERR ")}
    assert own == {error for error, commands in ANSWERS.items() if page.stem.removeprefix("lease.").upper() in commands.split()}
    texts = {error.removeprefix("ERR ").removesuffix("…") for error in named if error.startswith("ERR ")}
    assert not {text for text in texts if text not in SOURCE}


@pytest.mark.server(clock=NINE)
@pytest.mark.no_restart("the commands shown are those of the scenarios")
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_reply_of_a_page(server, page):
    """Its first paragraph names the kinds of reply that the command gives in its example; a map says what it is in RESP2."""
    text = page.read_text()
    told = text.split("## Reply\n\n")[1].split("\n\n")[0].lower().replace("simple string", "bulk")
    given = set()
    for step in transcripts.steps(text):
        if step.later_ms:
            server.advance(step.later_ms)
            continue
        words = shlex.split(step.command)
        (reply,) = server.call.pipeline([words])
        if words[0].lower() == page.stem and not isinstance(reply, Refused):
            given.add(type(reply))
    assert given or page.stem == "lease.apply"
    names = {dict: "map](readme.md#replies)", list: "array", int: "integer", bytes: "bulk", type(None): "nil"}
    assert all(names[kind] in told for kind in given), (given, told)
    assert (dict in given) == (names[dict] in told)


def test_acl_categories(server):
    if b"lease" not in server.call("ACL CAT"):
        pytest.skip("this server has no categories of modules")
    categories = {"@" + name: server.call("COMMAND", "LIST", "FILTERBY", "ACLCAT", name) for name in ("lease", "dangerous")}
    for page in PAGES:
        held = {category for category, commands in categories.items() if page.stem.encode() in commands}
        assert set(code(re.search("- ACL categories: (.*)", page.read_text())[1])) == held, page.stem


def test_settings(server):
    rows = table((ROOT / "README.md").read_text(), "| name | default | | meaning |")
    told = {name.decode(): value.decode() for name, value in server.call("CONFIG GET lease.*").items()}
    assert {f"lease.{name}": default for (cell, default, _, _) in rows for name in code(cell)} == told
    per_room = {field.decode() for field, _, _ in server.call("LEASE.POLICY nowhere")}
    assert {name for (cell, _, room, _) in rows if room.startswith("room") for name in code(room) or code(cell)} == per_room


def test_metrics_and_errors(server):
    """INFO has what the operations page lists, and one counter for each error of the errors page."""
    told = server.info("lease").keys()
    page = (ROOT / "docs/operations.md").read_text()
    heads = "| gauge | |", "| counter | |", "| distribution: `_p50`, `_p99` at most 1/64 too high, exact `_max` | |"
    listed = [{name for cell, _ in table(page, head) for name in code(cell)} for head in heads]
    figures = {name + figure for name in listed.pop() for figure in ("_p50", "_p99", "_max")}
    errors = (ROOT / "docs/errors.md").read_text()
    answers = [code(cell)[0] for cell, *_ in table(errors, "| error | when | what the caller does |")]
    own = {"_".join(re.findall(r"(?<!<)\b\w+", answer)).lower() for answer in answers} | {"err", "wrongtype", "readonly", "oom"}
    assert told == figures.union(*listed, ("lease_rejected_" + error for error in own))
    assert {"ERR", "WRONGTYPE", "READONLY", "OOM"} <= {name.split(" ")[0] for cell, _ in table(errors, "| error | when |") for name in code(cell)}


def test_encodings():
    """The tables of encodings have the versions and tags that the code writes."""
    page = (ROOT / "docs/persistence.md").read_text()
    written = {name: (ROOT / f"src/core/{name}.rs").read_text() for name in ("codec", "snapshot")}
    versions = {version: re.search(r"^const VERSION: u8 = (\d+);", text, re.M)[1] for version, text in written.items()}
    told = {cells[0]: cells[2].split(";")[0] for cells in table(page, "| where | what | version |")}
    assert told["snapshot part"] == told["LEASE.APPLY in a rewritten AOF"] == versions["snapshot"]
    assert told["LEASE.APPLY in the AOF and to replicas"] == versions["codec"]
    tags = {number: name.split("_")[0].lower() for name, number in re.findall(r"pub const (\w+): u8 = (\d+);", written["codec"])}
    rows = table(page, "| effect | tag | | effect | tag |")
    effects = {tag: effect for first, number, _, second, other in rows for effect, tag in ((first, number), (second, other))}
    assert effects.keys() == tags.keys() and all(effects[tag].startswith(tags[tag]) for tag in tags), (effects, tags)


def spans(path):
    """What a document sets as code in a line, and the lines of its blocks for the shell."""
    text = path.read_text()
    shell = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    return code(re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)) + "".join(shell).splitlines()


def test_names(server):
    """No document names a command, setting, notification, INFO field, error or target of make that there is not."""
    settings = {name.decode() for name in server.call("CONFIG GET *")}
    own = {name.removeprefix("lease.") for name in settings if name.startswith("lease.")}
    endings = "|".join({name.rsplit("-")[-1] for name in own})
    notifications = code((ROOT / "docs/events.md").read_text().split("## Notifications")[1])
    fields = server.info("lease").keys()
    known = {
        r"LEASE\.[A-Z]+": {page.stem.upper() for page in PAGES},
        r"lease\.[a-z-]+": {*settings, *notifications, *(page.stem for page in PAGES), "lease.so", "lease.rs"},
        rf"[a-z-]+-(?:{endings})": own | settings,
        r"lease_\w+": {*fields, *(re.sub("_(p50|p99|max)$", "", name) for name in fields)},
        r"(?:STALE|DENIED|CONFLICT|LIMIT) [a-z]+": ANSWERS.keys(),
        r"make [a-z-]+": {"make " + target for target in re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)},
    }
    named = {
        (by_name(path), name, pattern)
        for path in DOCUMENTS
        for span in spans(path)
        for pattern in known
        for name in re.findall(rf"^{pattern}(?=$| )", span)
    }
    assert not {(path, name) for path, name, pattern in named if name not in known[pattern]}
    assert {pattern for *_, pattern in named} == known.keys()


@pytest.mark.parametrize("path", DOCUMENTS, ids=by_name)
def test_links_and_files(path):
    text = path.read_text()
    for target, anchor in LINK.findall(text):
        file = path.parent / target if target else path
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text()), f"{target}#{anchor}"
    for file in re.findall(r"`((?:src|scripts|python_tests)/[\w/.]+\w)`", text):
        assert (ROOT / file).exists(), file


def test_every_document_is_within_reach():
    """From the README, link by link."""
    found, waiting = set(), [ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        found.add(path)
        links = {(path.parent / target).resolve() for target, _ in LINK.findall(path.read_text()) if target.endswith(".md")}
        waiting += links - found
    assert set(DOCUMENTS) - found == set()


def anchors(text):
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
