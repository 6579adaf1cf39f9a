"""A link from a replica to its primary: a TCP proxy that can be cut (connections end, none is let in) or stalled (bytes wait)."""

import socket
import threading

CHUNK = 1 << 16


class Link:
    def __init__(self):
        self.target = None  # the port of the primary
        self.flowing = threading.Event()
        self.flowing.set()
        self.is_cut, self.open, self.lock = False, set(), threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                if self.is_cut:
                    raise OSError
                far = socket.create_connection(("127.0.0.1", self.target), timeout=1)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            with self.lock:
                self.open |= {near, far}
            for source, sink in (near, far), (far, near):
                threading.Thread(target=self.pass_on, args=(source, sink), daemon=True).start()

    def pass_on(self, source, sink):
        try:
            while data := source.recv(CHUNK):
                self.flowing.wait()
                sink.sendall(data)
        except OSError:
            pass
        self.end(source, sink)

    def end(self, *sockets):
        with self.lock:
            self.open -= set(sockets)
        for one in sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()

    def cut(self):
        self.is_cut = True
        self.end(*self.open)

    def stall(self):
        self.flowing.clear()

    def heal(self):
        self.is_cut = False
        self.flowing.set()

    def close(self):
        self.listener.close()
        self.cut()
        self.flowing.set()
