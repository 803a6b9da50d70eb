"""Strict rules in all services but the gateway: forward-auth, the HTTP API, gRPC and the Redis protocol."""
import collections
import json
import time

import pytest

from ports import free_port
import rls
from clients import get, statuses
from gateway import wait_until
from resp import Client, RespGateway, fields
from strict import ALGORITHMS, key, rules, strict


# ---- The other doors ----

DOORS = """
    location /v1/ { weir off; weir_api; weir_api_operator on; }
    location = /v1/auth { weir off; weir_auth; }
    location /asks { auth_request /sub; proxy_pass http://@BACKEND@; weir off; }
    location = /sub { internal; weir_auth; weir_auth_status 403; }
"""


def post(port, path, body):
    answer = get(port, path, method="POST", body=json.dumps(body))
    return answer.status, json.loads(answer.body)


def test_forward_auth(redis_server, hosts):
    server = redis_server()
    one, two = hosts(server, 2, server=DOORS)
    sent = {"headers": {"X-Key": "a", "X-Forwarded-Uri": "/x"}}
    assert [get(h.port, "/v1/auth", **sent).status for h in (one, two) * 3] == [200] * 5 + [429]
    assert get(one.port, "/", **key("a")).status == 429
    # nginx's own auth_request asks with a subrequest.
    sent = {"headers": {"X-Key": "b", "X-Original-URI": "/x"}}
    assert [get(h.port, "/asks", **sent).status for h in (one, two) * 3] == [200] * 5 + [403]


def test_the_api(redis_server, hosts):
    server = redis_server()
    one, two = hosts(server, 2, server=DOORS)
    item = {"attributes": {"headers": {"x-key": "a"}, "path": "/x"}}
    assert [post(h.port, "/v1/check", item)[1]["allowed"] for h in (one, two) * 3] == [True] * 5 + [False]
    # A batch asks once for all of its items.
    names = [f"b{i % 50}" for i in range(500)]
    before = server.calls()
    status, body = post(one.port, "/v1/check", {"batch": [{"attributes": {"headers": {"x-key": n}, "path": "/x"}} for n in names]})
    assert status == 200 and server.calls() - before <= 10
    allowed = collections.Counter(n for n, result in zip(names, body["results"]) if result["allowed"])
    assert set(allowed.values()) == {5} and len(allowed) == 50
    # Giving back, on the other host.
    assert post(two.port, "/v1/refund", {**item, "cost": 2})[0] == 200
    other = {"attributes": {"headers": {"x-key": "c"}, "path": "/x"}}
    assert post(one.port, "/v1/check", {**other, "cost": 5})[1]["allowed"]
    assert post(one.port, "/v1/refund", {**other, "cost": 3})[0] == 200
    assert [post(two.port, "/v1/check", other)[1]["allowed"] for _ in range(4)] == [True] * 3 + [False]


def test_reservations(redis_server, hosts):
    one, two = hosts(redis_server(), 2, server=DOORS)
    item = {"attributes": {"headers": {"x-key": "a"}, "path": "/x"}, "cost": 4}
    status, made = post(one.port, "/v1/reserve", item)
    assert status == 200 and made["allowed"] and made["reservation"]
    assert not post(two.port, "/v1/reserve", item)[1]["allowed"]


def test_reservations_are_settled_in_the_store(redis_server, hosts):
    server = redis_server()
    one, two = hosts(server, 2, server=DOORS)

    def item(name, **more):
        return {"attributes": {"headers": {"x-key": name}, "path": "/x"}, **more}

    def left(name):
        return post(two.port, "/v1/check", item(name, dry_run=True))[1]["remaining"] + 1  # what a look would leave, and itself

    for settle, cost, remains in (("commit", {"cost": 1}, 4), ("cancel", {}, 5), ("commit", {"cost": 5}, 0)):
        name = f"{settle}{remains}"
        token = post(one.port, "/v1/reserve", item(name, cost=4))[1]["reservation"]
        status, body = post(one.port, f"/v1/{settle}", {"reservation": token, **cost})
        assert status == 200 and body["rules"][0]["remaining"] == remains, body
        assert remains == 0 or left(name) == remains
        # A second time it changes nothing.
        assert post(one.port, f"/v1/{settle}", {"reservation": token, **cost})[0] == 409
        assert remains == 0 or left(name) == remains
    # What nobody settles comes back.
    assert post(one.port, "/v1/reserve", item("late", cost=4, expires_s=3))[1]["reservation"]
    assert left("late") == 1
    wait_until(lambda: left("late") == 5, "the estimate's return")


