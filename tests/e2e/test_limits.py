"""Each algorithm through the gateway, and the replies to clients."""
import http.client
import json
import time

import pytest
import urllib3

from clients import get, in_time, statuses
from measured import measured

TWO_A_SECOND = """
rules:
  - name: two
    key: ip:${client_ip}
    limit: 2
    window: 1s
    algorithm: fixed_window
    align: first_request
"""


def one_rule(**fields):
    rule = {"name": "r", "key": "ip:${client_ip}", "limit": 5, "window": "1d", **fields}
    return json.dumps({"rules": [rule]})  # JSON is YAML


@pytest.mark.parametrize("algorithm", ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_log",
                                       "sliding_window_counter"])
def test_every_algorithm_admits_its_limit(gateway, algorithm):
    more = {"align": "first_request"} if algorithm == "fixed_window" else {}
    g = gateway(one_rule(algorithm=algorithm, **more))
    assert statuses(g.port, "/x", 8) == [200] * 5 + [429] * 3
    rule = g.rule("r")
    assert (rule["allowed"], rule["denied"]) == (5, 3)


@measured
def test_a_bucket_refills(gateway):
    g = gateway(one_rule(limit=1, window="2s", burst=1))
    assert statuses(g.port, "/x", 2) == [200, 429]
    time.sleep(2.1)
    assert get(g.port, "/x").status == 200


def test_the_third_request_in_a_second_gets_all_headers(gateway):
    g = gateway(TWO_A_SECOND)
    c = http.client.HTTPConnection("127.0.0.1", g.port)

    def three():
        return [time.time(), *(get(g.port, "/x", connection=c) for _ in range(3))]
    began, first, second, third = in_time(three, 0.9)
    assert (first.status, second.status, third.status) == (200, 200, 429)
    assert first.headers["X-RateLimit-Limit"] == "2"
    assert (first.headers["X-RateLimit-Remaining"], second.headers["X-RateLimit-Remaining"]) == ("1", "0")
    assert -1 <= int(first.headers["X-RateLimit-Reset"]) - began <= 3
    assert first.headers["RateLimit-Policy"] == '"two";q=2;w=1'
    assert first.headers["RateLimit"] == '"two";r=1;t=1'
    for absent in ("Retry-After", "X-RateLimit-Retry-After", "Cache-Control"):
        assert absent not in first.headers
    assert third.headers["Retry-After"] == "1" and third.headers["X-RateLimit-Retry-After"] == "1"
    assert third.headers["X-RateLimit-Remaining"] == "0"
    assert third.headers["RateLimit"] == '"two";r=0;t=1'
    assert third.headers["Cache-Control"] == "no-store"
    assert third.headers["Content-Type"] == "application/json"
    body = json.loads(third.body)
    assert body["error"] == "rate_limit_exceeded" and body["rule"] == "two" and body["retry_after"] == 1
    assert body["message"] == "Too many requests. Please retry after 1 second."
    time.sleep(1.05)
    assert get(g.port, "/x", connection=c).status == 200  # also: the connection is still good


@pytest.mark.parametrize("accept, wanted", [
    ("application/problem+json", True), ("text/html, Application/Problem+JSON;q=0.5", True),
    ("application/problem+json;q=0", False), ("application/problem+json; q=0.000, */*", False),
    ("application/problem+jsonx", False), ("application/json", False), ("*/*", False), ("", False)])
def test_problem_json_for_clients_that_accept_it(gateway, accept, wanted):
    g = gateway(one_rule(limit=1))
    get(g.port, "/x")
    answer = get(g.port, "/x", headers={"Accept": accept})
    assert answer.status == 429
    body = json.loads(answer.body)
    if wanted:
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert body["type"] == "https://iana.org/assignments/http-problem-types#quota-exceeded"
        assert body["status"] == 429 and body["violated-policies"] == ["r"]
    else:
        assert answer.headers["Content-Type"] == "application/json" and body["error"] == "rate_limit_exceeded"


def test_head_has_no_body_and_bodies_do_not_break_the_connection(gateway):
    g = gateway(one_rule(limit=1))
    c = http.client.HTTPConnection("127.0.0.1", g.port, timeout=10)
    assert get(g.port, "/x", connection=c).status == 200
    head = get(g.port, "/x", method="HEAD", connection=c)
    assert head.status == 429 and head.body == b"" and head.headers["Retry-After"]
    for size in (10, 100_000, 900_000):
        assert get(g.port, "/x", method="POST", body=b"b" * size, connection=c).status == 429
    chunks = (b"c" * 5000 for _ in range(20))
    assert get(g.port, "/x", method="POST", body=chunks, connection=c).status == 429
    assert get(g.port, "/x", connection=c).status == 429


