"""Runs a program that does not live beyond a command it sends to a server: mortal.py FATE WHEN PROGRAM ARGUMENT...

WHEN is the number of that command, or its name, which stands for the first of them; MULTI is sent along with its whole transaction.

FATE is `before` (the command is not sent), `torn` (half of its bytes are: of a transaction, everything but its EXEC), `after` (it is
carried out, its reply not read), each with a SIGKILL; or `stopped` (SIGSTOP before the command is sent, and the program goes on when it
is woken up). What the command was is printed first. A connection's greetings do not count.
"""

import os
import re
import runpy
import select
import signal
import sys

from redis.connection import AbstractConnection

GREETINGS = {"HELLO", "CLIENT"}
fate, when, program = sys.argv[1:4]
sent, send = 0, AbstractConnection.send_packed_command


def send_and_die(connection, command, check_health=True):
    global sent, when
    whole = command if isinstance(command, bytes) else b"".join(command)
    name = re.search(rb"\$\d+\r\n(\S+)", whole)[1].decode()
    sent += name not in GREETINGS
    if name in GREETINGS or when not in (str(sent), name):
        return send(connection, command, check_health)
    when = None
    print(name, flush=True)
    if fate == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
        return send(connection, command, check_health)
    if fate == "torn":
        send(connection, [whole[: whole.rindex(b"*")] or whole[: len(whole) // 2]], check_health)
    elif fate == "after":
        send(connection, command, check_health)
        select.select([connection._sock], [], [])
    os.kill(os.getpid(), signal.SIGKILL)


AbstractConnection.send_packed_command = send_and_die
sys.argv = sys.argv[3:]
runpy.run_path(program, run_name="__main__")