@pytest.mark.parametrize("algorithm", ["token_bucket", "fixed_window", "fixed_first", "sliding_window_log"])
def test_recovered_units_are_not_refunded_again(redis_server, hosts, algorithm):
    one, = hosts(redis_server(), 1, rules(strict(limit=10, window="1s", more=ALGORITHMS[algorithm])), server=DOORS)
    item = {"attributes": {"headers": {"x-key": "a"}, "path": "/x"}, "cost": 10}

    def allowed():
        return post(one.port, "/v1/check", item)[1]["allowed"]

    for _ in range(10):
        token = post(one.port, "/v1/reserve", item)[1]["reservation"]
        assert token
        clock, begun = int(time.time()), time.monotonic()
        while not allowed():  # until the estimate is back, and used by another
            clock, begun = int(time.time()), time.monotonic()
        assert post(one.port, "/v1/cancel", {"reservation": token})[0] == 200
        looks = [allowed() for _ in range(5)]
        # Windows end with the second: what came after that, on a busy machine, says nothing.
        if time.monotonic() - begun < 0.9 and (algorithm != "fixed_window" or int(time.time()) == clock):
            assert not any(looks)
            return
        wait_until(lambda: post(one.port, "/v1/check", {**item, "dry_run": True})[1]["allowed"], "a fresh start")
    raise AssertionError("five looks took 0.9 s, ten times: this machine is too busy")


def test_operators_see_and_reset_what_all_hosts_took(redis_server, hosts):
    server = redis_server()
    one, two = hosts(server, 2, server=DOORS, settings="breaker_failures=1")
    assert statuses(one.port, "/", 3, **key("a")) == [200] * 3
    state = json.loads(get(two.port, "/v1/keys/five/a").body)
    assert state["remaining"] == 2 and state["limit"] == 5, state
    assert statuses(two.port, "/", 3, **key("a")) == [200] * 2 + [429]
    assert get(two.port, "/v1/keys/five/a", method="DELETE").status == 200
    assert statuses(two.port, "/", 1, **key("a")) == [200]
    assert json.loads(get(one.port, "/v1/keys/five/a").body)["remaining"] == 4
    server.kill()
    assert get(one.port, "/v1/keys/five/a").status == 503
    assert get(one.port, "/v1/keys/five/a", method="DELETE").status == 503


def test_resp_reset(redis_server, gateway):
    server = redis_server()
    store = f"weir_store {server.url()} deadline=3s;"
    one = gateway(rules(), kind=RespGateway, http=store, outside=store, stream="weir_resp_operator_password s3cret;")
    with Client(one.resp) as c:
        assert c.do("AUTH", "s3cret") == "OK"
        check = ("WEIR.CHECK", "COST", "5", "header:x-key", "a")
        replies = c.pipeline([check, check, ("WEIR.RESET", "five", "a"), check, ("WEIR.RESET", "cl.throttle", "x"), ("WEIR.RESET", "no", "x")])
        assert [fields(replies[i])["decision"] for i in (0, 1, 3)] == [b"allow", b"deny", b"allow"]
        assert replies[2] == "OK this host, all hosts later" and replies[4] == "OK this host" and "ENORULE" in str(replies[5])


def test_grpc_and_json(redis_server, hosts):
    """Descriptors count over all hosts, as those of envoyproxy/ratelimit with Redis do."""
    text = "domain: d\ndescriptors:\n  - { key: five, rate_limit: { unit: day, requests_per_unit: 5 } }\n"
    server = redis_server()
    one, two = hosts(server, 2, text, server=rls.LOCATIONS, listen="http2")
    with rls.client(one.port) as a, rls.client(two.port) as b:
        codes = [each.request("five=x").overall_code for each in (a, b) * 4]
    assert codes == [rls.OK] * 5 + [rls.OVER] * 3
    three, = hosts(server, 1, text, server=rls.LOCATIONS)
    body = {"domain": "d", "descriptors": [{"entries": [{"key": "five", "value": "x"}]}]}
    assert post(three.port, "/json", body)[0] == 429
    body["descriptors"][0]["entries"][0]["value"] = "y"
    assert [post(three.port, "/json", body)[0] for _ in range(6)] == [200] * 5 + [429]


def test_grpc_calls_at_once(redis_server, hosts):
    text = "domain: d\ndescriptors:\n  - { key: five, rate_limit: { unit: day, requests_per_unit: 5 } }\n"
    server = redis_server()
    one, = hosts(server, 1, text, server=rls.LOCATIONS, listen="http2")
    with rls.client(one.port) as c:
        c.request("five=warm")
        before = server.calls()
        calls = [c.should.future(rls.request(f"five=k{i % 100}"), timeout=10) for i in range(1000)]
        codes = collections.Counter(call.result().overall_code for call in calls)
    assert codes[rls.OK] == 500 and codes[rls.OVER] == 500
    assert server.calls() - before < 450  # they share commands: 500 pass, and each of them asks


