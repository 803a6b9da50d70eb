"""A real Envoy as a proxy, its rate-limit filter pointed at weir."""
import time

import pytest

import envoy
from clients import get
from gateway import wait_until
from rls import LOCATIONS, ROOT, client, descriptor

pytestmark = pytest.mark.skipif(not envoy.available(), reason="no Envoy: tools/envoy.sh build/envoy brings one")

RULES = """
domain: d
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 3, name: three } }
  - { key: tried, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: tokens, rate_limit: { unit: day, requests_per_unit: 100 } }
"""


def by_header(name, **more):
    return {"actions": [{"request_headers": {"header_name": f"x-{name}", "descriptor_key": name}}], **more}


@pytest.fixture
def proxy(gateway):
    made = []

    def make(*rate_limits, server="", **options):
        g = gateway(RULES, server=LOCATIONS + server, listen="http2")
        e = envoy.Envoy(g.folder, g.backend, g.port, rate_limits, **options)
        made.append(e)
        wait_until(lambda: get(e.port).status == 200, "Envoy's first answer")
        if options.get("failure_mode_deny"):  # until it has seen weir's health, it denies what it would ask about
            wait_until(lambda: get(e.port, headers={"x-tried": "ready"}).status == 200, "Envoy's view of weir")
        return g, e
    yield make
    for e in made:
        e.stop()


def test_allowed_then_limited(proxy):
    g, e = proxy(by_header("user"), by_header("tried"), failure_mode_deny=True, enable_x_ratelimit_headers="DRAFT_VERSION_03")
    answers = [get(e.port, headers={"x-user": "ann"}) for _ in range(5)]
    assert [a.status for a in answers] == [200] * 3 + [429] * 2
    assert answers[3].headers["x-envoy-ratelimited"] == "true" and answers[0].body.startswith(b"backend")
    assert [a.headers["x-ratelimit-remaining"] for a in answers] == ["2", "1", "0", "0", "0"]
    assert answers[0].headers["x-ratelimit-limit"] == '3, 3;w=86400;name="three"'
    assert 0 < int(answers[4].headers["x-ratelimit-reset"]) <= 86400
    assert get(e.port, headers={"x-user": "bob"}).status == 200
    assert [get(e.port, headers={"x-tried": "x"}).status for _ in range(3)] == [200] * 3  # a shadow
    with client(g.port) as c:  # one counter, whoever asks
        assert c.request(descriptor("user=bob", hits=0)).statuses[0].limit_remaining == 2


def test_headers_from_weir(proxy):
    _, e = proxy(by_header("user"), server="weir_rls_headers on; weir_rls_metadata on;", failure_mode_deny=True)
    wait_until(lambda: "RateLimit-Limit" in get(e.port, headers={"x-user": f"{time.monotonic()}"}).headers, "headers")
    answers = [get(e.port, headers={"x-user": "ann"}) for _ in range(4)]
    assert [a.headers["RateLimit-Remaining"] for a in answers] == ["2", "1", "0", "0"]
    assert [a.status for a in answers] == [200] * 3 + [429]


def test_reported_afterwards(proxy):
    """Looked at when the request comes, counted by what it used when it has gone: tokens of a language model."""
    look = by_header("tokens", hits_addend={"number": 0})
    report = by_header("tokens", hits_addend={"format": "%REQ(x-used)%"}, apply_on_stream_done=True)
    g, e = proxy(look, report, by_header("tried"), failure_mode_deny=True)
    with client(g.port) as c:
        def left():
            return c.request(descriptor("tokens=ann", hits=0)).statuses[0]
        assert get(e.port, headers={"x-tokens": "ann", "x-used": "70"}).status == 200
        wait_until(lambda: left().limit_remaining == 30, "what was used")
        assert get(e.port, headers={"x-tokens": "ann", "x-used": "70"}).status == 200
        wait_until(lambda: left().code == 2, "the overrun")
    assert get(e.port, headers={"x-tokens": "ann", "x-used": "1"}).status == 429


@pytest.mark.parametrize("deny, status", [(True, 500), (False, 200)])
def test_weir_is_gone(proxy, deny, status):
    g, e = proxy(by_header("user"), by_header("tried"), failure_mode_deny=deny)
    wait_until(lambda: get(e.port, headers={"x-tried": "a"}).status == 200, "Envoy's view of weir")
    stopped = g.config.read_text()
    # The service's listener goes; the backend stays.
    g.config.write_text(stopped.replace(f"listen 127.0.0.1:{g.port} http2;", f"listen unix:{g.folder}/gone http2;"))
    g.reload()
    wait_until(lambda: [get(e.port, headers={"x-user": "eve"}).status for _ in range(5)] == [status] * 5, "the failure mode")
    g.config.write_text(stopped)
    g.reload()
    wait_until(lambda: get(e.port, headers={"x-user": "eve"}).status == 429, "weir's return")


def test_the_example(gateway):
    g = gateway("domain: shop\ndescriptors:\n  - { key: remote_address, rate_limit: { unit: day, requests_per_unit: 4 } }\n"
                "  - { key: path, value: /buy, descriptors: [ { key: user, rate_limit: { unit: day, requests_per_unit: 1 } } ] }\n",
                server=LOCATIONS, listen="http2")
    example = (ROOT / "examples" / "envoy.yaml").read_text()
    assert "timeout: 0.1s" in example  # after which everything passes: here a busy machine may take longer
    e = envoy.Envoy(g.folder, g.backend, g.port, text=example.replace("timeout: 0.1s", "timeout: 5s"))
    try:
        wait_until(lambda: "x-ratelimit-limit" in get(e.port).headers, "Envoy's view of weir")
        buys = [get(e.port, "/buy", headers={"x-user": "ann"}) for _ in range(2)]
        assert [a.status for a in buys] == [200, 429] and buys[0].headers["x-ratelimit-remaining"] == "0"
        wait_until(lambda: get(e.port).status == 429, "the end of the address's limit")
    finally:
        e.stop()
