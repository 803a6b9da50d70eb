"""HTTP/2 and gRPC, with clients that others wrote."""
import concurrent.futures
import json
import math
import subprocess
import time

import grpc
import httpx
import pytest

from clients import in_time
from gateway import wait_until
from measured import measured
from ports import free_port

LIMIT_ONE = json.dumps({"rules": [{"name": "r", "key": "ip:${client_ip}", "limit": 1, "window": "1d"}]})


def test_http2_gets_the_same_headers(gateway):
    g = gateway(LIMIT_ONE, listen="http2")
    with httpx.Client(http1=False, http2=True, base_url=f"http://127.0.0.1:{g.port}") as client:
        first, second = client.get("/x"), client.post("/x", content=b"b" * 20_000)
        head = client.head("/x")
        problem = client.get("/x", headers={"Accept": "application/problem+json"})
    assert (first.http_version, first.status_code, second.status_code, head.status_code) == ("HTTP/2", 200, 429, 429)
    assert first.headers["x-ratelimit-remaining"] == "0" and first.headers["ratelimit-policy"] == '"r";q=1;w=86400'
    assert second.headers["retry-after"] and second.headers["cache-control"] == "no-store"
    assert second.json()["error"] == "rate_limit_exceeded" and head.content == b""
    assert problem.headers["content-type"] == "application/problem+json" and problem.json()["status"] == 429


def test_a_long_body_is_not_waited_for(gateway):
    """As nginx does by itself: the answer, then a reset without an error. (Debian's curl takes that for one.)"""
    g = gateway(LIMIT_ONE, listen="http2")
    (g.folder / "long").write_bytes(b"b" * 900_000)
    send_request = ["nghttp", "-nv", "-d", str(g.folder / "long"), f"http://127.0.0.1:{g.port}/x"]
    output = [subprocess.run(send_request, capture_output=True, text=True, timeout=60, check=True).stdout for _ in range(2)]
    assert ":status: 200" in output[0] and ":status: 429" in output[1] and "NO_ERROR" in output[1], output


def test_h2load_gets_exactly_the_limit(gateway):
    rules = json.dumps({"rules": [{"name": "r", "limit": 300, "window": "1d", "algorithm": "sliding_window_log"}]})
    g = gateway(rules, listen="http2 reuseport", workers=2)
    done = subprocess.run(["h2load", "-n", "2000", "-c", "8", "-m", "10", f"http://127.0.0.1:{g.port}/x"],
                          capture_output=True, text=True, timeout=60, check=True)
    assert "300 2xx, 0 3xx, 1700 4xx, 0 5xx" in done.stdout, done.stdout


@pytest.fixture
def echo():
    """A gRPC server with one method, Echo, that answers what it is sent."""
    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(lambda request, context: request)

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), handlers=[Handler()])
    port = server.add_insecure_port(f"127.0.0.1:{free_port()}")
    server.start()
    yield port
    server.stop(0)


def grpc_gateway(gateway, echo, rule, **more):
    rules = json.dumps({"rules": [{"name": "calls", "match": {"path": "/test.Echo/*"}, **rule}]})
    return gateway(rules, listen="http2", server="location /test.Echo/ { grpc_pass grpc://127.0.0.1:%d; }" % echo, **more)


def test_a_grpc_call_that_is_denied(gateway, echo):
    g = grpc_gateway(gateway, echo, {"limit": 1, "window": "1h", "response": {"message": "100 % \u00e9nough"}})
    with grpc.insecure_channel(f"127.0.0.1:{g.port}") as channel:
        call = channel.unary_unary("/test.Echo/Echo")
        answer, done = call.with_call(b"hello")
        assert answer == b"hello" and ("x-ratelimit-remaining", "0") in done.initial_metadata()
        with pytest.raises(grpc.RpcError) as denied:
            call(b"again")
        error = denied.value
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.details() == "100 % \u00e9nough"
        reply = dict(error.initial_metadata()) | dict(error.trailing_metadata())
        after = int(reply["grpc-retry-pushback-ms"])
        assert 3500_000 < after <= 3600_000 and reply["retry-after"] == str(math.ceil(after / 1000))


@measured
def test_grpc_clients_retry_after_the_pushback(gateway, echo):
    g = grpc_gateway(gateway, echo, {"limit": 1, "window": "1s", "algorithm": "fixed_window", "align": "first_request"})
    policy = {"methodConfig": [{"name": [{}], "retryPolicy": {
        "maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}
    options = [("grpc.enable_retries", 1), ("grpc.service_config", json.dumps(policy))]
    with grpc.insecure_channel(f"127.0.0.1:{g.port}", options=options) as channel:
        call = channel.unary_unary("/test.Echo/Echo")
        call(b"connected")
        time.sleep(1.1)
        before = len(g.log())
        began, first = in_time(lambda: (time.monotonic(), call(b"a")), 0.5)
        assert [first, call(b"b")] == [b"a", b"b"]  # the second waits as told, and not 10 ms
    assert 0.8 < time.monotonic() - began < 3
    wait_until(lambda: g.log()[-1]["decision"] == "allow" and len(g.log()) > before + 2, "the last line")
    decisions = [line["decision"] for line in g.log()[before:]]
    assert decisions in (["allow", "deny", "allow"], ["allow", "deny", "deny", "allow"])  # its clock may be a bit early


def test_grpc_that_never_fits_forbids_retries(gateway, echo):
    g = grpc_gateway(gateway, echo, {"limit": 0, "window": "1h"})
    with grpc.insecure_channel(f"127.0.0.1:{g.port}") as channel:
        with pytest.raises(grpc.RpcError) as denied:
            channel.unary_unary("/test.Echo/Echo")(b"x")
    reply = dict(denied.value.initial_metadata()) | dict(denied.value.trailing_metadata())
    assert reply["grpc-retry-pushback-ms"] == "-1"


def test_grpc_denials_end_with_their_headers(gateway):
    g = gateway(LIMIT_ONE, listen="http2")
    for _ in range(2):
        with httpx.Client(http1=False, http2=True) as client:
            answer = client.post(f"http://127.0.0.1:{g.port}/a.B/C", content=b"\0\0\0\0\0",
                                 headers={"Content-Type": "application/grpc+proto", "TE": "trailers"})
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/grpc"
    assert answer.headers["grpc-status"] == "8" and answer.content == b"" and "content-length" not in answer.headers


@pytest.mark.parametrize("sent, got", [("application/grpc-web+proto", "application/grpc-web"),
                                       ("application/grpc-web-text", "application/grpc-web-text"),
                                       ("application/grpcx", "application/json")])
def test_grpc_on_http1(gateway, sent, got):
    from clients import get
    g = gateway(LIMIT_ONE)
    import http.client
    c = http.client.HTTPConnection("127.0.0.1", g.port, timeout=20)
    for _ in range(3):
        answer = get(g.port, "/a.B/C", method="POST", body=b"x", headers={"Content-Type": sent}, connection=c)
    assert answer.headers["Content-Type"] == got
    assert answer.headers.get("grpc-status") == ("8" if answer.status == 200 else None)
