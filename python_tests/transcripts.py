"""Transcripts in Markdown: what a reader would see in redis-cli, executed.

A transcript is a ```text block with prompts. The blocks of a page run in order on one server:

    $ redis-cli -3                       options of redis-cli from here on, in this block
    127.0.0.1:6379> LEASE.COUNT class    a command; what it prints stands below
    1) (integer) <number>                `<word>` stands for anything without spaces and quotes
    ...                                  any lines, or none, but no error
    (30 s later)                         time passes
"""

import re
import shutil
import subprocess
from dataclasses import dataclass, field

BLOCK = re.compile(r"^```text\n(.*?)^```$", re.S | re.M)
OPTIONS = re.compile(r"\$ redis-cli(?: (.*))?")
COMMAND = re.compile(r"127\.0\.0\.1:\d+> (.*)")
LATER = re.compile(r"\((\d+) s later\)")
ANY_LINES, ANY_WORD = "...", re.compile(r"<[a-z ]+>")
FAULTS = "(error)", "Invalid argument"  # the server's, and redis-cli's own: quotes that do not match

CLI = shutil.which("redis-cli")


@dataclass
class Step:
    """A command with what it is to print, or time that passes."""

    command: str = ""
    options: list = field(default_factory=list)
    printed: list = field(default_factory=list)
    later_ms: int = 0


def steps(page):
    """The steps of all transcripts in the text of a page."""
    found = []
    for block in BLOCK.findall(page):
        if COMMAND.search(block):
            found += block_steps(block)
    return found


def block_steps(block):
    found, options = [], []
    for line in filter(str.strip, block.splitlines()):
        if match := OPTIONS.fullmatch(line):
            options = (match[1] or "").split()
        elif match := COMMAND.fullmatch(line):
            found.append(Step(match[1], options))
        elif match := LATER.fullmatch(line):
            found.append(Step(later_ms=int(match[1]) * 1000))
        else:
            found[-1].printed.append(line)
    return found


def run(server, step):
    """What redis-cli prints, blank lines aside; the page's port is not the server's."""
    options = [option for option in step.options if not re.fullmatch(r"-p|\d+", option)]
    plain = [] if {"--raw", "--json"} & set(options) else ["--no-raw"]
    command = [CLI, "-p", str(server.port), *plain, *options]
    done = subprocess.run(command, input=step.command + "\n", capture_output=True, text=True, timeout=60, check=True)
    return [line.rstrip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]


def matches(expected, printed):
    """Whether these lines are what a transcript shows. What is left out is never an error."""
    if expected[:1] == [ANY_LINES] and printed[:1] and printed[0].startswith(FAULTS):
        return False
    pattern = "".join(r"(?:.*\n)*?" if line == ANY_LINES else line_pattern(line) + r"\n" for line in expected)
    return re.fullmatch(pattern, "".join(line + "\n" for line in printed)) is not None


def line_pattern(line):
    fixed = ANY_WORD.split(line.rstrip())
    return r"[^\s\"']+".join(map(re.escape, fixed))