def test_resp_pipelines_keep_their_order(redis_server, gateway):
    server = redis_server()
    store = f"weir_store {server.url()} deadline=3s;"
    one, two = (gateway(rules(), kind=RespGateway, http=store, outside=store) for _ in range(2))
    check = ("WEIR.CHECK", "header:x-key", "a")
    with Client(one.resp) as a, Client(two.resp) as b:
        assert [fields(c.do(*check))["decision"] for c in (a, b) * 3] == [b"allow"] * 5 + [b"deny"]
        before = server.calls()
        replies = a.pipeline([("PING",), ("WEIR.CHECK", "header:x-key", "b"), ("CL.THROTTLE", "t", "1", "1", "60"),
                              ("WEIR.CHECK", "odd"), ("WEIR.CHECK", "COST", "3", "header:x-key", "b"),
                              ("WEIR.PEEK", "header:x-key", "b"), ("ECHO", "x"), ("WEIR.CHECK", "COST", "2", "header:x-key", "b")])
        assert replies[0] == "PONG" and replies[2][0] == 0 and replies[6] == b"x"
        assert "pairs" in str(replies[3]) or "arguments" in str(replies[3])
        reported = [fields(replies[i]) for i in (1, 4, 5, 7)]
        assert [each["decision"] for each in reported] == [b"allow", b"allow", b"allow", b"deny"]
        assert [each["remaining"] for each in reported] == [4, 1, 0, 1]  # a look says what would be left
        assert server.calls() - before == 2
        a.send(b'WEIR.CHECK header:x-key "c c"\r\nPING\r\n')
        assert fields(a.reply())["decision"] == b"allow" and a.reply() == "PONG"
        many = a.pipeline([("WEIR.CHECK", "header:x-key", f"m{i % 100}") for i in range(1000)])
        passed = collections.Counter(i % 100 for i, reply in enumerate(many) if fields(reply)["decision"] == b"allow")
        assert set(passed.values()) == {5} and len(passed) == 100
    assert b"weir:five:c%20c" in server.client().keys()


# ---- Denials of more than 2^32 microseconds ----

def same(waits, least):
    """Each denial reports the same end: the first, which the store decided, and those that the host remembers."""
    assert least <= waits[-1] and max(waits) - min(waits) <= 2, waits


@pytest.mark.parametrize("algorithm", ["token_bucket", "fixed_first", "sliding_window_log"])
def test_denials_of_a_daily_quota_report_the_same_end(redis_server, hosts, algorithm):
    server = redis_server()
    one, = hosts(server, 1, rules(strict("day", 1, ALGORITHMS[algorithm], window="1d")), server=DOORS)
    assert get(one.port, "/", **key("a")).status == 200
    first = get(one.port, "/", **key("a"))
    before = server.calls()
    denied = [first] + [get(one.port, "/", **key("a")) for _ in range(3)]
    assert {each.status for each in denied} == {429}
    same([int(each.headers["Retry-After"]) for each in denied], 86390)
    same([int(each.headers["X-RateLimit-Reset"]) for each in denied], time.time() + 86380)
    item = {"attributes": {"headers": {"x-key": "a"}, "path": "/x"}}
    checked = [post(one.port, "/v1/check", item)[1] for _ in range(2)]
    same([each["retry_after_s"] for each in checked], 86380)
    assert server.calls() == before
    state = json.loads(get(one.port, "/v1/keys/day/a").body)
    same([checked[-1]["retry_after_s"], state["retry_after_s"]], 86380)


def test_denials_of_a_daily_quota_report_the_same_end_in_resp(redis_server, gateway):
    store = f"weir_store {redis_server().url()} deadline=3s;"
    text = rules(strict("day", 1, ALGORITHMS["fixed_first"], window="1d"))
    one = gateway(text, kind=RespGateway, http=store, outside=store)
    with Client(one.resp) as c:
        replies = [fields(c.do("WEIR.CHECK", "header:x-key", "a")) for _ in range(4)]
    assert [each["decision"] for each in replies] == [b"allow"] + [b"deny"] * 3
    for name in ("retry_after_ms", "reset_ms"):
        same([each[name] / 1000 for each in replies[1:]], 86390)


def test_denials_of_a_yearly_quota_report_the_same_end_in_grpc(redis_server, hosts):
    text = "domain: d\ndescriptors:\n  - { key: one, rate_limit: { unit: year, requests_per_unit: 1 } }\n"
    one, = hosts(redis_server(), 1, text, server=rls.LOCATIONS, listen="http2")
    with rls.client(one.port) as c:
        replies = [c.request("one=x") for _ in range(4)]
    assert [each.overall_code for each in replies] == [rls.OK] + [rls.OVER] * 3
    same([each.statuses[0].duration_until_reset.seconds for each in replies], 1)


def test_without_strict_rules_no_requests_are_sent(redis_server, hosts):
    server = redis_server()
    one, = hosts(server, 1, "rules:\n  - { name: five, key: '${header:x-key}', limit: 5, window: 1h }\n")
    assert statuses(one.port, "/", 6, **key("a")) == [200] * 5 + [429]
    assert one.status()["store"]["requests"] == 0  # token buckets are eventual by default: the agent exchanges
    plain, = hosts(f"redis://127.0.0.1:{free_port()}", 1, rules(strict()), settings="consistency=strict")
    assert statuses(plain.port, "/", 6, **key("a")) == [200] * 5 + [429]
