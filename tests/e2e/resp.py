"""The service's Redis protocol: nginx with a stream block besides, and a client that hides nothing."""
import pathlib
import socket

from gateway import MODULE, Gateway
from ports import free_port

STREAM = "/usr/lib/nginx/modules/ngx_stream_module.so"
STREAM_MODULE = pathlib.Path(MODULE).with_name("ngx_stream_weir_module.so")


class RespGateway(Gateway):
    """A gateway whose stream block has one server that speaks RESP on .resp, with `stream` added to it."""

    def __init__(self, rules, stream="", outside="", resp_rules=True, listen_resp="", **more):
        super().__init__(rules, **more)
        self.resp = free_port()
        rules_line = f"weir_rules {self.folder}/rules;" if resp_rules else ""
        self.config.write_text(f"""
load_module {STREAM};
load_module {STREAM_MODULE};
{self.config.read_text()}
stream {{
    weir_segment {self.segment} {more.get("size", "4m")};
    {rules_line}
    {outside}
    server {{ listen 127.0.0.1:{self.resp} {listen_resp}; weir_resp; {stream.replace("@FOLDER@", str(self.folder))} }}
}}
""")


def encode(*words):
    """A command as clients send it."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


class Broken(Exception):
    """An error that the server replied."""


class Client:
    """One connection. Replies are what they are in Python; errors are Broken objects, not raised."""

    def __init__(self, port, timeout=10, tls=None):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self.socket = tls.wrap_socket(self.socket)
        self.file = self.socket.makefile("rb", buffering=1 << 16)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def do(self, *words):
        self.send(encode(*words))
        return self.reply()

    def pipeline(self, commands):
        self.send(b"".join(encode(*words) for words in commands))
        return [self.reply() for _ in commands]

    def reply(self):
        line = self.file.readline()
        if not line:
            raise EOFError
        assert line.endswith(b"\r\n"), line
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return Broken(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"_":
            return None
        if kind in b"$=":
            if int(rest) < 0:
                return None
            text = self.file.read(int(rest) + 2)[:-2]
            return text[4:] if kind == b"=" else text
        if kind in b"*~":
            return [self.reply() for _ in range(int(rest))]
        assert kind == b"%", line
        return {self.reply().decode(): self.reply() for _ in range(int(rest))}

    def is_closed(self):
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True


def fields(reply):
    """A map as RESP2 sends it: pairs in a list."""
    if isinstance(reply, dict):
        return reply
    assert isinstance(reply, list), reply
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2])}
