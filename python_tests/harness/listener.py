"""Keyspace notifications, in the order they were sent."""


class Listener:
    """Calling it gives all (key, event) since the last call. It turns the notifications on unless told not to."""

    def __init__(self, server, db=0, flags="KEd"):
        if flags is not None:
            server.call("CONFIG", "SET", "notify-keyspace-events", flags)
        self.prefix = b"__keyspace@%d__:" % db
        self.connection = server.connect(protocol=2)
        self.connection("PSUBSCRIBE", self.prefix + b"*")

    def __call__(self):
        # The server answers in order, so what PING brings back stands behind every notification sent before.
        self.connection.send([["PING"]])
        heard = []
        while (reply := self.connection.read())[0] != b"pong":
            _, _, channel, event = reply
            heard.append((channel.removeprefix(self.prefix), event.decode()))
        return heard
