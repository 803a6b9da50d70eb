"""Hostile gRPC calls: a clear error of the protocol, the connection stays open, other calls are not affected."""
import os
import pathlib
import random
import re
import socket
import struct
import threading
import time

import grpc
import h2.events
import h2.exceptions
import httpx
import pytest

from http2 import Http2
from rls import LOCATIONS, OK, RLS, client, descriptor, frame, request

RULES = "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: hour, requests_per_unit: 1000000 } }\n"
GRPC = {"Content-Type": "application/grpc", "TE": "trailers"}
GOOD = request("a=1").SerializeToString()
Code = grpc.StatusCode


@pytest.fixture
def service(gateway):
    return lambda **more: gateway(RULES, server=LOCATIONS, listen="http2", **more)


@pytest.fixture
def post(service):
    """Posts bytes as they are over one HTTP/2 connection, which must stay good."""
    g = service()
    with httpx.Client(http1=False, http2=True, base_url=f"http://127.0.0.1:{g.port}", timeout=20) as http:
        def send(body, path=RLS, method="POST", **headers):
            return http.request(method, path, content=body, headers={**GRPC, **headers})
        yield send
        assert send(frame(GOOD)).content[:1] == b"\0"


def status(answer):
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/grpc" and not answer.content
    assert "grpc-message" in answer.headers and "content-length" not in answer.headers
    return int(answer.headers["grpc-status"])


