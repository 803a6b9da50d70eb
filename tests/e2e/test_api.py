"""The HTTP decision API: real clients (requests, httpx, curl), and every answer held against the OpenAPI description."""
import collections
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

import httpx
import jsonschema
import pytest
import requests

from clients import get, raw, statuses, together
from gateway import wait_until
from measured import measured
from ports import free_port

ROOT = pathlib.Path(__file__).parents[2]
RULES = json.dumps({
    "identity": {"user_id": "header:X-User", "client_ip": {"trusted_proxies": ["10.0.0.0/8"]}},
    "rules": [
        {"name": "api", "match": {"path": "/api/*"}, "key": "user:${user_id}", "limit": 5, "window": "1h"},
        {"name": "tokens", "match": {"path": "/llm"}, "key": "user:${user_id}", "limit": 1000, "window": "1d"},
        {"name": "by-ip", "match": {"path": "/ip"}, "key": "ip:${client_ip}", "limit": 2, "window": "1h"},
        {"name": "post", "match": {"path": "/write", "method": "POST", "host": "shop.example"}, "limit": 2,
         "window": "1h"},
        {"name": "shared", "match": {"path": "/shared"}, "limit": 100, "window": "1h"},
    ]})
API = "location /v1/ { weir_api; } location = /v1/auth { weir_auth; }"
DOC = json.loads((ROOT / "src/services/http/openapi.json").read_text())


# ---- The description, and answers held against it ----

def matches(path):
    for template in DOC["paths"]:
        if re.fullmatch(re.sub(r"\\{\w+\\}", ".+", re.escape(template)), path):
            if not (template == "/keys/{rule}/{key}" and path.endswith("/block")):
                return template
    return None


