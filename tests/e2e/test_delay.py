"""on_limit: delay. Requests wait for their turn, and give their place back when the client leaves."""
import json
import socket
import time

import pytest

from clients import get, statuses, together
from gateway import wait_until
from http2 import Http2
from measured import always, measured


def leaky(limit, burst, window="1s", **more):
    return json.dumps({"rules": [{"name": "r", "limit": limit, "window": window, "burst": burst, "on_limit": "delay",
                                  "algorithm": "leaky_bucket", **more}]})


def timed(port, path="/x"):
    began = time.monotonic()
    answer = get(port, path)
    return answer.status, time.monotonic() - began, time.monotonic()


@pytest.mark.alone
@pytest.mark.parametrize("phase", ["preaccess", "precontent"])
@measured
def test_they_leave_one_by_one(gateway, phase):
    g = gateway(leaky(5, 6), workers=2, listen="reuseport", http=f"weir_phase {phase};")
    began = time.monotonic()
    results = together([lambda: timed(g.port)] * 9)
    passed = sorted(ended - began for status, _, ended in results if status == 200)
    # However late they come: across both workers, each 0.2 s after the one before, or later.
    always(all(ended > 0.2 * before - 0.01 for before, ended in enumerate(passed)), passed)
    assert len(passed) == 6 and sorted(status for status, _, _ in results) == [200] * 6 + [429] * 3
    assert passed[-1] < 0.2 * 5 + 0.3, passed
    assert all(took < 0.1 for status, took, _ in results if status == 429), results
    decisions = sorted(line["decision"] for line in g.log(9))
    assert decisions == ["allow"] + ["delay"] * 5 + ["deny"] * 3 or decisions == ["delay"] * 6 + ["deny"] * 3


@pytest.mark.alone
@measured
def test_no_longer_than_max_delay(gateway):
    g = gateway(leaky(10, 10, max_delay="250ms"))
    results = together([lambda: timed(g.port)] * 8)
    waits = [took for status, took, _ in results if status == 200]
    assert 3 <= len(waits) <= 4 and max(waits) < 0.4, results


def send_request(port, path="/x"):
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return s


def test_a_client_that_disconnects_is_refunded(gateway):
    g = gateway(leaky(1, 4, window="10s"))  # one every ten seconds
    assert get(g.port, "/x").status == 200
    waiting = [send_request(g.port) for _ in range(3)]
    wait_until(lambda: g.rule("r")["delayed"] == 3, "three that wait")
    assert get(g.port, "/x").status == 429  # full
    waiting.pop().close()
    wait_until(lambda: "client prematurely closed" in g.errors(), "the end of one")
    waiting.append(send_request(g.port))
    wait_until(lambda: g.rule("r")["delayed"] == 4, "another in its place")
    assert get(g.port, "/x").status == 429
    for s in waiting:
        s.close()
    g.log(7)
    waiting = [send_request(g.port) for _ in range(3)]  # the whole queue is free again
    wait_until(lambda: g.rule("r")["delayed"] == 7, "three more")
    for s in waiting:
        s.close()


def test_a_refund_covers_only_what_was_taken(gateway):
    """A shadow rule that denied it has nothing of it: what it got back would let one too many pass."""
    rules = json.loads(leaky(1, 4, window="10s"))
    rules["rules"] += [{"name": name, "limit": limit, "window": "1d", "algorithm": "fixed_window", "align": "first_request",
                        "shadow": True} for name, limit in (("tight", 2), ("wide", 3))]
    g = gateway(json.dumps(rules))
    assert get(g.port, "/x").status == 200
    waiting = [send_request(g.port) for _ in range(2)]
    wait_until(lambda: g.rule("wide")["allowed"] == 3 and g.rule("tight")["denied"] == 1, "two that wait")
    for s in waiting:
        s.close()  # of the tight one's two, the first that waited had one; of the wide one's three both had one
    g.log(3)
    waiting = [send_request(g.port) for _ in range(2)]
    wait_until(lambda: all(g.rule(name)["allowed"] + g.rule(name)["denied"] == 5 for name in ("tight", "wide")), "two more")
    assert (g.rule("tight")["allowed"], g.rule("tight")["denied"]) == (3, 2)
    assert (g.rule("wide")["allowed"], g.rule("wide")["denied"]) == (5, 0)
    for s in waiting:
        s.close()


