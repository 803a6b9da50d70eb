"""The load level at a real gateway: effective limits in headers, 503 for shed requests, reserves. The test plays the agent."""
import contextlib
import json
import socket
import struct
import subprocess
import time

import pytest

from building import ROOT, built
from clients import get, statuses
from flight import send_request, through
from gateway import wait_until
from measured import measured
from resp import Client, RespGateway, fields
from served import ENVIRONMENT, WEIR
from test_metrics import parse

PRESS = ROOT / "build/gcc/tests/e2e/press"
ON = "weir_load on;"
METRICS = "location = /metrics { weir off; weir_metrics; access_log off; }"


class Press:
    """Writes the load page of a gateway, as an agent would."""

    def __init__(self, g):
        self.process = subprocess.Popen([built(PRESS), g.segment], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def say(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"ok\n"

    def __call__(self, level=0, throttle=1000, high=0, normal=0, low=0):
        self.say(f"{level} {throttle} {high} {normal} {low}")

    def silent(self):
        self.say("silent")

    def stop(self):
        self.process.stdin.close()
        self.process.wait(10)


@pytest.fixture
def pressed(gateway):
    """Makes a gateway with a load level, and the load page that sets it."""
    with contextlib.ExitStack() as stack:
        def make(rules, http="", **more):
            g = gateway(json.dumps({"rules": rules}), http=ON + http, **more)
            press = Press(g)
            stack.callback(press.stop)
            return g, press
        yield make


def limit(g, path="/page.txt"):
    answer = get(g.port, path)
    return int(answer.headers["X-RateLimit-Limit"])


def rule(name="a", **more):
    return {"name": name, "match": {"path": "/*"}, "limit": 1000, "window": "1h", "algorithm": "fixed_window", **more}


def test_an_elastic_limit_follows_the_level(pressed):
    g, press = pressed([rule(elastic={"up_to": "200%", "while": "70%"})], server="location /page.txt { }")
    assert limit(g) == 1000  # nobody knows the load
    for level, expected in ((0, 2000), (650, 1500), (700, 1000), (1000, 1000), (300, 2000)):
        press(level)
        answer = get(g.port, "/page.txt")
        assert answer.status == 200 and answer.headers["X-RateLimit-Limit"] == str(expected)
        assert f'"a";q={expected};w=3600' in answer.headers["RateLimit-Policy"]
    press.silent()
    wait_until(lambda: limit(g) == 1000, "the limit as it is written")


@measured
def test_an_adaptive_limit_follows_the_throttle_and_is_withdrawn_at_once(pressed):
    g, press = pressed([rule(limit=50, adaptive={"min": "20%"})], server="location /page.txt { }")
    press()
    assert statuses(g.port, "/page.txt", 20) == [200] * 20
    press(1000, 0)
    begun = time.monotonic()
    denied = get(g.port, "/page.txt")
    assert time.monotonic() - begun < 1 and denied.status == 429 and denied.headers["X-RateLimit-Limit"] == "10"
    press(700, 500)
    assert limit(g) == 30
    press.silent()  # a dead agent leaves the gateway as it was without one
    wait_until(lambda: limit(g) == 50, "the whole limit")


CLASSES = [rule("pay", match={"path": "/pay"}, limit="unlimited", priority="critical"),
           rule("bulk", match={"path": "/bulk"}, priority="low", response={"message": "You are too fast"}),
           rule("any", match={"path": "/any"})]


def test_shed_requests_get_503_and_their_own_message(pressed):
    g, press = pressed(CLASSES, server=METRICS + "weir_log_denied @FOLDER@/denied.log;")
    press(1000, 1000, low=1000)
    answer = get(g.port, "/bulk", headers={"Accept": "application/problem+json"})
    assert answer.status == 503 and answer.headers["Content-Type"] == "application/problem+json"
    problem = json.loads(answer.body)
    assert problem["type"] == "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    assert problem["status"] == 503 and "too fast" not in problem["detail"]
    assert 1 <= int(answer.headers["Retry-After"]) <= 5 and answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-RateLimit-Limit"] is None
    plain = json.loads(get(g.port, "/bulk").body)
    assert plain["error"] == "overloaded" and plain["rule"] == "bulk" and 1 <= plain["retry_after"] <= 5
    assert statuses(g.port, "/pay", 20) == [200] * 20 and statuses(g.port, "/any", 5) == [200] * 5
    assert statuses(g.port, "/elsewhere-quite", 5) == [200] * 5  # no rule: nothing to say
    shed = [line for line in g.log(32) if line["decision"] == "shed"]
    assert [line["rule"] for line in shed] == ["bulk", "bulk"] and all(int(line["retry_after"]) >= 1 for line in shed)
    assert all(line["limit"] == "" and line["status"] == 503 for line in shed)
    lines = g.denied(2, "denied.log")
    assert [(line["status"], line["reason"], line["priority"]) for line in lines] == [(503, "shed", "low")] * 2
    assert g.rule("bulk")["shed"] == 2 and g.rule("bulk")["denied"] == 0 and g.rule("bulk")["allowed"] == 0
    samples, types = parse(get(g.port, "/metrics").body.decode())
    assert types["weir_shed_total"] == "counter"
    by_class = {dict(labels)["class"]: value for (name, labels), value in samples.items()
                if name == "weir_shed_total" and dict(labels)["rule"] == "bulk" and dict(labels)["shadow"] == "false"}
    assert by_class == {"critical": 0, "high": 0, "normal": 0, "low": 2}
    assert samples["weir_decisions_total", (("decision", "deny"), ("rule", "bulk"), ("shadow", "false"))] == 0
    looks = [WEIR, "top", "--once", "--interval", "100ms", "--rules", g.folder / "rules", g.segment]
    reply = json.loads(subprocess.run([*looks, "--json"], env=ENVIRONMENT, capture_output=True, check=True, timeout=60).stdout)
    assert {one["name"]: one["totals"]["shed"] for one in reply["rules"]} == {"pay": 0, "bulk": 2, "any": 0}
    text = subprocess.run(looks, env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "SHED/s" in text and ", shed 0" in text and max(map(len, text.splitlines())) <= 80
    press.silent()
    wait_until(lambda: get(g.port, "/bulk").status == 200, "the end of it")
    assert get(g.port, "/bulk").headers["X-RateLimit-Remaining"] == "998"  # what was shed took nothing


def test_a_share_is_shed_by_all_workers(pressed):
    g, press = pressed(CLASSES, workers=2)
    press(900, 1000, normal=300, low=1000)
    send_request = 1200
    shed = statuses(g.port, "/any", send_request).count(503)
    assert 0.3 * send_request - 80 < shed < 0.3 * send_request + 80, shed  # five standard deviations
    assert g.rule("any")["shed"] == shed and g.rule("any")["allowed"] == send_request - shed


def test_a_page_of_its_own_for_503_and_grpc(pressed):
    g, press = pressed(CLASSES, server="""
        error_page 503 @busy;
        location @busy { default_type text/html; return 503 "busy"; }""")
    press(low=1000)
    answer = get(g.port, "/bulk")
    assert answer.status == 503 and answer.body == b"busy" and answer.headers["Retry-After"]
    answer = get(g.port, "/bulk", method="POST", headers={"Content-Type": "application/grpc"})
    assert answer.status == 200 and answer.headers["grpc-status"] == "14"
    assert 1000 <= int(answer.headers["grpc-retry-pushback-ms"]) <= 5000


def test_a_dry_run_sheds_nothing_and_logs_it(pressed):
    g, press = pressed(CLASSES, weir="dry_run")
    press(low=1000)
    assert statuses(g.port, "/bulk", 3) == [200] * 3
    assert [line["decision"] for line in g.log(3)] == ["shed_dry_run"] * 3


@pytest.mark.parametrize("algorithm", [{"algorithm": "fixed_window"}, {"algorithm": "sliding_window_log"},
                                       {"algorithm": "sliding_window_counter"}])
def test_a_reserve_is_for_critical_requests(pressed, algorithm):
    g, _ = pressed([rule("all", limit=10, window="1d", reserve="20%", **algorithm), *CLASSES])
    assert statuses(g.port, "/any", 12) == [200] * 8 + [503] * 4
    answer = get(g.port, "/any")
    assert answer.status == 503 and answer.headers["X-RateLimit-Limit"] == "8" and answer.headers["Retry-After"]
    assert json.loads(answer.body)["error"] == "overloaded"
    assert statuses(g.port, "/pay", 4) == [200, 200, 429, 429]
    assert get(g.port, "/any").status == 429
    assert {name: g.rule("all")[name] for name in ("allowed", "denied", "shed")} == \
        {"allowed": 10, "denied": 3, "shed": 5}
    assert g.rule("any")["allowed"] == 8  # all or nothing


def test_the_services_report_the_reason(gateway):
    descriptors = [{"key": "k", "rate_limit": {"unit": "day", "requests_per_unit": 10}}]
    g = gateway(json.dumps({"rules": CLASSES, "domains": [{"domain": "d", "descriptors": descriptors}]}),
                kind=RespGateway, http=ON, outside=ON, server="""
        location /v1/ { weir off; weir_api; }
        location = /json { weir off; weir_rls_json; }""")
    press = Press(g)
    try:
        press(normal=1000, low=1000)
        answer = get(g.port, "/v1/check?status=1", method="POST", body=json.dumps({"attributes": {"path": "/bulk"}}))
        output = json.loads(answer.body)
        assert answer.status == 503 and output["decision"] == "deny" and output["reason"] == "shed" and output["limit"] is None
        assert int(answer.headers["Retry-After"]) >= 1
        with Client(g.resp) as c:
            output = fields(c.do("WEIR.CHECK", "path", "/bulk"))
            assert output["decision"] == b"deny" and output["reason"] == b"shed" and output["retry_after_ms"] >= 1000
            output = fields(c.do("WEIR.PEEK", "path", "/bulk"))
            assert output["decision"] == b"allow" and "reason" not in output
            assert fields(c.do("WEIR.STATS", "bulk"))["shed"] == 2
            output = fields(c.do("WEIR.CHECK", "domain", "d", "k", "v"))
            assert output["decision"] == b"deny" and output["reason"] == b"shed"
        question = json.dumps({"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]})
        answer = get(g.port, "/json", method="POST", body=question)  # Envoy knows two answers
        assert answer.status == 429 and json.loads(answer.body)["overallCode"] == "OVER_LIMIT"
        press()
        answer = get(g.port, "/json", method="POST", body=question)
        assert answer.status == 200 and json.loads(answer.body)["statuses"][0]["limitRemaining"] == 9
    finally:
        press.stop()


def test_weir_check_shows_the_effective_limit(pressed):
    g, press = pressed([rule(elastic={"up_to": "300%"})])
    press(0)
    weir = [WEIR, "check", "--rules", g.folder / "rules", "--segment", g.segment, "GET", "/x"]
    text = subprocess.run(weir, capture_output=True, text=True, timeout=60, check=True, env=ENVIRONMENT).stdout
    assert "1000 in 1h, 3000 effective" in text and "X-RateLimit-Limit: 3000" in text, text


def in_flight(g):
    samples, _ = parse(get(g.port, "/metrics").body.decode())
    return samples["weir_load_in_flight", ()]


def reset(s):
    """Leaves as clients do that have waited for too long: at once, and without a word."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def test_nothing_stays_in_flight_however_requests_end(gateway, slow):
    """Redirected inside, broken off, upgraded, delayed or waiting for the upstream: a client that disconnects is no longer counted."""
    turns = rule("turns", match={"path": "/turns"}, limit=1, window="60s", algorithm="leaky_bucket", burst=30, on_limit="delay")
    g = gateway(json.dumps({"rules": [turns, rule()]}), http=ON, workers=2,
                server=METRICS + through(slow) + """
                location = /page.txt {}
                location /named { try_files /no-such-file @named; }
                location @named { proxy_pass http://127.0.0.1:%d; }
                location /turns { proxy_pass http://127.0.0.1:%d; }""" % (slow.port, slow.port))
    paths = ["/slow", "/breaks", "/inner", "/named"]
    for leave in (socket.socket.close, reset):
        waiting = [send_request(g.port, path) for path in paths for _ in range(3)]
        upgraded = [send_request(g.port, "/ws", "Upgrade: x\r\nConnection: upgrade\r\n") for _ in range(2)]
        assert all(b" 101 " in s.recv(65536) for s in upgraded)
        wait_until(lambda: in_flight(g) == 14, "all in flight")  # noqa: B023
        queued = [send_request(g.port, "/turns") for _ in range(4)]
        time.sleep(0.3)
        assert in_flight(g) - 14 in (0, 1)  # those who wait for their turn are not; the first has no need to
        for s in waiting[::2] + upgraded[:1] + queued:
            leave(s)
        wait_until(lambda: in_flight(g) == 7, "those who are left")
        slow.go.set()
        for s in waiting[1::2]:
            assert s.recv(65536)
            s.close()
        upgraded[1].close()
        wait_until(lambda: in_flight(g) == 0, "nothing in flight")
        slow.hold_again()