def test_the_response_is_the_rules(gateway):
    g = gateway(json.dumps({"rules": [
        {"name": "a", "match": {"path": "/a"}, "limit": 1, "window": "1d",
         "response": {"status": 503, "headers": ["retry-after"], "body": {"text": "go away\n"}}},
        {"name": "b", "match": {"path": "/b"}, "limit": 1, "window": "1d",
         "response": {"headers": ["x-ratelimit"], "reset": "delta", "message": "Tea \u2615 first", "body": "problem"}},
        {"name": "c", "match": {"path": "/c"}, "limit": 1, "window": "1d", "response": {"headers": [], "body": "none"}},
        {"name": "d", "match": {"path": "/d"}, "limit": 0, "window": "1d"}]}))
    a, a2 = get(g.port, "/a"), get(g.port, "/a")
    assert "X-RateLimit-Limit" not in a.headers and a2.status == 503 and a2.body == b"go away\n"
    assert a2.headers["Content-Type"].startswith("text/plain") and a2.headers["Retry-After"]
    b, b2 = get(g.port, "/b"), get(g.port, "/b")
    assert int(b.headers["X-RateLimit-Reset"]) <= 86400 and "RateLimit" not in b.headers
    assert "Retry-After" not in b2.headers and json.loads(b2.body)["detail"] == "Tea \u2615 first"
    c2 = (get(g.port, "/c"), get(g.port, "/c"))[1]
    assert c2.status == 429 and c2.body == b"" and "X-RateLimit-Limit" not in c2.headers
    d = get(g.port, "/d")
    assert d.status == 403 and "Retry-After" not in d.headers  # waiting never helps


def test_every_matching_rule_is_in_the_policy(gateway):
    g = gateway(json.dumps({"rules": [{"name": "minute", "limit": 10, "window": "1m"},
                                      {"name": "day", "limit": 3, "window": "1d"},
                                      {"name": "shadow", "limit": 1, "window": "1d", "shadow": True}]}))
    answer = get(g.port, "/x")
    assert answer.headers["RateLimit-Policy"] == '"minute";q=10;w=60,"day";q=3;w=86400'
    assert answer.headers["X-RateLimit-Limit"] == "3"  # the smallest share is left of it
    assert statuses(g.port, "/x", 3) == [200, 200, 429]
    assert (g.rule("minute")["allowed"], g.rule("shadow")["denied"]) == (3, 3)


def figures(answer):
    names = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "RateLimit-Policy", "RateLimit")
    return answer.status, *(answer.headers[name] for name in names)


def test_the_families_agree(gateway):
    g = gateway(json.dumps({"rules": [
        {"name": "api", "match": {"path": "/api/*"}, "limit": 1, "window": "1h", "burst": 2},
        {"name": "slots", "match": {"path": "/slots"}, "limit": 3, "algorithm": "concurrency"},
        {"name": "bytes", "match": {"path": "/up"}, "limit": 1000, "window": "1h", "cost": "header:Content-Length"},
        {"name": "none", "match": {"path": "/none"}, "limit": 0}]}))
    # Once on the fast path, once denied: a burst is a longer window at the same rate.
    assert figures(get(g.port, "/api/x")) == (200, "2", "1", '"api";q=2;w=7200', '"api";r=1;t=3600')
    get(g.port, "/api/x")
    denied = get(g.port, "/api/x")
    assert figures(denied)[:4] == (429, "2", "0", '"api";q=2;w=7200')
    assert denied.headers["RateLimit"] == f'"api";r=0;t={denied.headers["Retry-After"]}'
    assert figures(get(g.port, "/slots")) == (
        200, "3", "2", '"slots";q=3;qu="concurrent-requests"', '"slots";r=2')
    assert figures(get(g.port, "/up", method="POST", body=b"x" * 100)) == (
        200, "1000", "900", '"bytes";q=1000;qu="content-bytes";w=3600', '"bytes";r=900;t=3240')
    assert figures(get(g.port, "/none")) == (403, "0", "0", '"none";q=0', '"none";r=0')


@pytest.mark.parametrize("report, limit, ratelimit", [
    ("tightest", "9", '"minute";r=8;t=54'),
    ("plan", "1000", '"plan";r=999;t=86314'),
    ("all", "9", '"plan";r=999;t=86314,"minute";r=8;t=54'),
    ({"rule": "plan", "list": "all"}, "1000", '"plan";r=999;t=86314,"minute";r=8;t=54')])
def test_which_rule_an_allowed_request_reports(gateway, report, limit, ratelimit):
    g = gateway(json.dumps({"response": {"report": report}, "rules": [
        {"name": "plan", "limit": 1000, "window": "1d"}, {"name": "minute", "limit": 9, "window": "1m"}]}))
    answer = get(g.port, "/x")
    assert (answer.headers["X-RateLimit-Limit"], answer.headers["RateLimit"]) == (limit, ratelimit)
    assert answer.headers["RateLimit-Policy"] == '"plan";q=1000;w=86400,"minute";q=9;w=60'
    assert statuses(g.port, "/x", 9) == [200] * 8 + [429]
    denied = get(g.port, "/x")
    assert denied.headers["X-RateLimit-Limit"] == "9"  # a denial is that of the rule that denies


@measured
def test_urllib3_honours_retry_after(gateway):
    g = gateway(TWO_A_SECOND)
    retry = urllib3.Retry(total=3, status_forcelist=[429], respect_retry_after_header=True, backoff_factor=0)
    pool = urllib3.PoolManager(retries=retry)

    def request():
        return pool.request("GET", f"http://127.0.0.1:{g.port}/x")
    began, *answers = in_time(lambda: [time.monotonic(), request(), request()], 0.5)
    answers.append(request())
    assert [a.status for a in answers] == [200] * 3
    assert [len(a.retries.history) for a in answers] == [0, 0, 1]  # one 429, waited for, and in
    assert 0.9 < time.monotonic() - began < 2.5
