"""RESP: broken bytes, clients that are slow or do not read, many of them, TLS."""
import contextlib
import os
import pathlib
import random
import resource
import socket
import ssl
import subprocess
import threading
import time

import pytest

from clients import get
from gateway import wait_until
from resp import Broken, Client, RespGateway, encode

RULES = "rules: [ { name: all, limit: 100000, window: 1h } ]\n"


@pytest.fixture
def server(gateway):
    """Makes gateways that speak RESP."""
    return lambda **more: gateway(RULES, kind=RespGateway, **more)


def memory(pid):
    """Private bytes of a process."""
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024


@pytest.mark.parametrize("data, output", [
    (b"*1\r\n$-1\r\n", "invalid bulk length"),
    (b"*1\r\n$99999999999\r\n", "invalid bulk length"),
    (b"*1\r\n$18446744073709551615\r\n", "invalid bulk length"),
    (b"*99999999999\r\n", "invalid multibulk length"),
    (b"*1025\r\n", "invalid multibulk length"),
    (b"*1\r\n$4\r\nPINGxx", "expected a line's end after a bulk string"),
    (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
    (b"*1\r\n$1048577\r\n", "invalid bulk length"),
    (b"*2\r\n$4\r\nECHO\r\n$1048576\r\n", "too big command"),
    (b"PING \"a\r\n", "unbalanced quotes in request"),
])
def test_broken_bytes(server, data, output):
    s = server()
    with Client(s.resp) as good, Client(s.resp) as c:
        c.send(encode("CL.THROTTLE", "k", 15, 30, 60) + data)
        assert c.reply() == [0, 16, 15, -1, 2]  # what came before is answered
        assert str(c.reply()) == f"ERR Protocol error: {output}"
        assert c.is_closed()
        assert good.do("PING") == "PONG"


def test_a_line_without_end(server):
    s = server()
    with Client(s.resp) as c:
        c.send(b"x" * 65536)
        assert str(c.reply()) == "ERR Protocol error: too big inline request"
        assert c.is_closed()


def test_nothing_is_skipped_silently(server):
    s = server()
    with Client(s.resp) as c:
        c.send(b"*0\r\n*-1\r\n\r\n\n" + encode("") + encode("PING"))
        assert "unknown command ''" in str(c.reply())
        assert c.reply() == "PONG"


def test_one_byte_at_a_time(server):
    s = server()
    with Client(s.resp) as c:
        for byte in encode("CL.THROTTLE", "slow", 15, 30, 60) + b"PING\r\n":
            c.send(bytes([byte]))
            time.sleep(0.002)
        assert c.reply() == [0, 16, 15, -1, 2]
        assert c.reply() == "PONG"


def test_long_commands_in_pieces(server):
    s = server()
    with Client(s.resp) as c:
        for size in (4000, 4096, 5000, 65000, 70000, 300000, 1000000):
            data = encode("ECHO", "x" * size) + encode("ECHO", "y")
            step = max(1, size // 50)
            for at in range(0, len(data), step):
                c.send(data[at:at + step])
                if size < 70000:
                    time.sleep(0.001)
            reply = c.reply()
            assert reply == b"x" * size if size <= 65536 else isinstance(reply, Broken), size
            assert c.reply() == b"y"
        assert isinstance(c.do("PING", *["a"] * 1023), Broken)  # 1024 arguments are no broken protocol
        assert c.do("PING") == "PONG"


def test_half_a_command_and_gone(server):
    s = server()
    worker = s.workers()
    for data in (b"*", b"*3\r\n$11\r\nCL.TH", b"PIN", encode("ECHO", "x" * 300000)[:200000]):
        for _ in range(20):
            with Client(s.resp) as c:
                c.send(data)
    with Client(s.resp) as c:
        assert c.do("PING") == "PONG"
    assert s.workers() == worker


def test_pipeline_of_a_client_that_does_not_read(server):
    """100,000 commands: bounded memory, others undisturbed; and all replies in order once it reads."""
    s = server()
    worker = s.workers()[0]
    before = memory(worker)
    count, filling = 100000, "x" * 500
    data = b"".join(encode("CL.THROTTLE", "key", 10**6, 10**6, 60) + encode("ECHO", f"{i}{filling}")
                    for i in range(count // 2))
    with Client(s.resp) as c, Client(s.resp) as other:
        c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        c.socket.setblocking(False)
        sent, stuck = 0, time.monotonic()
        while sent < len(data) and time.monotonic() - stuck < 0.5:
            try:
                sent += c.socket.send(data[sent:sent + 1000000])
                stuck = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
                assert other.do("PING") == "PONG"
        assert sent < len(data) and memory(worker) - before < 3 << 20
        c.socket.setblocking(True)
        c.socket.settimeout(10)
        rest = threading.Thread(target=c.socket.sendall, args=(data[sent:],))
        rest.start()
        for i in range(count // 2):
            assert c.reply()[0] == 0
            assert c.reply() == f"{i}{filling}".encode()
        rest.join()
    if not os.environ.get("WEIR_PRELOAD"):  # ASan keeps what is freed
        wait_until(lambda: memory(worker) - before < 2 << 20, "the memory back")


def test_replies_longer_than_requests(server):
    """COMMAND is 9 bytes and its reply some thousand: the room for replies bounds how many are made at once."""
    s = server()
    worker = s.workers()[0]
    with Client(s.resp) as c:
        once = len(c.do("COMMAND"))
        before = memory(worker)
        c.send(b"COMMAND\r\n" * 5000)
        time.sleep(0.3)
        assert memory(worker) - before < 3 << 20
        for _ in range(5000):
            assert len(c.reply()) == once


def test_ten_thousand_idle_connections(server):
    count = 10_000
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))  # inherited by the worker
    s = server()
    worker = s.workers()[0]
    before = memory(worker)
    idle = [socket.create_connection(("127.0.0.1", s.resp)) for _ in range(count)]
    try:
        for one in idle[::100]:  # everyone may wake up
            one.sendall(b"PING\r\n")
            assert one.recv(7) == b"+PONG\r\n"
        with Client(s.resp) as c:
            assert c.do("CL.THROTTLE", "a", "3", "1", "60") == [0, 4, 3, -1, 60]
        assert (memory(worker) - before) / count < 4096
    finally:
        for one in idle:
            one.close()


def test_idle_connections_give_way(server):
    """A worker short of connections closes those that are idle: others would get none, of the gateway, too."""
    s = server(start=False)
    conf = s.folder / "nginx.conf"
    conf.write_text(conf.read_text().replace("worker_connections 12288", "worker_connections 64"))
    s.start()
    idle = [socket.create_connection(("127.0.0.1", s.resp)) for _ in range(200)]
    try:
        with Client(s.resp) as c:
            assert c.do("PING") == "PONG"
        assert get(s.port).status == 200
        with Client(s.resp) as half, contextlib.ExitStack() as more:  # one that is in the middle of a command stays
            half.send(b"*1\r\n$4\r\n")
            time.sleep(0.2)
            for _ in range(200):
                more.enter_context(socket.create_connection(("127.0.0.1", s.resp)))
            half.send(b"PING\r\n")
            assert half.reply() == "PONG"
    finally:
        for one in idle:
            one.close()


def test_timeout(server):
    s = server(stream="weir_resp_timeout 3s;")  # a machine that stands still for less makes nobody idle
    with Client(s.resp) as idle, Client(s.resp) as half, Client(s.resp) as busy:
        half.send(b"*1\r\n$4\r\n")
        start = time.monotonic()
        while time.monotonic() - start < 3.6:
            assert busy.do("PING") == "PONG"
            time.sleep(0.05)
        assert idle.is_closed() and half.is_closed()
        assert busy.do("PING") == "PONG"


def test_an_endless_pipeline(server):
    """It is not idle, whatever the timeout, and others have their turns."""
    s = server(stream="weir_resp_timeout 3s;")
    data, replies, end = encode("CL.THROTTLE", "k", 10**6, 10**6, 60) * 1000, [], time.monotonic() + 4
    took = []

    with Client(s.resp) as c, Client(s.resp) as other:
        def send():
            sent = 0
            while time.monotonic() < end or sent < 20:
                c.send(data)
                sent += 1
            c.socket.shutdown(socket.SHUT_WR)

        def receive():
            count = 0
            while got := c.socket.recv(1 << 20):
                count += got.count(b"\n")
            replies.append(count / 6)  # lines a reply has

        threads = [threading.Thread(target=send), threading.Thread(target=receive)]
        for thread in threads:
            thread.start()
        while time.monotonic() < end:
            start = time.monotonic()
            assert other.do("PING") == "PONG"
            took.append(time.monotonic() - start)
            time.sleep(0.01)
        for thread in threads:
            thread.join()
    assert sorted(took)[len(took) // 2] < 1, took
    assert replies[0] > 10000 and replies[0] % 1000 == 0


def test_random_bytes(server):
    s = server()
    worker = s.workers()
    dice = random.Random(5)
    pieces = [b"*", b"$", b"\r\n", b"\n", b"1", b"-1", b"4", b"PING", b"CL.THROTTLE", b" ", b'"', b"'", b"\\x", b"\0",
              b"*1\r\n$4\r\nPING\r\n", b"WEIR.CHECK", b"HELLO 3", b"99999999999", b"CLIENT", encode("ECHO", "x" * 9000)]
    for _ in range(300):
        data = b"".join(dice.choice(pieces) for _ in range(dice.randrange(1, 60)))
        with Client(s.resp) as c:
            try:
                c.send(data)
                c.socket.shutdown(socket.SHUT_WR)
                while c.socket.recv(65536):
                    pass
            except OSError:
                pass  # closed, as it should be
    with Client(s.resp) as c:
        assert c.do("PING") == "PONG"
    assert s.workers() == worker


def test_tls(gateway):
    s = gateway(RULES, start=False, kind=RespGateway, listen_resp="ssl",
                stream="ssl_certificate @FOLDER@/cert.pem; ssl_certificate_key @FOLDER@/key.pem;")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", f"{s.folder}/key.pem", "-out", f"{s.folder}/cert.pem", "-subj", "/CN=localhost", "-days",
                    "2"], check=True, capture_output=True)
    s.start()
    output = subprocess.run(["redis-cli", "--tls", "--cacert", f"{s.folder}/cert.pem", "-p", str(s.resp), "CL.THROTTLE",
                           "user123", "15", "30", "60"], capture_output=True, text=True, timeout=60, check=False)
    assert output.stdout == "0\n16\n15\n-1\n2\n", output
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with Client(s.resp, tls=context) as c:
        assert c.do("PING") == "PONG"
        # More replies than the sockets hold, before any is read.
        for _ in range(60):
            c.send(encode("ECHO", "z" * 60000))
        for _ in range(60):
            assert c.reply() == b"z" * 60000
        assert c.pipeline([("CL.THROTTLE", "tls", 15, 30, 60)] * 20)[-1][0] == 1
