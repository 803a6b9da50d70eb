"""on_limit: queue, from the denial of a request to its ticket: what is kept, what is not, and that whatever goes wrong is
the usual denial. What comes out of the queue again has its own tests."""
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time

import httpx
import pytest

from clients import get, together
from gateway import pause, wait_until
from queued import BOUND, HEAD, QUEUE, RULES, chunked, host, is_plain_denial  # noqa: F401
from served import ENVIRONMENT, WEIR


# ---- What is kept ----

def test_a_denied_request_is_deferred_with_a_ticket(host):
    one = host()
    target = "/kept?a=%2Fb&c=d%20e"
    one.use_up(target, user="7")
    ticket, answer = one.defer(target, user="7", body=b"one\0two\xff", Content_Type="text/odd; x=1",
                              Authorization="Bearer t", Cookie="a=b", If_Match="no", Idempotency_Key="mine")
    assert len(ticket) == 32 and json.loads(answer.body) == {"ticket": ticket, "status": f"/.weir/tickets/{ticket}"}
    assert answer.headers["Content-Type"] == "application/json" and int(answer.headers["Retry-After"]) > 80000
    assert answer.headers["X-RateLimit-Limit"] == "1" and answer.headers["Cache-Control"] == "no-store"
    (is_kept,) = one.queued().values()
    headers = is_kept.pop("headers").decode().lower()
    assert is_kept == {"rule": b"kept", "key": b"user:7", "cost": 1, "method": b"POST", "target": target.encode(),
                       "body": b"one\0two\xff"}
    for line in ("content-type: text/odd; x=1", "authorization: bearer t", "cookie: a=b", "idempotency-key: mine",
                 f"host: 127.0.0.1:{one.port}", "x-user: 7", "x-real-ip: 127.0.0.1", "x-forwarded-for: 127.0.0.1",
                 "x-forwarded-proto: http"):
        assert line + "\r\n" in headers, (line, headers)
    assert "if-match" not in headers and "content-length" not in headers and "x-weir" not in headers
    wait_until(lambda: sorted(line["decision"] for line in one.access() if line["path"] == "/kept") == ["allow", "queue"],
               "the lines of the log")
    assert one.denied() == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_every_method(host, method):
    one = host()
    one.use_up()
    body = b"b" * 5000 if method not in ("GET", "HEAD") else None
    ticket, answer = one.defer(method=method, body=body)
    assert (answer.body == b"") == (method == "HEAD")
    is_kept = one.queued()[ticket]
    assert is_kept["method"] == method.encode() and is_kept["body"] == (body or b"")


def test_nothing_that_the_agent_believes_can_come_from_a_client(host):
    one = host()
    one.use_up()
    forged = {f"X-Weir-{name}": value for name, value in {
        "Rule": "00", "Key": "00", "Tier": "00", "Cost": "-5", "Bounds": "9,9,9", "Method": "DELETE", "Target": "/admin",
        "Retry-After": "1", "Connection": "x-kept", "Attempt": "3", "Other": "z"}.items()}
    ticket, answer = one.defer(**{"X-Real-IP": "9.9.9.9", "X-Forwarded-For": "8.8.8.8", "X-Forwarded-Proto": "https",
                                 "X-Forwarded-Host": "evil", "X-Kept": "yes", "Upgrade-Insecure-Requests": "1",
                                 "Connection": "keep-alive, X-Hop", "X-Hop": "1", "Keep-Alive": "5", "TE": "trailers",
                                 "Proxy-Authorization": "a", **forged})
    is_kept, headers = one.queued()[ticket], one.headers_of(ticket)
    assert (is_kept["rule"], is_kept["method"], is_kept["target"], is_kept["cost"]) == (b"kept", b"POST", b"/kept", 1)
    assert int(answer.headers["Retry-After"]) > 80000
    names = [name.lower() for name, _ in headers]
    assert sorted(names) == sorted(set(names))
    assert not [name for name in names if name.startswith("x-weir") or name in (
        "x-hop", "connection", "keep-alive", "te", "proxy-authorization", "upgrade-insecure-requests")], names
    reply = {name.lower(): value for name, value in headers}
    assert reply["x-real-ip"] == "127.0.0.1" and reply["x-forwarded-for"] == "8.8.8.8, 127.0.0.1"
    assert reply["x-forwarded-proto"] == "http" and reply["x-forwarded-host"] == f"127.0.0.1:{one.port}"
    assert reply["x-kept"] == "yes"