BAD = [
    (b"", 3), (b"\0", 3), (b"\0\0\0\0", 3),  # no message
    (frame(GOOD, length=len(GOOD) + 1), 3), (frame(GOOD)[:-1], 3), (frame(GOOD, length=2**20), 3),  # cut short
    (frame(GOOD) + b"x", 3), (frame(GOOD, length=1), 3), (frame(GOOD) + frame(GOOD), 3),  # more than one
    (frame(GOOD, flag=1), 12), (frame(GOOD, flag=2), 3), (frame(GOOD, flag=255), 3),
    (frame(GOOD, length=2**20 + 1), 8), (frame(GOOD, length=2**32 - 1), 8),
    (frame(b"\0" * (2**20 + 1)), 8),
    (frame(b"\xff" * 1000), 3), (frame(b"\x0a\xff\xff\xff\xff\x0f"), 3), (frame(b"\x0b"), 3),
    (frame(b""), 2), (frame(request(domain="").SerializeToString()), 2), (frame(request().SerializeToString()), 2),
    (frame(request("a=1", domain="").SerializeToString()), 2),
    (frame(request("a=1").SerializeToString().replace(b"a", b"\xff")), 3),  # not UTF-8
    (frame(request("a=1").SerializeToString().replace(b"d", b"\xc0")), 3),
    (frame(request(*["a=1"] * 257).SerializeToString()), 3),
    (frame(request(*[descriptor("a=1", limit=(1, 1))] * 65).SerializeToString()), 3),
    (frame(request(descriptor("a=1", limit=(1, 0))).SerializeToString()), 3),
    (frame(request("a=1").SerializeToString() + b"\x12\x04\x12\x02\x10\x09"), 3),  # a unit that does not exist
    (frame(b"\x12\x00" * 500_000), 8), (frame(b"\x0a\x01d" + b"\x12\x02\x0a\x00" * 250_000), 8),  # bombs
    (frame(b"\x12\xfe\xff\x3f" + b"\x0a\x00" * (0xffffe // 2)), 8),
    (frame(b"\x98\x06\x01" * 300_000), 8),
]


def test_bad_messages(post):
    for number, (body, code) in enumerate(BAD):
        answer = post(body)
        assert (number, status(answer)) == (number, code), answer.headers
        assert (answer.headers.get("grpc-accept-encoding") == "identity") == (code == 12)


def test_unknown_fields_are_ignored(service):
    more = b"\x98\x06\x01\xa2\x06\x03abc\xad\x06\x01\x02\x03\x04\xb1\x06" + b"x" * 8  # of every wire type
    with client(service().port) as c:
        assert c.raw(GOOD + more)
        inner = b"\x0a\x06\x0a\x01a\x12\x011" + more + b"\x2a\x00"
        assert c.raw(b"\x0a\x01d\x12" + bytes([len(inner)]) + inner + more)


def test_http_around_it(post):
    for kind in ("application/json", "application/grpc-web", "application/grpc+json", "application/grpcx", "text/plain", ""):
        assert post(frame(GOOD), **{"Content-Type": kind}).status_code == 415
    for kind in ("application/grpc", "application/grpc+proto", "Application/gRPC; charset=x", "application/grpc+proto;a=b"):
        assert post(frame(GOOD), **{"Content-Type": kind}).headers.get("grpc-status") is None
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH"):
        answer = post(b"", method=method)
        assert answer.status_code == 405 and answer.headers["allow"] == "POST"
    for path in ("Other", "ShouldRateLimit/", "shouldratelimit", ""):
        assert status(post(frame(GOOD), path=f"/envoy.service.ratelimit.v3.RateLimitService/{path}")) == 12
    for headers in ({"grpc-timeout": "1n"}, {"grpc-timeout": "x"}, {"grpc-encoding": "gzip"}, {"content-encoding": "gzip"}):
        assert post(frame(GOOD), **headers).headers.get("grpc-status") is None


def test_messages_are_percent_encoded(service):
    with client(service().port) as c:
        with pytest.raises(grpc.RpcError) as problem:
            c.raw(b"\xff")
        assert problem.value.code() == Code.INVALID_ARGUMENT and problem.value.details() == (
            "the message is no RateLimitRequest")
        with pytest.raises(grpc.RpcError) as problem:
            c.raw(GOOD, method="/envoy.service.ratelimit.v3.RateLimitService/Nothing")
        assert problem.value.code() == Code.UNIMPLEMENTED


def test_longer_than_nginx_reads(service):
    """client_max_body_size: nginx answers 413 by itself, which gRPC knows nothing of."""
    g = service()
    with client(g.port) as c:
        for size in (2**20 + 1, 2**21, 2**22):
            with pytest.raises(grpc.RpcError) as problem:
                c.raw(b"\0" * size)
            assert problem.value.code() == Code.RESOURCE_EXHAUSTED, problem.value
        assert c.request("a=1").overall_code == OK


def test_a_compressing_client(service):
    with client(service().port) as c:
        with pytest.raises(grpc.RpcError) as problem:
            c.should(request(*["a=" + "x" * 1000] * 9), compression=grpc.Compression.Gzip, timeout=10)
        assert problem.value.code() == Code.UNIMPLEMENTED
        reply = dict(problem.value.initial_metadata()) | dict(problem.value.trailing_metadata())
        assert "identity" in str(reply.get("grpc-accept-encoding", "identity"))
        assert c.request("a=1").overall_code == OK


def test_large_calls(service):
    """Bodies of several buffers and in files are read whole."""
    g = service(http="client_body_buffer_size 4k;")
    with client(g.port) as c:
        for size in (3000, 5000, 20_000, 70_000, 300_000, 1_040_000 // 2):
            value = "é" * (size // 2)
            statuses = [c.request("a=" + value, "a=" + value + "z").statuses[i].limit_remaining for i in (0, 1)]
            assert statuses == [999_999, 999_998], size
        assert len(c.request(*[f"a={i}" for i in range(256)]).statuses) == 256
        many = descriptor(*[f"a={i}" for i in range(5000)])
        assert not c.request(many).statuses[0].HasField("current_limit")


def test_zero_bytes_make_different_values(service):
    with client(service().port) as c:
        left = [c.request(f"a=x{tail}").statuses[0].limit_remaining for tail in ("", "\0", "\0y", "\0z", "\0z")]
    assert left == [999_999, 999_999, 999_999, 999_999, 999_998]


def test_random_bytes(service):
    g, chance = service(), random.Random(5)
    pool = [bytes(chance.randrange(256) for _ in range(chance.randrange(40))) for _ in range(150)]
    for _ in range(150):  # and good calls with bytes changed
        data = bytearray(GOOD * chance.randrange(1, 4))
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        pool.append(bytes(data))
    with client(g.port) as c:
        for data in pool:
            try:
                c.raw(data)
            except grpc.RpcError as problem:
                assert problem.code() in (Code.INVALID_ARGUMENT, Code.UNKNOWN, Code.RESOURCE_EXHAUSTED), problem
        assert c.request("a=1").overall_code == OK


class Calls(Http2):
    """A connection that sends the given frames."""

    def begin(self, end=False):
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, [(":method", "POST"), (":path", RLS), (":scheme", "http"), (":authority", "x"),
                                      ("content-type", "application/grpc"), ("te", "trailers")], end_stream=end)
        return stream

    def trailers(self, stream):
        reply = {}
        while True:
            data = self.socket.recv(65536)
            assert data, "closed"
            for event in self.h2.receive_data(data):
                if getattr(event, "stream_id", None) != stream:
                    continue
                if isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
                    reply.update(dict(event.headers))
                if isinstance(event, h2.events.StreamEnded):
                    return reply
                assert not isinstance(event, h2.events.StreamReset), event


def test_a_byte_at_a_time(service):
    c = Calls(service().port)
    stream = c.begin()
    for byte in frame(GOOD):
        c.h2.send_data(stream, bytes([byte]))
        c.flush()
        time.sleep(0.002)
    c.h2.end_stream(stream)
    c.flush()
    assert c.trailers(stream)["grpc-status"] == "0"


def test_a_client_without_a_window(service):
    """Who lets nothing be sent gets the headers, and the rest when it does."""
    c = Calls(service().port)
    c.h2.update_settings({4: 0})  # the initial window
    stream = c.begin()
    c.h2.send_data(stream, frame(GOOD), end_stream=True)
    c.flush()
    seen = []
    while not any(isinstance(event, h2.events.ResponseReceived) for event in seen):
        seen += c.h2.receive_data(c.socket.recv(65536))
    c.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        while True:
            seen += c.h2.receive_data(c.socket.recv(65536))
    assert not any(isinstance(event, (h2.events.DataReceived, h2.events.StreamEnded)) for event in seen)
    c.socket.settimeout(10)
    c.h2.increment_flow_control_window(1, stream)  # byte by byte at first
    c.flush()
    c.h2.increment_flow_control_window(1000, stream)
    c.flush()
    assert c.trailers(stream)["grpc-status"] == "0"


def test_a_client_that_never_reads(service):
    """Buffered replies are bounded by its streams, and other clients do not wait for it."""
    g = service()
    worker = g.workers()[0]

    def kilobytes():
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{worker}/status").read_text())[1])
    before = kilobytes()
    greedy = []
    for _ in range(10):
        c = Calls(g.port)
        c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.socket.settimeout(0.5)
        greedy.append(c)
        try:
            for _ in range(20):
                for _ in range(50):
                    c.h2.send_data(c.begin(), frame(GOOD), end_stream=True)
                c.flush()
        except (TimeoutError, ConnectionError, h2.exceptions.ProtocolError):
            pass
    with client(g.port) as c:
        assert c.codes("a=1", count=100) == [OK] * 100
    if not os.environ.get("WEIR_PRELOAD"):  # a sanitizer keeps what was freed
        assert kilobytes() - before < 20_000
    assert g.workers() == [worker]
    for c in greedy:
        c.socket.close()


def test_resets_at_every_point(service):
    """Streams that are reset before, in and after the message, and connections that are cut."""
    g = service()
    c = Calls(g.port)
    for cut in range(len(frame(GOOD)) + 1):
        stream = c.begin()
        c.h2.send_data(stream, frame(GOOD)[:cut], end_stream=cut == len(frame(GOOD)))
        c.h2.reset_stream(stream, error_code=8)
        c.flush()
    stream = c.begin()
    c.h2.send_data(stream, frame(GOOD), end_stream=True)
    c.flush()
    assert c.trailers(stream)["grpc-status"] == "0"
    for cut in (0, 3, 9):
        other = Calls(g.port)
        stream = other.begin()
        other.h2.send_data(stream, frame(GOOD)[:cut])
        other.flush()
        other.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.socket.close()
    with client(g.port) as again:
        assert again.request("a=1").overall_code == OK


def test_cancelled_calls(service):
    g = service()
    with client(g.port) as c:
        calls = [c.should.future(request("a=1")) for _ in range(300)]
        for call in calls[::2]:
            call.cancel()
        for call in calls[1::2]:
            assert call.result(timeout=10).overall_code == OK


def test_idle_and_slow_clients_are_no_hindrance(service):
    g = service()
    idle = [Calls(g.port) for _ in range(300)]
    for one in idle[::3]:
        stream = one.begin()
        one.h2.send_data(stream, frame(GOOD)[:7])
        one.flush()
    results = []

    def work():
        with client(g.port) as c:
            results.extend(c.codes("a=1", count=50))
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [OK] * 200
    for one in idle:
        one.socket.close()


def test_http1_and_wrong_methods_get_errors(gateway):
    from clients import get
    g = gateway(RULES, server=LOCATIONS)
    assert get(g.port, RLS, method="POST", body=frame(GOOD), headers=GRPC).status == 505
    assert get(g.port, RLS).status == 405