def hold(method, path, status, body):
    """Fails unless the description knows this answer to this request, to the letter."""
    template = matches(path)
    if template is None:
        assert status == 404
        return
    answers = DOC["paths"][template].get(method.lower(), {}).get("responses")
    if answers is None:
        assert status == 405
        return
    assert str(status) in answers, (method, path, status, body)
    answer = answers[str(status)]
    if "$ref" in answer:
        answer = DOC["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    schema = {**answer["content"]["application/json"]["schema"], "components": DOC["components"]}
    jsonschema.Draft202012Validator(schema).validate(body)


class Client:
    """requests, with every answer checked."""

    def __init__(self, port, token=None):
        self.base = f"http://127.0.0.1:{port}/v1"
        self.session = requests.Session()
        if token:
            self.session.headers["Authorization"] = f"Bearer {token}"

    def request(self, method, path, body=None, **more):
        answer = self.session.request(method, self.base + path, json=body, timeout=20, **more)
        assert answer.headers["Content-Type"] == "application/json"
        hold(method, urllib.parse.urlsplit(path).path, answer.status_code, answer.json())
        return answer

    def post(self, path, body):
        return self.request("POST", path, body)

    def check(self, body):
        answer = self.post("/check", body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def api(gateway):
    def make(server=API, rules=RULES, **more):
        g = gateway(rules, server=server, **more)
        g.client = Client(g.port)
        return g
    return make


def direct(key="k", **more):
    return {"key": key, "limit": 3, "window": "1h", **more}


def test_check_by_rules(api):
    c = api().client
    about = {"attributes": {"path": "/api/x", "user_id": 42, "method": "GET", "ip": "192.0.2.1", "headers": {"A": "b"}}}
    assert [c.check(about)["remaining"] for _ in range(5)] == [4, 3, 2, 1, 0]
    denied = c.check(about)
    assert (denied["decision"], denied["allowed"], denied["rule"], denied["key"]) == ("deny", False, "api", "user:42")
    assert 0 < denied["retry_after_s"] <= 720 and denied["rules"][0]["cost"] == 1
    assert c.check({"attributes": {"path": "/api/x", "headers": {"x-user": "other"}}})["remaining"] == 4
    assert c.check({"attributes": {"path": "/elsewhere"}})["reason"] == "no_rule"


def test_white_space_around_a_value_is_no_part_of_it(api):
    """In JSON as in a header: the application hands on what its client sent."""
    c = api().client
    for value in ("7", "\t7", "7 ", " \t7\t "):
        c.check({"attributes": {"path": "/api/x", "headers": {"X-User": value}}})
    assert c.check({"attributes": {"path": "/api/x", "user_id": "\t7"}})["remaining"] == 0
    assert c.check({"attributes": {"path": "/api/x", "headers": {"X-User": " "}}})["reason"] == "missing_key"
    for method, host in (("POST", "shop.example"), ("\tpost ", " shop.example\t")):
        assert c.check({"attributes": {"path": "/write", "method": method, "host": host}})["rule"] == "post"


def test_the_status_on_request(api):
    c = api().client
    for body, path in (({**direct("a"), "http": True}, "/check"), (direct("b"), "/check?status=1")):
        answers = [c.post(path, body) for _ in range(4)]
        assert [a.status_code for a in answers] == [200, 200, 200, 429]
        assert answers[2].headers["X-RateLimit-Remaining"] == "0" and "Retry-After" not in answers[2].headers
        assert answers[0].headers["RateLimit-Policy"] == '"";q=3;w=3600'
        assert answers[0].headers["RateLimit"] == '"";r=2;t=2400'
        assert int(answers[3].headers["Retry-After"]) > 0 and answers[3].json()["allowed"] is False
    plain = c.post("/check", direct("c"))
    assert "X-RateLimit-Limit" not in plain.headers


def test_descriptors(api):
    rules = json.dumps({"domain": "d", "descriptors": [
        {"key": "k", "rate_limit": {"unit": "hour", "requests_per_unit": 2}}]})
    c = api(rules=rules).client
    one = {"domain": "d", "descriptors": [[{"key": "k", "value": "v"}], [{"key": "unknown"}]]}
    first = c.check(one)
    assert first["remaining"] == 1 and [r["reason"] for r in first["rules"]] == ["limit", "no_rule"]
    assert c.check({**one, "hits": 0})["remaining"] == 1
    assert [c.check(one)["decision"] for _ in range(2)] == ["allow", "deny"]
    assert c.post("/refund", {**one, "hits": 2}).json()["remaining"] == 2


def test_batch_and_refund(api):
    c = api().client
    batch = [direct(f"k{i % 10}") for i in range(999)] + [{"attributes": {"path": "/api/x", "user_id": "b"}}]
    results = c.check({"batch": batch})["results"]
    assert len(results) == 1000
    assert collections.Counter(r["decision"] for r in results[:999]) == {"allow": 30, "deny": 969}
    assert results[999]["rule"] == "api"
    assert c.post("/refund", direct("k1", cost=2)).json()["remaining"] == 2
    c.post("/refund", {"attributes": {"path": "/api/x", "user_id": "b"}})
    assert c.check({"attributes": {"path": "/api/x", "user_id": "b"}, "dry_run": True})["remaining"] == 4


def test_counters_are_the_gateways(api):
    g = api(server=API + "location /api/ { proxy_pass http://@BACKEND@; }")
    assert get(g.port, "/api/x", headers={"X-User": "7"}).headers["X-RateLimit-Remaining"] == "4"
    assert g.client.check({"attributes": {"path": "/api/x", "user_id": "7"}, "cost": 4})["remaining"] == 0
    assert get(g.port, "/api/x", headers={"X-User": "7"}).status == 429
    # The API itself is not limited by the gateway's rules, unless its location says so.
    assert g.client.check(direct())["allowed"]


def test_faults_and_wrong_ways(api):
    g = api()
    c = g.client
    for body, field in (({}, "attributes"), ({"key": "k"}, "limit"), ({**direct(), "cost": -1}, "cost"),
                        ({"batch": [direct(), {**direct(), "window": "soon"}]}, "batch[1].window")):
        answer = c.post("/check", body)
        assert answer.status_code == 400 and answer.json()["error"]["field"] == field
    assert c.request("GET", "/nothing").status_code == 404
    wrong = c.request("GET", "/check")
    assert wrong.status_code == 405 and wrong.headers["Allow"] == "POST"
    assert c.request("POST", "/keys/api/x", {}).headers["Allow"] == "GET, HEAD, DELETE"
    form = get(g.port, "/v1/check", "POST", {"Content-Type": "application/x-www-form-urlencoded"}, "a=b")
    assert form.status == 415 and json.loads(form.body)["error"]["code"] == "not_json"
    assert get(g.port, "/v1/check", "POST", {"Content-Type": "application/vnd.x+json; charset=utf-8"},
               json.dumps(direct())).status == 200
    head = get(g.port, "/v1/openapi.json", "HEAD")
    assert head.status == 200 and head.body == b""


def test_the_description_is_served_and_is_all_there_is(api):
    c = api().client
    assert c.request("GET", "/openapi.json").json() == DOC
    for name, schema in DOC["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert f"schemas/{name}\"" in json.dumps(DOC), name
    # What the description says of requests is what is asked here.
    requests_of = {**DOC["components"]["schemas"]["CheckRequest"], "components": DOC["components"]}
    validator = jsonschema.Draft202012Validator(requests_of)
    for body in (direct(), {"batch": [direct(cost=0)]}, {"attributes": {"path": "/", "user_id": 1}},
                 {"domain": "d", "descriptors": [[{"key": "k"}]], "hits": 0}):
        validator.validate(body)
        assert c.post("/check", body).status_code == 200
    for body in ({}, direct(cost=-1), direct(kost=1), {"batch": []}, {"attributes": {"headers": []}},
                 {"domain": "d", "descriptors": [[]]}):
        assert not validator.is_valid(body)
        assert c.post("/check", body).status_code == 400


def test_bodies_however_they_come(api, tmp_path):
    g = api(listen="http2")
    with httpx.Client(http1=False, http2=True) as h2:
        url = f"http://127.0.0.1:{g.port}/v1/check"
        assert h2.post(url, json=direct("h2")).json()["remaining"] == 2
        pieces = json.dumps(direct("h2")).encode()
        assert h2.post(url, content=(bytes([b]) for b in pieces)).json()["remaining"] == 1
        assert h2.post(url, json=direct("h2")).json()["remaining"] == 0
    # Of unknown length, and of known: curl 7.88 does not tell of an answer that a reset of the stream follows.
    big = tmp_path / "big"
    big.write_bytes(b" " * (1 << 20) + pieces)
    output = subprocess.run(["curl", "-sS", "--http2-prior-knowledge", "-H", "Content-Length:", "-H",
                           "Content-Type: application/json", "--data-binary", f"@{big}", url],
                          capture_output=True, check=True, timeout=60).stdout
    assert b'"code":"too_large"' in output, output
    output = subprocess.run(["nghttp", "-v", "-H", ":method: POST", "-H", "Content-Type: application/json", "-d",
                           str(big), url], capture_output=True, check=False, timeout=60).stdout
    assert b":status: 413" in output and b'"code":"too_large"' in output, output
    assert httpx.Client(http1=False, http2=True).post(url, json=direct("h3")).status_code == 200


def test_bodies_of_http1_in_pieces(api):
    g = api()
    body = json.dumps(direct("slow")).encode()
    with socket.create_connection(("127.0.0.1", g.port), timeout=10) as s:
        s.sendall(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
        for at in range(len(body)):
            s.sendall(body[at:at + 1])
            time.sleep(0.002)
        assert b'"remaining":2' in s.recv(65536)
        s.sendall(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 7):
            s.sendall(b"%x\r\n%s\r\n" % (len(body[at:at + 7]), body[at:at + 7]))
            time.sleep(0.002)
        s.sendall(b"0\r\n\r\n")
        assert b'"remaining":1' in s.recv(65536)
    padded = b" " * ((1 << 20) - len(body)) + body
    url = f"http://127.0.0.1:{g.port}/v1/check"
    assert requests.post(url, data=padded, timeout=20).json()["remaining"] == 0
    assert requests.post(url, data=iter([padded[:70000], padded[70000:]]), timeout=20).json()["decision"] == "deny"
    for data in (b" " + padded, iter([b" ", padded])):
        try:
            assert requests.post(url, data=data, timeout=20).json()["error"]["code"] == "too_large"
        except requests.ConnectionError:
            pass  # it may be told while it is still sending
    declared = raw(g.port, b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
    assert b" 413 " in declared and b'"code":"too_large"' in declared
    endless = raw(g.port, b"POST /v1/check HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" +
                  b"10000\r\n" + b" " * 65536 + (b"\r\n10000\r\n" + b" " * 65536) * 20)
    assert b" 413 " in endless
    assert g.client.check(direct("after"))["allowed"]


def test_hostile_bodies_leave_the_worker_alone(api):
    g = api()
    worker = g.workers()
    deep = b"[" * 1000 + b"]" * 1000
    deeper = b'{"attributes":' * 60000
    for body in (deep, deeper, b"\xff" * 1000, b'{"key":"' + b"\\u0000" * 10 + b'"}', b'{"key":1e999}', b"null", b""):
        answer = requests.post(f"http://127.0.0.1:{g.port}/v1/check", data=body, timeout=20)
        assert answer.status_code == 400 and answer.json()["error"]["code"] in ("bad_json", "bad_request")
    with socket.create_connection(("127.0.0.1", g.port)) as s:  # leaves in the middle
        s.sendall(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"key\"")
    idle = [socket.create_connection(("127.0.0.1", g.port)) for _ in range(500)]
    for s in idle:
        s.sendall(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{")
    assert g.client.check(direct())["allowed"]
    for s in idle:
        s.close()
    assert g.workers() == worker


def test_curl(api):
    g = api()
    output = subprocess.run(["curl", "-sS", "-H", "Content-Type: application/json", "-d", json.dumps(direct()),
                           f"http://127.0.0.1:{g.port}/v1/check"], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(output.stdout)["remaining"] == 2


# ---- Keys, tokens and operators ----

def test_keys(api):
    g = api(server="location /v1/ { weir_api; weir_api_operator on; }")
    c = g.client
    key = urllib.parse.quote("user:a/b//%2F?&é", safe="")
    about = {"attributes": {"path": "/api/x", "user_id": "a/b//%2F?&é"}}
    c.check(about), c.check(about)
    state = c.request("GET", f"/keys/api/{key}")
    assert state.json()["remaining"] == 3 and state.headers["Cache-Control"] == "no-store"
    assert state.json()["key"] == "user:a/b//%2F?&é"
    assert c.request("DELETE", f"/keys/api/{key}").json()["reset"] is True
    assert c.request("GET", f"/keys/api/{key}").json()["remaining"] == 5
    assert c.request("PUT", f"/keys/api/{key}/block", {"for": "10m"}).json()["blocked_for_s"] == 600
    denied = c.check(about)
    assert denied["reason"] == "blocked" and 0 < denied["retry_after_s"] <= 600
    assert c.request("DELETE", f"/keys/api/{key}/block").json()["blocked_for_s"] == 0
    assert c.check(about)["allowed"]
    assert c.request("GET", "/keys/none/x").status_code == 404
    assert c.request("PUT", "/keys/api/x/block", {"for": "for ever"}).status_code == 400
    # Slashes that follow each other are the key's own.
    c.check({"attributes": {"path": "/api/x", "user_id": "//x"}})
    with socket.create_connection(("127.0.0.1", g.port), timeout=10) as s:
        s.sendall(b"GET /v1/keys/api/user:%2f/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b'"remaining":4' in s.makefile("rb").read()


TOKENS = "one-secret-token", "another-secret-token", "the-operators-token"


def test_tokens(api, tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"# tokens\n\n{TOKENS[1]}\r\n")
    g = api(server=f"""location /v1/ {{ weir_api; weir_api_token {TOKENS[0]}; weir_api_token file={file};
                       weir_api_token {TOKENS[2]} operator; }}""")
    nobody, wrong = g.client, Client(g.port, TOKENS[0] + "x")
    answer = nobody.post("/check", direct())
    assert answer.status_code == 401 and answer.headers["WWW-Authenticate"] == 'Bearer realm="weir"'
    answer = wrong.post("/check", direct())
    assert answer.status_code == 401 and 'error="invalid_token"' in answer.headers["WWW-Authenticate"]
    assert nobody.request("GET", "/openapi.json").status_code == 401
    for token in TOKENS:
        assert Client(g.port, token).check(direct(token))["allowed"]
    for token in TOKENS[:2]:
        c = Client(g.port, token)
        assert c.request("GET", "/keys/api/x").status_code == 200
        for way in (("DELETE", "/keys/api/x"), ("PUT", "/keys/api/x/block", {"for": 1}), ("DELETE", "/keys/api/x/block")):
            answer = c.request(*way)
            assert answer.status_code == 403 and "insufficient_scope" in answer.headers["WWW-Authenticate"]
    assert Client(g.port, TOKENS[2]).request("DELETE", "/keys/api/x").status_code == 200
    assert get(g.port, "/v1/check", "POST", {"Authorization": "bearer   " + TOKENS[0]}, "{}").status == 400
    for header in ("", "Bearer", "Bearer ", "Basic " + TOKENS[0], TOKENS[0]):
        assert get(g.port, "/v1/check", "POST", {"Authorization": header}, "{}").status == 401
    # What was refused for want of a token leaves the connection in order.
    c = requests.Session()
    for _ in range(3):
        assert c.post(f"http://127.0.0.1:{g.port}/v1/check", data=b" " * 100000, timeout=20).status_code == 401


def test_guessing_takes_its_time(api):
    """Wrong tokens are answered later and later, without holding up the worker, or a connection with the right one."""
    g = api(server=f"""location /v1/ {{ weir_api; weir_api_token {TOKENS[0]}; }}
                       location = /v1/auth {{ weir_auth; weir_api_token {TOKENS[0]}; }}
                       location = /json {{ weir_rls_json; weir_api_token {TOKENS[0]}; }}
                       location = /metrics {{ weir off; weir_metrics; }}""", workers=1)
    took = []

    def guess(path, name, value):
        began = time.monotonic()
        answer = get(g.port, path, "POST", {name: value}, "{}")
        assert answer.status == 401 and answer.headers["WWW-Authenticate"]
        took.append(time.monotonic() - began)
    guess("/v1/check", "Authorization", "Bearer a-wrong-token")
    guess("/json", "X-Weir-Token", "a-wrong-token")
    guess("/v1/auth", "X-Weir-Token", "a-wrong-token")
    tick = 0.005  # nginx counts milliseconds from the time at which it last looked at the clock
    assert [seconds >= at_least - tick for seconds, at_least in zip(took, (0.1, 0.2, 0.4))] == [True] * 3, took
    waiting = [threading.Thread(target=guess, args=("/v1/check", "X-Weir-Token", "a-wrong-token")) for _ in range(20)]
    for each in waiting:
        each.start()
    began = time.monotonic()
    with requests.Session() as session:
        for _ in range(5):  # the first waits for at most 2 s
            assert session.post(f"http://127.0.0.1:{g.port}/v1/check", json.dumps(direct()),
                                headers={"X-Weir-Token": TOKENS[0], "Content-Type": "application/json"}).ok
            assert get(g.port, "/v1/check", "POST", {}, "{}").status == 401  # none is no guess
    assert time.monotonic() - began < 4
    for each in waiting:
        each.join()
    assert len(took) == 23 and sorted(took)[-15] >= 5 - tick, took  # after the seventh, as long as it gets
    assert b"\nweir_auth_failures_total 23\n" in get(g.port, "/metrics").body
    left = socket.create_connection(("127.0.0.1", g.port), timeout=10)
    left.sendall(b"GET /v1/keys/a/b HTTP/1.1\r\nHost: x\r\nX-Weir-Token: a-wrong-token\r\n\r\n")
    left.close()
    assert get(g.port, "/v1/check", "POST", {"X-Weir-Token": TOKENS[0]}, json.dumps(direct())).status == 200


@measured
def test_abandoned_login_attempts_reveal_nothing(api):
    """A connection for each guess, closed after 20 ms without an answer: the check itself must come later than that."""
    g = api(server=f"""location /v1/ {{ weir_api; weir_api_token {TOKENS[0]}; }}
                       location = /metrics {{ weir off; weir_metrics; }}""", workers=1)

    def checked():
        return int(re.search(rb"^weir_auth_failures_total (\d+)$", get(g.port, "/metrics").body, re.M)[1])

    def request(connection, token):
        body = json.dumps(direct())
        connection.sendall(f"POST /v1/check HTTP/1.1\r\nHost: x\r\nX-Weir-Token: {token}\r\n"
                           f"Content-Length: {len(body)}\r\n\r\n{body}".encode())

    def answer(connection, timeout):
        connection.settimeout(timeout)
        try:
            return connection.recv(10000)[9:12]
        except TimeoutError:
            return None

    def connect():
        return socket.create_connection(("127.0.0.1", g.port), timeout=10)

    def guess(count):
        for _ in range(count):
            with connect() as one:
                request(one, "a-wrong-token")
                answer(one, 0.02)
    with connect() as early:
        request(early, TOKENS[0])
        assert answer(early, 10) == b"200"
        together([lambda: guess(50) for _ in range(8)])
        assert 6 <= checked() <= 12  # of 400
        began = time.monotonic()
        request(early, TOKENS[0])
        assert answer(early, 10) == b"200" and time.monotonic() - began < 0.2  # it had the right one before
        with connect() as late:
            request(late, TOKENS[0])
            assert answer(late, 0.02) is None  # nothing tells it from a wrong one
            assert answer(late, 10) == b"200" and time.monotonic() - began < 4  # at most 2 s, on a busy machine
            request(late, "a-wrong-token")
            assert answer(late, 10) == b"401"
    held = [connect() for _ in range(64)]
    for each in held:
        request(each, "a-wrong-token")
    time.sleep(0.1)
    refused = get(g.port, "/v1/check", "POST", {"X-Weir-Token": TOKENS[0]}, json.dumps(direct()))
    assert refused.status == 503 and refused.headers["Retry-After"] == "2" and b'"busy"' in refused.body
    assert get(g.port, "/v1/check", "POST", {}, "{}").status == 401
    for each in held:
        each.close()
    time.sleep(0.1)  # those that left have given back their places
    assert get(g.port, "/v1/check", "POST", {"X-Weir-Token": TOKENS[0]}, json.dumps(direct())).status == 200
    assert checked() <= 13 and "alert" not in g.errors()


def test_without_tokens_operators_must_be_allowed(api):
    c = api().client
    assert c.request("GET", "/keys/api/x").status_code == 200
    answer = c.request("DELETE", "/keys/api/x")
    assert answer.status_code == 403 and answer.json()["error"]["code"] == "operator_only"


@pytest.mark.parametrize("wrong, reply", [
    ("location /v1/ { weir_api; weir_api_token short; }", "less than 8 characters"),
    ("location /v1/ { weir_api; weir_api_token long-enough-token admin; }", 'invalid parameter "admin"'),
    ("location /v1/ { weir_api; weir_api_token file=/nowhere/tokens; }", "cannot read"),
    ("location /v1/ { weir_api; weir_api_token file=/dev/null; }", "without a token"),
    ("location /v1/ { weir_api; weir_auth; }", "contradicts"),
    ("location = /v1/auth { weir_auth; weir_auth_headers x-forwarded-uri; }", 'invalid value "x-forwarded-uri"'),
    ("location = /v1/auth { weir_auth; weir_auth_trusted_proxies 10.0.0.0/8 proxy.example; }", "proxy.example"),
    ("location ~ ^/v1/ { weir_api; }", "regular expression"),
    ("location = /v1/check { weir_api; }", "needs a location"),
    ("location = /v1/auth { weir_auth; weir_auth_status 200; }", "from 400 to 599"),
])
def test_configurations_that_cannot_be(gateway, wrong, reply):
    content, output = gateway(RULES, server=wrong, start=False).test()
    assert not content and reply in output


# ---- Reservations ----

def llm(cost, **more):
    return {"attributes": {"path": "/llm", "user_id": "1"}, "cost": cost, **more}


def left(c, rule="tokens", key="user:1"):
    return c.request("GET", f"/keys/{rule}/{key}").json()["remaining"]


def test_reserve_commit_cancel(api):
    c = api().client
    token = c.post("/reserve", llm(400)).json()["reservation"]
    assert left(c) == 600
    assert c.post("/commit", {"reservation": token, "cost": 150}).json()["rules"][0]["remaining"] == 850
    assert c.post("/commit", {"reservation": token, "cost": 150}).status_code == 409
    token = c.post("/reserve", llm(100)).json()["reservation"]
    assert c.post("/cancel", {"reservation": token}).status_code == 200
    assert left(c) == 850
    token = c.post("/reserve", llm(800)).json()["reservation"]
    c.post("/commit", {"reservation": token, "cost": 900})
    assert left(c) == -50
    denied = c.post("/reserve", llm(1))
    assert denied.json()["reservation"] is None and denied.status_code == 200
    assert c.post("/reserve", llm(1, http=True)).status_code == 429
    assert c.post("/cancel", {"reservation": "nonsense"}).status_code == 400
    keyed = c.post("/reserve", direct(cost=2)).json()
    assert c.post("/commit", {"reservation": keyed["reservation"], "cost": 1}).json()["rules"][0]["remaining"] == 2


def test_only_one_of_many_settles(api):
    g = api(workers=2)
    c = g.client
    tokens = [c.post("/reserve", llm(10)).json()["reservation"] for _ in range(8)]

    def settle(token):
        return lambda: Client(g.port).post("/cancel", {"reservation": token}).status_code
    statuses = together([settle(token) for token in tokens for _ in range(4)])
    assert collections.Counter(statuses) == {200: 8, 409: 24}
    assert left(c) == 1000


def test_a_reservation_expires_by_itself(api):
    c = api(workers=2).client
    token = c.post("/reserve", llm(400, expires_s=3)).json()["reservation"]
    assert left(c) == 600
    wait_until(lambda: left(c) == 1000, "expiry")
    answer = c.post("/commit", {"reservation": token, "cost": 1})
    assert answer.status_code == 410
    assert left(c) == 1000


def test_reservations_outlive_workers_and_nginx(api):
    """kill -9 of every worker, and of nginx as a whole: tokens are good, and what is not settled expires."""
    g = api(workers=2)
    g.expected = ("exited on signal 9",)
    c = g.client
    kept = c.post("/reserve", llm(300, expires_s=300)).json()["reservation"]
    c.post("/reserve", llm(200, expires_s=1))
    before = g.workers()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    g.wait_for_workers(before)
    c = Client(g.port)
    wait_until(lambda: left(c) == 700, "expiry after the workers' death")
    c.post("/reserve", llm(100, expires_s=1))
    workers = g.workers()
    os.kill(g.master, signal.SIGKILL)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    g.pids.clear()
    time.sleep(1.2)
    (g.folder / "nginx.pid").unlink()
    g.start()
    c = Client(g.port)
    wait_until(lambda: left(c) == 700, "expiry after nginx's death")
    assert c.post("/commit", {"reservation": kept, "cost": 50}).status_code == 200
    assert left(c) == 950
    g.reload()
    assert Client(g.port).post("/commit", {"reservation": kept, "cost": 50}).status_code == 409


def test_pending_reservations_are_bounded(api):
    c = api(http="weir_api_reservations 5;").client
    answers = [c.post("/reserve", llm(1)) for _ in range(6)]
    assert [a.status_code for a in answers] == [200] * 5 + [503]
    assert answers[5].json()["error"]["code"] == "too_many_reservations"
    c.post("/cancel", {"reservation": answers[0].json()["reservation"]})
    assert c.post("/reserve", llm(1)).status_code == 200
    assert left(c) == 995


def test_without_reservations(api):
    g = api(http="weir_api_reservations 0;")
    assert g.client.post("/reserve", llm(1)).json()["error"]["code"] == "no_reservations"
    assert not pathlib.Path(f"{g.segment}.reservations").exists()


# ---- Forward authentication ----

def auth(port, uri, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return get(port, "/v1/auth", headers={"X-Forwarded-Uri": uri, **named})


def test_auth_replies_as_the_gateway_does(api):
    g = api(server=API + "location /ip { proxy_pass http://@BACKEND@; }")
    passed = auth(g.port, "/ip?q=1", X_Forwarded_For="192.0.2.9")
    assert passed.status == 200 and passed.headers["X-RateLimit-Remaining"] == "1" and passed.body == b""
    auth(g.port, "/i%70", X_Forwarded_For="192.0.2.9")
    denied = auth(g.port, "/ip", X_Forwarded_For="192.0.2.9")
    for path in ("/ip", "/ip"):
        get(g.port, path)
    own = get(g.port, "/ip")
    assert denied.status == own.status == 429
    skip = {"date", "x-ratelimit-reset", "retry-after", "x-ratelimit-retry-after", "ratelimit"}
    assert {k.lower(): v for k, v in denied.headers.items() if k.lower() not in skip} == \
        {k.lower(): v for k, v in own.headers.items() if k.lower() not in skip}
    assert json.loads(denied.body).keys() == json.loads(own.body).keys()
    assert auth(g.port, "/ip", X_Forwarded_For="192.0.2.9", Accept="application/problem+json"
                ).headers["Content-Type"] == "application/problem+json"
    # A gRPC call's denial must not look like a permission.
    assert auth(g.port, "/ip", X_Forwarded_For="192.0.2.9", Content_Type="application/grpc").status == 429


def test_auth_knows_the_client_behind_proxies(api):
    g = api()
    for forwarded in ("192.0.2.1", "192.0.2.1, 10.0.0.1", "203.0.113.5, 192.0.2.1", " 203.0.113.5 ,192.0.2.1, 10.0.0.1 "):
        auth(g.port, "/ip", X_Forwarded_For=forwarded)
    assert left(g.client, "by-ip", "ip:192.0.2.1") == 0
    auth(g.port, "/ip", X_Forwarded_For="2001:db8::1")
    assert left(g.client, "by-ip", "ip:2001:db8::%2F64") == 1
    auth(g.port, "/ip")
    auth(g.port, "/ip", X_Forwarded_For="nonsense")
    assert left(g.client, "by-ip", "ip:127.0.0.1") == 0


def test_auth_strips_white_space(api):
    g = api()
    for padding in ("", "\t", " \t"):
        sent = {name: padding + value + padding for name, value in (
            ("X-Forwarded-Uri", "/write"), ("X-Forwarded-Method", "POST"), ("X-Forwarded-Host", "shop.example"))}
        answer = raw(g.port, "".join(["GET /v1/auth HTTP/1.1\r\nHost: x\r\nConnection: close\r\n",
                                      *(f"{name}:{value}\r\n" for name, value in sent.items()), "\r\n"]).encode())
        assert answer.split()[1] == (b"429" if padding == " \t" else b"200"), (padding, answer)
    for forwarded in ("203.0.113.5,\t192.0.2.1\t", "192.0.2.1\t,\t10.0.0.1"):
        auth(g.port, "/ip", X_Forwarded_For=forwarded)
    assert left(g.client, "by-ip", "ip:192.0.2.1") == 0


def test_auth_denies_a_client_with_two_request_ids(api):
    """They are read to record the denial, which two lines of them must not turn into another reply."""
    g = api()
    lines = "X-Forwarded-Uri: /ip\r\nX-Forwarded-For: 192.0.2.77\r\nX-Request-ID: a\r\nX-Request-ID: b\r\n"
    seen = [raw(g.port, f"GET /v1/auth HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n".encode()).split()[1]
            for _ in range(3)]
    assert seen == [b"200", b"200", b"429"]


def test_auth_takes_method_and_host_from_either_kind_of_header(api):
    g = api()
    ways = [{"X-Forwarded-Uri": "/write", "X-Forwarded-Method": "POST", "X-Forwarded-Host": "shop.example"},
            {"X-Original-URI": "/write", "X-Original-Method": "POST", "Host": "shop.example"}]
    assert [get(g.port, "/v1/auth", headers=way).headers["X-RateLimit-Remaining"] for way in ways] == ["1", "0"]
    assert auth(g.port, "/write").status == 200
    assert get(g.port, "/v1/auth", headers={"X-Original-URI": "/api/x", "X-User": "o"}).headers["X-RateLimit-Limit"] == "5"
    lost = get(g.port, "/v1/auth")
    assert lost.status == 400 and b"X-Forwarded-Uri" in lost.body
    posted = get(g.port, "/v1/auth", "POST", {"X-Forwarded-Uri": "/elsewhere"}, "x" * 100000)
    assert posted.status == 200


@pytest.mark.parametrize("chosen", ["", "weir_auth_headers forwarded;", "weir_auth_headers original;"])
def test_auth_does_not_believe_two_descriptions(api, chosen):
    """Without a choice what a client adds to the proxy's headers is refused; with one it is ignored."""
    g = api(server=f"location /v1/ {{ weir_api; }} location = /v1/auth {{ weir_auth; {chosen} }}")
    proxys = {"original": "X-Original", "forwarded": "X-Forwarded"}.get(chosen.partition(" ")[2].strip(";"), "X-Original")
    clients = "X-Forwarded" if proxys == "X-Original" else "X-Original"
    described = {f"{proxys}-URI": "/ip", f"{proxys}-Method": "GET", "X-Forwarded-For": "192.0.2.9"}
    for name, value in (("URI", "/elsewhere"), ("Method", "POST"), ("Host", "shop.example")):
        answer = get(g.port, "/v1/auth", headers={**described, f"{clients}-{name}": value})
        assert answer.status == (400 if not chosen else 429 if name == "Host" else 200)
        if not chosen:
            assert b"weir_auth_headers" in answer.body and b"service.auth.headers" in answer.body
    assert left(g.client, "by-ip", "ip:192.0.2.9") == (0 if chosen else 2)
    # A proxy that adds a line instead of replacing the client's.
    lines = "".join(f"{proxys}-URI: {uri}\r\n" for uri in ("/elsewhere", "/ip"))
    answer = raw(g.port, f"GET /v1/auth HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n".encode(), until_closed=True)
    assert answer.split()[1] == b"400" and b"several lines" in answer


SINGLE = json.dumps({
    "identity": {"api_key": "header:X-API-Key"}, "block": {"keys": ["user:666"]},
    "rules": [{"limit": 2, "window": "1d", **rule} for rule in (
        {"name": "key", "match": {"path": "/key"}, "key": "${api_key}"},
        {"name": "user", "match": {"path": "/user"}, "key": "user:${header:X-User}"},
        {"name": "plan", "match": {"path": "/plan", "header": {"X-Plan": "free"}}, "limit": 0},
        {"name": "cost", "match": {"path": "/cost"}, "cost": "header:X-Cost"},
        {"name": "lists", "match": {"path": "/lists", "header": {"X-Forwarded-For": "*", "Forwarded": "*"}},
         "key": "${cookie:sid}", "limit": 3})]})


@pytest.mark.parametrize("mode", ["", "weir on;"])
def test_auth_refuses_several_lines_of_a_header_that_a_rule_reads(api, mode):
    """The proxy passes all of them on, and the upstream may take any: joined, they would be another key each time."""
    g = api(rules=SINGLE, server=f"location /v1/ {{ weir_api; }} location = /v1/auth {{ weir_auth; {mode} }}")

    def request(uri, *lines):
        sent = "".join(f"{line}\r\n" for line in (f"X-Forwarded-Uri: {uri}", *lines))
        answer = raw(g.port, f"GET /v1/auth HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{sent}\r\n".encode(), until_closed=True)
        assert (b"several lines" in answer) == (answer.split()[1] == b"400")
        return int(answer.split()[1])
    for lines in (("X-API-Key: real", "X-API-Key: 1"), ("x-api-key: 2", "X-API-Key: real"), ("X-API-Key: real",) * 2,
                  ("X-API-Key: real", "X-API-Key:")):
        assert request("/key", *lines) == 400
    assert [request("/key", "X-API-Key: real") for _ in range(3)] == [200, 200, 429]
    assert [request("/user", "X-User: 666", *more) for more in ((), ("X-User: 1",))] == [403, 400]
    assert [request("/plan", "X-Plan: free", *more) for more in ((), ("X-Plan: x",))] == [403, 400]
    assert [request("/cost", "X-Cost: 3", *more) for more in ((), ("X-Cost: x",))] == [429, 400]
    # Lines that no rule reads, and those to which each proxy or the browser adds its own.
    assert request("/elsewhere", "X-API-Key: real", "X-API-Key: 1", "X-Other: 1", "X-Other: 2") == 200
    lists = ("X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 192.0.2.2", "Forwarded: for=192.0.2.1", "Forwarded: for=192.0.2.2",
             "Cookie: a=1", "Cookie: sid=1")
    assert [request("/lists", *lists) for _ in range(4)] == [200, 200, 200, 429]


@pytest.mark.parametrize("chosen", ["", "weir_auth_headers original;"])
def test_a_client_of_nginx_cannot_describe_its_request(api, gateway, chosen):
    """auth_request with X-Original-…, through which nginx passes every other header of the client."""
    service = api(server=f"location = /v1/auth {{ weir_auth; weir_auth_status 403; {chosen} }}")
    front = gateway(RULES, weir="off", server=f"""location /ip {{ auth_request /_weir; proxy_pass http://@BACKEND@; }}
        location = /_weir {{ internal; proxy_pass http://127.0.0.1:{service.port}/v1/auth; proxy_pass_request_body off;
            proxy_set_header Content-Length ""; proxy_set_header X-Original-URI $request_uri;
            proxy_set_header X-Original-Method $request_method; proxy_set_header X-Original-Host $host;
            proxy_set_header X-Forwarded-For $remote_addr; }}""")
    forged = {"X-Forwarded-Uri": "/elsewhere", "X-Forwarded-Method": "PUT", "X-Forwarded-Host": "x", "X-Forwarded-For": "192.0.2.1"}
    assert statuses(front.port, "/ip", 3, headers=forged) == ([200, 200, 403] if chosen else [500] * 3)
    assert statuses(front.port, "/ip", 3)[-1] == 403


@pytest.mark.parametrize("trusted, wanted", [("127.0.0.0/8", 200), ("192.0.2.0/24", 403)])
def test_auth_trusts_the_peer_and_not_what_realip_makes_of_it(api, trusted, wanted):
    g = api(server=f"location /v1/ {{ weir_api; }} location = /v1/auth {{ weir_auth; weir_auth_trusted_proxies {trusted}; }}",
            http="set_real_ip_from 127.0.0.0/8; real_ip_header X-Forwarded-For;")
    assert auth(g.port, "/ip", X_Forwarded_For="192.0.2.9").status == wanted
    assert left(g.client, "by-ip", "ip:192.0.2.9") == (1 if wanted == 200 else 2)


def test_auth_on_a_unix_socket(api):
    g = api(server="weir_auth_trusted_proxies 192.0.2.0/24; listen unix:@FOLDER@/socket;" + API)
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(g.folder / "socket"))
        s.sendall(b"GET /v1/auth HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Original-URI: /ip\r\n\r\n")
        assert s.recv(65536).split()[1] == b"200"
    assert auth(g.port, "/ip").status == 403


def test_tokens_of_a_server_guard_all_its_locations(api):
    g = api(rules=json.dumps({"domain": "d", "descriptors": [{"key": "k", "rate_limit": {"unit": "hour",
                                                                                          "requests_per_unit": 2}}]}),
            server=f"weir_api_token {TOKENS[0]}; {API} location = /json {{ weir_rls_json; }} "
                   f"location = /open {{ weir_rls_json; weir_api_open on; }}")
    body = json.dumps({"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]})
    token = {"X-Weir-Token": TOKENS[0]}
    assert [get(g.port, "/json", "POST", headers, body).status for headers in (
        {}, {"X-Weir-Token": TOKENS[1]}, token, {"Authorization": f"Bearer {TOKENS[0]}"}, token)] == [401, 401, 200, 200, 429]
    assert get(g.port, "/open", "POST", {}, body).status == 429
    assert auth(g.port, "/x").status == 401 and auth(g.port, "/x", X_Weir_Token=TOKENS[0]).status == 200


def test_the_proxys_token_is_no_header_of_the_client(api):
    rules = json.dumps({"rules": [{"name": "r", "key": "${header:X-Weir-Token}", "limit": 1, "window": "1h"}]})
    g = api(rules=rules, server=f"weir_api_token {TOKENS[0]}; {API}")
    assert [auth(g.port, "/x", X_Weir_Token=TOKENS[0]).status for _ in range(3)] == [200] * 3


EXAMPLES = [block for page in ("http", "forward-auth")
            for block in re.findall(r"```nginx\n(.*?)```", (ROOT / f"docs/reference/{page}.md").read_text(), re.S)]


FORGED = {f"X-{family}-{name}": value for family in ("Forwarded", "Original") for name, value in (
    ("Uri", "/elsewhere"), ("Method", "PUT"), ("Host", "elsewhere.example"))}


def test_nginx_auth_request_in_front(api, gateway):
    """The recipe of docs/reference/forward-auth.md, as it stands there."""
    service = api(server="location = /v1/auth { weir_auth; weir_auth_status 403; weir_auth_headers forwarded; }")
    recipe = next(block for block in EXAMPLES if "auth_request " in block)
    recipe = recipe.replace("127.0.0.1:8082", f"127.0.0.1:{service.port}").replace("http://api", "http://@BACKEND@")
    front = gateway(RULES, server=recipe.replace("location / {", "location /ip {"), weir="off")
    answers = [get(front.port, "/ip", headers=FORGED) for _ in range(3)]
    assert [a.status for a in answers] == [200, 200, 429]
    assert answers[0].headers["X-RateLimit-Remaining"] == "1"
    assert int(answers[2].headers["Retry-After"]) > 0 and json.loads(answers[2].body)["error"] == "rate_limit_exceeded"


def test_caddy_forward_auth_in_front(api, tmp_path):
    service = api(server=API + "weir_auth_headers forwarded;")
    port = free_port()
    text = (ROOT / "examples/caddy/Caddyfile").read_text()
    text = text.replace("127.0.0.1:8082", f"127.0.0.1:{service.port}").replace(":8080 {", f"http://127.0.0.1:{port} {{") \
        .replace("127.0.0.1:9000", f"127.0.0.1:{service.backend}")
    (tmp_path / "Caddyfile").write_text("{\n admin off\n}\n" + text)
    caddy = subprocess.Popen(["caddy", "run", "--config", str(tmp_path / "Caddyfile"), "--adapter", "caddyfile"],
                             env={**os.environ, "HOME": str(tmp_path), "LD_PRELOAD": ""},
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        def up():
            try:
                return socket.create_connection(("127.0.0.1", port), timeout=1).close() is None
            except OSError:
                return False
        wait_until(up, "caddy")
        answers = [get(port, "/ip", headers=FORGED) for _ in range(3)]
        assert [a.status for a in answers] == [200, 200, 429]
        assert answers[0].body == b"backend /ip\n" and answers[0].headers["X-RateLimit-Remaining"] == "1"
        assert int(answers[2].headers["Retry-After"]) > 0 and json.loads(answers[2].body)["error"]
    finally:
        caddy.terminate()
        caddy.wait(10)


# ---- The documentation ----

@pytest.mark.parametrize("example", [block for block in EXAMPLES if "auth_request " not in block])
def test_examples_of_the_documentation(gateway, example, tmp_path):
    (tmp_path / "tokens").write_text("a-token-of-some-length\n")
    g = gateway(RULES, start=False, server=example.replace("/etc/weir/tokens", str(tmp_path / "tokens")))
    content, output = g.test()
    assert content, output


def test_many_workers_many_clients(api):
    g = api(workers=2)

    def client():
        c = Client(g.port)
        return sum(c.check({"attributes": {"path": "/shared"}})["allowed"] for _ in range(40))
    assert sum(together([client] * 8)) == 100