def test_only_the_named_headers_are_stored(host):
    one = host(HEAD + "queue: { headers: [X-A, b-*] }\n" + RULES)
    one.use_up()
    ticket, _ = one.defer(X_A="1", X_B="2", B_1="3", B="4", Content_Type="a/b", **{"b-": "5"})
    reply = {name.lower(): value for name, value in one.headers_of(ticket)}
    assert [reply.get(name) for name in ("x-a", "b-1", "b-")] == ["1", "3", "5"]
    assert not {"x-b", "b", "content-type"} & set(reply)


def test_keys_of_any_bytes_and_any_length(host):
    one = host(HEAD + QUEUE + """rules:
  - { name: "n\u00e4me/1", key: "k:${query:x}", limit: 1, window: 1d, on_limit: queue }
""")
    for text, key in (("%00%01%ff", b"k:\0\1\xff"), ("a" * 250, b"k:" + b"a" * 250), ("%22%5c%0d%0a", b'k:"\\\r\n')):
        one.use_up(f"/?x={text}")
        ticket, _ = one.defer(f"/?x={text}")
        assert (one.queued()[ticket]["key"], one.queued()[ticket]["rule"]) == (key, "n\u00e4me/1".encode())
    one.use_up("/?x=" + "b" * 3000)
    ticket, _ = one.defer("/?x=" + "b" * 3000)
    assert len(one.queued()[ticket]["key"]) == 256  # as the counter has it


def test_one_of_several_limits_is_stored_under_the_name_of_the_rule(host):
    one = host(HEAD + QUEUE + """rules:
  - { name: many, limits: [{ limit: 1, window: 1h }, { limit: 9, window: 1d }], cost: 3, on_limit: queue,
      match: { path: /never } }
  - { name: two, limits: [{ limit: 5, window: 1h }, { limit: 9, window: 1d }], cost: 3, on_limit: queue }
""")
    assert is_plain_denial(one.request("/never"), "many/1h") is False  # costs more than it ever holds
    one.use_up("/x")
    ticket, _ = one.defer("/x")
    assert (one.queued()[ticket]["rule"], one.queued()[ticket]["cost"], one.queued()[ticket]["key"]) == (b"two", 3, b"*")


def test_the_tier_goes_along_and_no_further(host, backend):
    one = host(HEAD + QUEUE + """identity: { tier: header:X-Plan }
rules:
  - { name: plans, key: k, limit: { pro: 2, default: 1 }, window: 8s, on_limit: queue }
""")
    for _ in range(2):
        one.use_up("/plans", X_Plan="pro")
    ticket, _ = one.defer("/plans", X_Plan="pro")
    assert one.headers_of(ticket)[0] == ("X-Weir-Tier", b"pro".hex())
    wait_until(lambda: json.loads(one.ticket(ticket).body)["state"] == "delivered", "the delivery")
    assert not [name for name in backend.last if name.lower() == "x-weir-tier"] and backend.last["X-Plan"] == "pro"


# ---- Which denials are for the queue ----

def test_only_requests_that_every_denying_rule_defers(host):
    one = host(HEAD + QUEUE + """rules:
  - { name: q, match: { path: /* }, key: "q:${header:x-user}", limit: 1, window: 1d, on_limit: queue, report_priority: 9 }
  - { name: wide, match: { path: /both }, limit: 1, window: 1d }
  - { name: free, match: { path: /free }, limit: 2, window: 1d }
  - { name: blocked, match: { path: /blocked }, limit: 0, on_limit: queue }
  - { name: shadow, match: { path: /shadow }, limit: 1, window: 1d, shadow: true }
  - { name: dear, match: { path: /dear }, limit: 5, window: 1d, cost: 9, on_limit: queue }
""")
    one.use_up("/both", user="a")
    answer = one.request("/both", user="a")
    assert is_plain_denial(answer, "q") and one.queued() == {}
    one.use_up("/free", user="b")
    one.defer("/free", user="b")
    assert one.request("/free", user="c").status == 200  # nothing was taken for what is kept
    assert one.request("/blocked", user="d").status == 403 and one.request("/dear", user="e").status == 429
    one.use_up("/shadow", user="f")
    one.defer("/shadow", user="f")
    assert len(one.queued()) == 2


def test_clients_that_would_not_understand_are_denied(host):
    one = host()
    one.use_up()
    call = one.request(Content_Type="application/grpc", TE="trailers", body=b"\0" * 5)
    assert (call.status, call.headers["grpc-status"]) == (200, "8")
    assert is_plain_denial(one.request(method="GET", Connection="Upgrade", Upgrade="websocket"))
    assert one.queued() == {}