def test_a_refund_skips_rules_that_were_added_later(gateway):
    """They had nothing of it, nor had the key that a changed rule would find for it now: one too many would pass."""
    rules = json.loads(leaky(1, 4, window="10m"))
    g = gateway(json.dumps(rules))
    assert get(g.port, "/x").status == 200
    waiting = send_request(g.port)
    wait_until(lambda: g.rule("r")["delayed"] == 1, "one that waits")
    rules["rules"][0]["match"] = {"path": "/x"}
    rules["rules"] += [{"name": "later", "limit": 2, "window": "1h", "algorithm": "fixed_window"}]
    g.write_rules(json.dumps(rules))
    wait_until(lambda: g.status()["rules"]["reloads"] == 1, "the new rules")
    assert statuses(g.port, "/y", 3) == [200, 200, 429]
    waiting.close()
    g.log(5)
    assert statuses(g.port, "/y", 2) == [429, 429]


@pytest.mark.alone
@measured
def test_a_reload_lets_the_waiting_go_their_way(gateway):
    g = gateway(leaky(2, 4))
    get(g.port, "/x")
    results = together([lambda: timed(g.port)] * 2 + [lambda: (time.sleep(0.1), g.reload())])
    always([status for status, _, _ in results[:2]] == [200, 200], results)
    assert 0.8 < max(took for _, took, _ in results[:2]) < 1.6


class Streams(Http2):
    """Requests that may have to wait, on one connection."""

    def request(self, path):
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "x")],
                             end_stream=True)
        self.flush()
        return stream

    def wait_for_pong(self):
        """All that was sent so far has been looked at then."""
        self.h2.ping(b"12345678")
        self.flush()
        while not any(type(event).__name__ == "PingAckReceived"
                      for event in self.h2.receive_data(self.socket.recv(65536))):
            pass

    def answers(self, streams):
        """Stream, headers and time of each answer's end."""
        headers, ended = {}, {}
        while len(ended) < len(streams):
            for event in self.h2.receive_data(self.socket.recv(65536)):
                name = type(event).__name__
                if name == "ResponseReceived":
                    headers[event.stream_id] = dict(event.headers)
                elif name == "StreamEnded":
                    ended[event.stream_id] = time.monotonic()
            self.flush()
        return [(headers[stream], ended[stream]) for stream in streams]


@pytest.mark.alone
@measured
def test_streams_of_http2_are_delayed_and_a_reset_is_refunded(gateway):
    g = gateway(leaky(5, 4), listen="http2", server="location /s { weir off; weir_status; }")
    c = Streams(g.port)

    def status():
        # Beside the one that is under test; plaintext HTTP/2 listeners speak nothing else.
        import httpx
        with httpx.Client(http1=False, http2=True) as client:
            return client.get(f"http://127.0.0.1:{g.port}/s").json()["by_rule"][0]

    streams = [c.request("/x") for _ in range(4)]
    c.h2.reset_stream(streams[3], error_code=8)
    c.flush()
    wait_until(lambda: "client canceled stream" in g.errors(), "the end of one")
    last = c.request("/x")
    answers = c.answers(streams[:3] + [last])
    always([headers[":status"] for headers, _ in answers] == ["200"] * 4, answers)
    assert answers[0][0]["x-ratelimit-limit"] == "4"
    assert 0.1 < answers[2][1] - answers[1][1] < 0.35
    assert status()["denied"] == 0
    c.socket.close()


def test_a_connection_that_ends_with_waiting_streams(gateway):
    g = gateway(leaky(1, 50, window="10s"), listen="http2", server="location /s { weir off; weir_status; }")
    for turn in range(3):
        c = Streams(g.port)
        for _ in range(40):
            c.request("/x")
        c.wait_for_pong()
        c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        c.socket.close()
        log = g.log(40 * turn + 40)
    assert all(line["decision"] in ("allow", "delay") for line in log)  # the queue of 50 was never full
    assert len(g.workers()) == 1


def flooded(port, data, silent):
    """Until the other side has closed each of them: they send as much as is taken, and read nothing."""
    left = list(silent)

    def closed():
        for s in list(left):
            try:
                s.send(data)
            except BlockingIOError:
                pass
            except OSError:
                left.remove(s)
        assert get(port, "/weir/status").status == 200  # others are served meanwhile
        return not left
    wait_until(closed, "the end of those who never read")


@pytest.mark.parametrize("limit, decision", [(1000, "delayed"), (0, "denied")])
def test_a_client_that_never_reads(gateway, limit, decision):
    """Small buffers on both sides are full after some answers; then the worker waits for send_timeout, and no longer."""
    g = gateway(leaky(limit, 100_000) if limit else json.dumps({"rules": [{"name": "r", "limit": 0, "window": "1d"}]}),
                listen="sndbuf=4k", http="send_timeout 1s;")
    silent = []
    for _ in range(8):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        s.connect(("127.0.0.1", g.port))
        s.setblocking(False)
        silent.append(s)
    flooded(g.port, b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n" * 20, silent)
    assert g.errors().count("client timed out") >= 8  # nginx was in the middle of an answer
    assert g.rule("r")[decision] >= 8 and len(g.workers()) == 1
    for s in silent:
        s.close()
