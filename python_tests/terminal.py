"""A program in a terminal of its own: what it shows, and keys typed to it."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    def __init__(self, command, columns=80, lines=24, **options):
        self.near, far = pty.openpty()
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = os.environ | {"TERM": "xterm"}
        # A session of its own, whose terminal this is: so that ^C reaches the program and nobody else.
        self.process = subprocess.Popen(
            command,
            stdin=far,
            stdout=far,
            stderr=far,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            **options,
        )
        os.close(far)
        self.everything = self.written = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.near)

    def type(self, keys):
        os.write(self.near, keys.encode())

    def text(self):
        """All it has written, without colours and movements of the cursor."""
        return CONTROL.sub("", self.written)

    def shows(self, text, seconds=10):
        """Waits until the text has been written after what was waited for before; what was written up to its end is then done with."""
        end = time.monotonic() + seconds
        while text not in self.text():
            assert time.monotonic() < end, f"{text!r} was not shown, but:\n{self.text()}"
            self.read(end - time.monotonic())
        self.written = self.text().split(text, 1)[1]

    def read(self, seconds):
        readable, _, _ = select.select([self.near], [], [], max(0, seconds))
        if readable:
            try:
                written = os.read(self.near, 65536).decode(errors="replace")
            except OSError:  # it has closed its side
                return time.sleep(0.01)
            self.everything += written
            self.written += written

    def ends(self, seconds=10):
        """Waits for its end; the exit code."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it goes on:\n{self.text()}"
            self.read(0.05)
        self.read(0)
        return self.process.returncode