def test_without_a_queue_requests_are_denied_and_it_is_logged(serve):
    one = serve(HEAD.replace('state: "@FOLDER@/state"\n', "") + RULES)
    one.wait_for_log('rule "kept" has on_limit: queue, and there is no queue: it rejects')
    assert get(one.port, "/kept").status == 200 and is_plain_denial(get(one.port, "/kept"))
    assert get(one.port, "/.weir/tickets/" + "0" * 32).status == 200  # the upstream's, as any path


# ---- Bodies ----

def test_bodies_at_the_bound_and_over_it(host):
    one = host()
    one.use_up()
    ticket, _ = one.defer(body=b"a" * BOUND)
    assert len(one.queued()[ticket]["body"]) == BOUND
    assert is_plain_denial(one.request(body=b"a" * (BOUND + 1)))
    assert is_plain_denial(one.request(body=b"a" * (9 << 20)))
    assert chunked(one.port, [BOUND // 2, BOUND // 2])[0] == 202
    status, body = chunked(one.port, [BOUND // 2, BOUND // 2, 1])
    assert (status, json.loads(body)["error"]) == (429, "rate_limit_exceeded")
    status, body = chunked(one.port, [1 << 20] * 4)
    assert (status, json.loads(body)["error"]) == (429, "rate_limit_exceeded")
    assert [len(each["body"]) for each in one.queued().values()] == [BOUND, BOUND]
    assert [line["status"] for line in one.denied()] == [429] * 4
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=20)  # it stays good for the next one
    assert is_plain_denial(get(0, "/kept", method="POST", body=b"a" * (BOUND + 1), connection=connection))
    assert get(0, "/denied", connection=connection).status == 200
    connection.close()


def test_no_bodies_at_all(host):
    one = host(HEAD + "queue: { body: 0 }\n" + RULES)
    one.use_up()
    one.defer()
    assert is_plain_denial(one.request(body=b"1"))
    assert chunked(one.port, [1])[0] == 429 and chunked(one.port, [2])[0] == 429 and chunked(one.port, [])[0] == 202


def test_a_large_body_passes_through_a_file_unchanged(host):
    one = host(HEAD + "queue: { body: 3MiB }\n" + RULES)
    one.use_up()
    body = os.urandom(3 << 20)
    ticket, _ = one.defer(body=body)
    assert one.queued()[ticket]["body"] == body
    assert is_plain_denial(one.request(body=body + b"1"))


def test_expect_100_continue(host):
    one = host()
    one.use_up()
    with socket.create_connection(("127.0.0.1", one.port), timeout=10) as s:
        s.sendall(f"POST /kept HTTP/1.1\r\nHost: a\r\nContent-Length: {BOUND}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert s.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(b"a" * BOUND)
        assert s.recv(1000).startswith(b"HTTP/1.1 202 Accepted\r\n")
    one.use_up("/denied")

    def denied(path):
        """All that comes back until the end of the denial."""
        with socket.create_connection(("127.0.0.1", one.port), timeout=20) as s:
            s.sendall(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {BOUND + 1}\r\nExpect: 100-continue\r\n"
                      "Connection: close\r\n\r\n".encode())
            answer = b""
            while not answer.endswith(b"}\n"):
                got = s.recv(65536)
                assert got, answer
                answer += got
            return answer
    output = [denied(path) for path in ("/kept", "/denied")]
    assert all(b"HTTP/1.1 429 " in each for each in output) and len(one.queued()) == 1
    assert output[0].count(b"100 Continue") == output[1].count(b"100 Continue")  # as where nothing is kept


def test_slow_uploads_delay_no_others_and_incomplete_ones_are_not_deferred(host):
    one = host()
    one.use_up()
    slow = threading.Thread(target=lambda: seen.append(chunked(one.port, [100] * 10, wait=0.6)[0]))
    seen = []
    slow.start()
    with socket.create_connection(("127.0.0.1", one.port), timeout=10) as left:
        left.sendall(b"POST /kept HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nhalf")
        for _ in range(20):
            one.defer()
        assert slow.is_alive()
    slow.join()
    assert seen == [202]
    time.sleep(0.3)
    assert [len(each["body"]) for each in one.queued().values()] == [0] * 20 + [1000]


def test_http2(host, backend):
    one = host(HEAD.replace('"127.0.0.1:@PORT@"', '["127.0.0.1:@PORT@", { address: "127.0.0.1:@ADMIN@", http2: true }]')
               + QUEUE + RULES)
    one.use_up()

    def pieces(size):
        yield b"a" * (size // 2)
        yield b"a" * (size - size // 2)
    with httpx.Client(http1=False, http2=True, base_url=f"http://127.0.0.1:{one.admin}", timeout=20) as client:
        answers = [client.get("/kept"), client.head("/kept"), client.put("/kept", content=b"a" * BOUND),
                   client.post("/kept", content=pieces(BOUND)), client.post("/kept", content=b"a" * (BOUND + 1)),
                   client.post("/kept", content=pieces(BOUND + 1)), client.get("/kept")]
    assert [a.status_code for a in answers] == [202, 202, 202, 202, 429, 429, 202], answers
    assert answers[0].http_version == "HTTP/2" and answers[4].json() == answers[5].json()
    assert answers[5].headers["x-ratelimit-limit"] == "1" and answers[1].headers["location"]
    assert [len(each["body"]) for each in one.queued().values()] == [0, 0, BOUND, BOUND, 0]


# ---- In a store ----

def test_with_a_store_requests_are_deferred_there_or_denied(host, redis_server):
    redis = redis_server(more=("--appendonly", "yes", "--appendfsync", "always"))
    one = host(HEAD + f"store: {redis.url()}\n" + QUEUE + RULES)
    one.use_up(user="7")
    tickets = [one.defer(user="7", body=b"abc")[0] for _ in range(3)]
    assert json.loads(one.ticket(tickets[0]).body)["rule"] == "kept"
    assert not (one.folder / "state" / "queue.db").exists()
    redis.process.kill()
    redis.process.wait()
    denied = one.request(user="7", body=b"abc")
    assert is_plain_denial(denied) and one.ticket(tickets[0]).status == 503
    one.wait_for_log("requests are denied instead of deferred")
    redis.start()

    def again():
        answer = one.request(user="7")
        assert answer.status == 202 or is_plain_denial(answer)
        return answer.status == 202
    wait_until(again, "the store's return")
    assert {one.ticket(ticket).status for ticket in tickets} == {200}
    assert cancelled(one, tickets[2]).status == 200


# ---- When it is full ----

def test_a_full_queue_denies(host):
    one = host(HEAD + "queue: { max: 7, max_bytes: 100KiB }\n" + """rules:
  - { name: few, match: { path: /few }, limit: 1, window: 1d, on_limit: queue, queue: { max: 3 } }
  - { name: small, match: { path: /small }, limit: 1, window: 1d, on_limit: queue, queue: { max_bytes: 20KiB } }
  - { name: rest, match: { path: /rest }, limit: 1, window: 1d, on_limit: queue }
  - { name: plain, match: { path: /plain }, limit: 1, window: 1d }
""")
    for path in ("/few", "/small", "/rest", "/plain"):
        one.use_up(path)
    for _ in range(3):
        ticket, _ = one.defer("/few")
    full, plain = one.request("/few"), one.request("/plain")
    assert is_plain_denial(full, "few") and is_plain_denial(plain, "plain")
    assert full.body == plain.body.replace(b'"plain"', b'"few"')
    assert [name for name, _ in full.headers.items()] == [name for name, _ in plain.headers.items()]
    assert cancelled(one, ticket).status == 200
    one.defer("/few")  # where there is room again
    one.defer("/small", body=b"a" * 8000)
    one.defer("/small", body=b"a" * 8000)
    assert is_plain_denial(one.request("/small", body=b"a" * 8000), "small")
    one.defer("/rest", body=b"a" * 70000)
    assert is_plain_denial(one.request("/rest", body=b"a" * 70000), "rest")  # too many bytes in all
    one.defer("/rest")
    assert is_plain_denial(one.request("/rest"), "rest")  # too many in all
    message = "the queue is full; requests are denied instead of deferred"
    one.wait_for_log(message)
    assert len(one.queued()) == 7 and one.log_text().count(message) == 1


def test_a_bound_holds_however_many_come_at_once(host):
    one = host(HEAD + QUEUE + RULES.replace("on_limit: queue", "on_limit: queue, queue: { max: 40 }"))
    one.use_up()
    seen = together([lambda: [one.request().status for _ in range(10)]] * 8)
    assert sorted(sum(seen, [])) == [202] * 40 + [429] * 40 and len(one.queued()) == 40


# ---- Tickets ----

def cancelled(one, ticket):
    """The reply to a DELETE; not of a request that arrives while the agent delivers the item."""
    return wait_until(lambda: (answer if (answer := one.ticket(ticket, "DELETE")).status != 409 else None), "a moment")


def test_a_ticket_reports_and_cancels(host):
    one = host()
    one.use_up()
    (first, _), (second, _) = one.defer(body=b"1"), one.defer()
    reply = json.loads(one.ticket(first).body)
    assert (reply["ticket"], reply["rule"], reply["attempts"]) == (first, "kept", 0)
    assert reply["state"] in ("waiting", "under_way")  # the agent may be asking for it right now
    assert reply["accepted"] < reply["expires"] and "key" not in reply
    assert one.ticket(first, "HEAD").status == 200 and one.ticket(first, "HEAD").body == b""
    gone = cancelled(one, first)
    assert (gone.status, json.loads(gone.body)["state"]) == (200, "cancelled")
    again = one.ticket(first, "DELETE")
    assert (again.status, json.loads(again.body)["state"]) == (409, "cancelled")
    assert json.loads(one.ticket(first).body)["state"] == "cancelled" and list(one.queued()) == [second]
    for nothing in ("0" * 32, "0" * 31, first.upper(), "", "../accept", "..%2faccept", first + "/x", "x" * 5000):
        answer = one.ticket(nothing)
        assert answer.status in (404, 200) and (answer.status == 404 or b'"path"' in answer.body), (nothing, answer)
    assert one.ticket(second, "POST").status == 405 and one.ticket(second, "PUT").status == 405
    wait_until(lambda: get(one.port, f"/.weir/tickets/{second}", method="DELETE", body=b"x" * 500).status == 200,
               "the end of the other")
    assert one.queued() == {}


def test_a_client_over_its_limit_may_read_a_ticket(host):
    one = host(HEAD + QUEUE + "rules:\n  - { name: all, limit: 1, window: 1d, on_limit: queue }\n")
    one.use_up("/")
    ticket, _ = one.defer("/")
    assert {one.ticket(ticket).status for _ in range(10)} == {200} and len(one.queued()) == 1


def test_many_ticket_requests_leave_room_for_requests(host):
    """More of them than are let through at once wait for nothing, and take no connection of the agent's."""
    one = host()
    agent = one.wait_for_agent()
    asking = []
    pause(agent)
    try:
        for _ in range(700):
            asking.append(socket.create_connection(("127.0.0.1", one.port)))
            asking[-1].sendall(b"GET /.weir/tickets/" + b"0" * 32 + b" HTTP/1.0\r\n\r\n")
        ready = wait_until(lambda: (ready if len(ready := select.select(asking, [], [], 0)[0]) >= 188 else None), "refusals", 8)
        assert {answer.recv(12) for answer in ready} == {b"HTTP/1.1 503"}
    finally:
        os.kill(agent, signal.SIGCONT)
        for connection in asking:
            connection.close()
    one.use_up()
    one.defer()


def test_weir_why_explains_a_ticket(host):
    def why(*arguments):
        return subprocess.run([WEIR, "why", *arguments], cwd=one.folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=20)
    one = host()
    one.use_up(user="42")
    ticket, _ = one.defer("/kept?secret=1", user="42")
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"
    done = why(ticket)
    assert done.returncode == 0 and not done.stderr
    assert re.match(rf"ticket {ticket} is waiting: POST /kept, of key user:42\n"
                    rf"  rule kept denied it at {time}; on_limit of the rule is queue, so it was kept for later\n"
                    r"  0 attempts to deliver it\n"
                    rf"(  it still waits: [^\n]+\n|)  it is due at ({time}|any moment), and expires at {time}\n\n"
                    rf"rule kept denied user:42 at {time}, \d+ s ago:\n  1 of 1 were used", done.stdout), done.stdout
    found = json.loads(why("--json", ticket).stdout)
    assert found["ticket"]["state"] == "waiting" and found["ticket"]["rule"] == "kept"
    assert [entry["key"] for entry in found["denials"]] == ["user:42"]
    assert one.ticket(ticket, "DELETE").status == 200
    assert f"ticket {ticket} is cancelled" in why(ticket).stdout
    for other in ("0" * 32, ticket[:31], ticket.upper()):
        assert why(other).returncode == 1 and f"no denial of {other}" in why(other).stdout
