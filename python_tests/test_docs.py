"""The documents say what is: transcripts run, pages and tables agree with what the server tells.

LEASE.HELP and COMMAND DOCS come from the same rows in the module; pages and README are held to both.
"""

import pathlib
import re

import pytest

import transcripts

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PAGES = sorted((ROOT / "docs/commands").glob("lease.*.md"))
PARTS = ["Arguments", "Reply", "Errors", "Example", "Replication and expiry"]
NINE = 1894006800000  # 2030-01-07T09:00:00Z


def by_name(path):
    return str(path.relative_to(ROOT))


def table(text, head):
    """The rows of the table whose head line is `head`, as lists of cells."""
    body = text.split(head + "\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip("|"))] for row in body]


def code(cell):
    return re.findall(r"`([^`]+)`", cell)


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
    shown = ["1) (integer) 5", "2) \"<gen>\""]
    assert transcripts.matches(shown, ["1) (integer) 5", "2) \"1-a\""])
    assert transcripts.matches(["..."], ["1) (integer) 5"]) and transcripts.matches(["..."], [])
    for printed in [], ["1) (integer) 6", "2) \"1-a\""], ["1) (integer) 5", "2) \"1 a\""], ["1) (integer) 5", "2) \"1-a\"", "3) x"]:
        assert not transcripts.matches(shown, printed)
    assert not transcripts.matches(["..."], ["(error) ERR syntax error"])


# ---------------------------------------------------------------- pages, README, COMMAND DOCS, LEASE.HELP

def helped(server):
    """Syntax and summary by name, as LEASE.HELP tells them."""
    lines = [line.decode() for line in server.call("LEASE.HELP")]
    return {syntax.split(" ")[0]: (syntax, summary.strip()) for syntax, summary in zip(lines[::2], lines[1::2], strict=True)}


def documented(server, name):
    docs, = server.call("COMMAND", "DOCS", name).values()
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


def test_every_command_is_everywhere(server):
    names = set(helped(server))
    assert {name.decode().upper() for name in server.call("COMMAND LIST FILTERBY MODULE lease")} == names
    assert {path.stem.upper() for path in PAGES} == names
    readme = table((ROOT / "README.md").read_text(), "| command | |")
    assert {cell: summary for cell, summary in readme} == {
        f"[{name}](docs/commands/{name.lower()}.md)": summary for name, (_, summary) in helped(server).items()}
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
    assert re.findall(r"^## (.*)$", text, re.M) == PARTS
    if docs.get(b"arguments"):
        rows = table(text, "| argument | meaning |")
        assert {argument for cell, _ in rows for argument in code(cell)} == set(leaves(docs[b"arguments"]))


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
    assert {"ERR", "WRONGTYPE", "READONLY", "OOM"} <= {
        name.split(" ")[0] for cell, _ in table(errors, "| error | when |") for name in code(cell)}


@pytest.mark.parametrize("path", DOCUMENTS, ids=by_name)
def test_links_and_files(path):
    text = path.read_text()
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", text):
        file = path.parent / target if target else path
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text()), f"{target}#{anchor}"
    for file in re.findall(r"`((?:src|scripts|python_tests)/[\w/.]+\w)`", text):
        assert (ROOT / file).exists(), file


def anchors(text):
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
