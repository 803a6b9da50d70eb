"""on_limit: queue, from the denial of a request to its ticket: what is kept, what is not, and that whatever goes wrong is
the usual denial. What comes out of the queue again has its own tests."""
import contextlib
import grp
import http.client
import http.server
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time

import httpx
import pytest

from clients import get, raw, together
from controlled import Host
from gateway import wait_until
from measured import measured
from ports import free_port
from queued import HEAD, QUEUE, RULES, Queueing, usual
from served import ENVIRONMENT, WEIR

BOUND = 10 << 10


@pytest.fixture
def host(backend):
    made = []

    def make(yaml=HEAD + QUEUE + RULES, start=True):
        made.append(Queueing(yaml, backend))
        return made[-1].start() if start else made[-1]

    yield make
    for one in made:
        one.remove()


# ---- What is kept ----

def test_a_denied_request_is_kept_and_answered_with_its_ticket(host):
    one = host()
    target = "/kept?a=%2Fb&c=d%20e"
    one.use_up(target, user="7")
    ticket, answer = one.keep(target, user="7", body=b"one\0two\xff", Content_Type="text/odd; x=1",
                              Authorization="Bearer t", Cookie="a=b", If_Match="no", Idempotency_Key="mine")
    assert len(ticket) == 32 and json.loads(answer.body) == {"ticket": ticket, "status": f"/.weir/tickets/{ticket}"}
    assert answer.headers["Content-Type"] == "application/json" and int(answer.headers["Retry-After"]) > 80000
    assert answer.headers["X-RateLimit-Limit"] == "1" and answer.headers["Cache-Control"] == "no-store"
    (is_kept,) = one.kept().values()
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
    ticket, answer = one.keep(method=method, body=body)
    assert (answer.body == b"") == (method == "HEAD")
    is_kept = one.kept()[ticket]
    assert is_kept["method"] == method.encode() and is_kept["body"] == (body or b"")


def test_nothing_that_the_agent_believes_can_come_from_a_client(host):
    one = host()
    one.use_up()
    forged = {f"X-Weir-{name}": value for name, value in {
        "Rule": "00", "Key": "00", "Tier": "00", "Cost": "-5", "Bounds": "9,9,9", "Method": "DELETE", "Target": "/admin",
        "Retry-After": "1", "Connection": "x-kept", "Attempt": "3", "Other": "z"}.items()}
    ticket, answer = one.keep(**{"X-Real-IP": "9.9.9.9", "X-Forwarded-For": "8.8.8.8", "X-Forwarded-Proto": "https",
                                 "X-Forwarded-Host": "evil", "X-Kept": "yes", "Upgrade-Insecure-Requests": "1",
                                 "Connection": "keep-alive, X-Hop", "X-Hop": "1", "Keep-Alive": "5", "TE": "trailers",
                                 "Proxy-Authorization": "a", **forged})
    is_kept, headers = one.kept()[ticket], one.headers_of(ticket)
    assert (is_kept["rule"], is_kept["method"], is_kept["target"], is_kept["cost"]) == (b"kept", b"POST", b"/kept", 1)
    assert int(answer.headers["Retry-After"]) > 80000
    names = [name.lower() for name, _ in headers]
    assert sorted(names) == sorted(set(names))
    assert not [name for name in names if name.startswith("x-weir") or name in (
        "x-hop", "connection", "keep-alive", "te", "proxy-authorization", "upgrade-insecure-requests")], names
    told = {name.lower(): value for name, value in headers}
    assert told["x-real-ip"] == "127.0.0.1" and told["x-forwarded-for"] == "8.8.8.8, 127.0.0.1"
    assert told["x-forwarded-proto"] == "http" and told["x-forwarded-host"] == f"127.0.0.1:{one.port}"
    assert told["x-kept"] == "yes"


def test_the_headers_that_are_named_are_kept_and_no_others(host):
    one = host(HEAD + "queue: { headers: [X-A, b-*] }\n" + RULES)
    one.use_up()
    ticket, _ = one.keep(X_A="1", X_B="2", B_1="3", B="4", Content_Type="a/b", **{"b-": "5"})
    told = {name.lower(): value for name, value in one.headers_of(ticket)}
    assert [told.get(name) for name in ("x-a", "b-1", "b-")] == ["1", "3", "5"]
    assert not {"x-b", "b", "content-type"} & set(told)


def test_keys_of_any_bytes_and_any_length(host):
    one = host(HEAD + QUEUE + """rules:
  - { name: "n\u00e4me/1", key: "k:${query:x}", limit: 1, window: 1d, on_limit: queue }
""")
    for text, key in (("%00%01%ff", b"k:\0\1\xff"), ("a" * 250, b"k:" + b"a" * 250), ("%22%5c%0d%0a", b'k:"\\\r\n')):
        one.use_up(f"/?x={text}")
        ticket, _ = one.keep(f"/?x={text}")
        assert (one.kept()[ticket]["key"], one.kept()[ticket]["rule"]) == (key, "n\u00e4me/1".encode())
    one.use_up("/?x=" + "b" * 3000)
    ticket, _ = one.keep("/?x=" + "b" * 3000)
    assert len(one.kept()[ticket]["key"]) == 256  # as the counter has it


def test_one_of_several_limits_is_kept_under_the_name_of_the_rule(host):
    one = host(HEAD + QUEUE + """rules:
  - { name: many, limits: [{ limit: 1, window: 1h }, { limit: 9, window: 1d }], cost: 3, on_limit: queue,
      match: { path: /never } }
  - { name: two, limits: [{ limit: 5, window: 1h }, { limit: 9, window: 1d }], cost: 3, on_limit: queue }
""")
    assert usual(one.ask("/never"), "many/1h") is False  # costs more than it ever holds
    one.use_up("/x")
    ticket, _ = one.keep("/x")
    assert (one.kept()[ticket]["rule"], one.kept()[ticket]["cost"], one.kept()[ticket]["key"]) == (b"two", 3, b"*")


def test_the_tier_goes_along_and_no_further(host, backend):
    one = host(HEAD + QUEUE + """identity: { tier: header:X-Plan }
rules:
  - { name: plans, key: k, limit: { pro: 2, default: 1 }, window: 2s, on_limit: queue }
""")
    for _ in range(2):
        one.use_up("/plans", X_Plan="pro")
    ticket, _ = one.keep("/plans", X_Plan="pro")
    assert one.headers_of(ticket)[0] == ("X-Weir-Tier", b"pro".hex())
    wait_until(lambda: json.loads(one.tells(ticket).body)["state"] == "delivered", "the delivery")
    assert not [name for name in backend.last if name.lower() == "x-weir-tier"] and backend.last["X-Plan"] == "pro"


# ---- Which denials are for the queue ----

def test_only_what_every_rule_that_denies_would_keep(host):
    one = host(HEAD + QUEUE + """rules:
  - { name: q, match: { path: /* }, key: "q:${header:x-user}", limit: 1, window: 1d, on_limit: queue, priority: 9 }
  - { name: wide, match: { path: /both }, limit: 1, window: 1d }
  - { name: free, match: { path: /free }, limit: 2, window: 1d }
  - { name: blocked, match: { path: /blocked }, limit: 0, on_limit: queue }
  - { name: shadow, match: { path: /shadow }, limit: 1, window: 1d, shadow: true }
  - { name: dear, match: { path: /dear }, limit: 5, window: 1d, cost: 9, on_limit: queue }
""")
    one.use_up("/both", user="a")
    answer = one.ask("/both", user="a")
    assert usual(answer, "q") and one.kept() == {}
    one.use_up("/free", user="b")
    one.keep("/free", user="b")
    assert one.ask("/free", user="c").status == 200  # nothing was taken for what is kept
    assert one.ask("/blocked", user="d").status == 429 and one.ask("/dear", user="e").status == 429
    one.use_up("/shadow", user="f")
    one.keep("/shadow", user="f")
    assert len(one.kept()) == 2


def test_clients_that_would_not_understand_are_denied(host):
    one = host()
    one.use_up()
    call = one.ask(Content_Type="application/grpc", TE="trailers", body=b"\0" * 5)
    assert (call.status, call.headers["grpc-status"]) == (200, "8")
    assert usual(one.ask(method="GET", Connection="Upgrade", Upgrade="websocket"))
    assert one.kept() == {}


def test_without_a_queue_it_is_said_and_they_are_denied(serve):
    one = serve(HEAD.replace('state: "@FOLDER@/state"\n', "") + RULES)
    assert 'rule "kept" has on_limit: queue, and there is no queue: it rejects' in one.said()
    assert get(one.port, "/kept").status == 200 and usual(get(one.port, "/kept"))
    assert get(one.port, "/.weir/tickets/" + "0" * 32).status == 200  # the upstream's, as any path


# ---- Bodies ----

def chunked(port, sizes, path="/kept", wait=0.0, head=""):
    """A request whose length nobody knows before: what comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: a\r\n{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        with contextlib.suppress(OSError):
            for size in sizes:
                s.sendall(b"%x\r\n" % size + b"c" * size + b"\r\n")
                time.sleep(wait)
            s.sendall(b"0\r\n\r\n")
        response = http.client.HTTPResponse(s)
        response.begin()
        return response.status, response.read()


def test_bodies_at_the_bound_and_over_it(host):
    one = host()
    one.use_up()
    ticket, _ = one.keep(body=b"a" * BOUND)
    assert len(one.kept()[ticket]["body"]) == BOUND
    assert usual(one.ask(body=b"a" * (BOUND + 1)))
    assert usual(one.ask(body=b"a" * (9 << 20)))
    assert chunked(one.port, [BOUND // 2, BOUND // 2])[0] == 202
    status, body = chunked(one.port, [BOUND // 2, BOUND // 2, 1])
    assert (status, json.loads(body)["error"]) == (429, "rate_limit_exceeded")
    status, body = chunked(one.port, [1 << 20] * 4)
    assert (status, json.loads(body)["error"]) == (429, "rate_limit_exceeded")
    assert [len(each["body"]) for each in one.kept().values()] == [BOUND, BOUND]
    assert [line["status"] for line in one.denied()] == [429] * 4
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=20)  # it stays good for the next one
    assert usual(get(0, "/kept", method="POST", body=b"a" * (BOUND + 1), connection=connection))
    assert get(0, "/denied", connection=connection).status == 200
    connection.close()


def test_no_bodies_at_all(host):
    one = host(HEAD + "queue: { body: 0 }\n" + RULES)
    one.use_up()
    one.keep()
    assert usual(one.ask(body=b"1"))
    assert chunked(one.port, [1])[0] == 429 and chunked(one.port, [2])[0] == 429 and chunked(one.port, [])[0] == 202


def test_a_large_body_goes_by_a_file_and_is_whole(host):
    one = host(HEAD + "queue: { body: 3MiB }\n" + RULES)
    one.use_up()
    body = os.urandom(3 << 20)
    ticket, _ = one.keep(body=body)
    assert one.kept()[ticket]["body"] == body
    assert usual(one.ask(body=body + b"1"))


def test_expect_100_continue(host):
    one = host()
    one.use_up()
    with socket.create_connection(("127.0.0.1", one.port), timeout=10) as s:
        s.sendall(f"POST /kept HTTP/1.1\r\nHost: a\r\nContent-Length: {BOUND}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert s.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(b"a" * BOUND)
        assert s.recv(1000).startswith(b"HTTP/1.1 202 Accepted\r\n")
    said = [raw(one.port, f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {BOUND + 1}\r\nExpect: 100-continue\r\n"
                          "Connection: close\r\n\r\n".encode(), timeout=1, until_closed=True)
            for path in ("/kept", "/denied", "/denied")]
    assert b"HTTP/1.1 429 " in said[0] and len(one.kept()) == 1
    assert said[0].count(b"100 Continue") == said[2].count(b"100 Continue")  # as where nothing is kept


def test_slow_uploads_hold_nobody_up_and_unfinished_ones_are_not_kept(host):
    one = host()
    one.use_up()
    slow = threading.Thread(target=lambda: seen.append(chunked(one.port, [100] * 10, wait=0.6)[0]))
    seen = []
    slow.start()
    with socket.create_connection(("127.0.0.1", one.port), timeout=10) as left:
        left.sendall(b"POST /kept HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nhalf")
        for _ in range(20):
            one.keep()
        assert slow.is_alive()
    slow.join()
    assert seen == [202]
    time.sleep(0.3)
    assert [len(each["body"]) for each in one.kept().values()] == [0] * 20 + [1000]


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
    assert [len(each["body"]) for each in one.kept().values()] == [0, 0, BOUND, BOUND, 0]


# ---- In a store ----

def test_where_there_is_a_store_they_are_kept_there_or_denied(host, redis_server):
    redis = redis_server(more=("--appendonly", "yes", "--appendfsync", "always"))
    one = host(HEAD + f"store: {redis.url()}\n" + QUEUE + RULES)
    one.use_up(user="7")
    tickets = [one.keep(user="7", body=b"abc")[0] for _ in range(3)]
    assert json.loads(one.tells(tickets[0]).body)["rule"] == "kept"
    assert not (one.folder / "state" / "queue.db").exists()
    redis.process.kill()
    redis.process.wait()
    denied = one.ask(user="7", body=b"abc")
    assert usual(denied) and one.tells(tickets[0]).status == 503
    one.says("requests are denied instead of kept")
    redis.start()

    def again():
        answer = one.ask(user="7")
        assert answer.status == 202 or usual(answer)
        return answer.status == 202
    wait_until(again, "the store's return")
    assert {one.tells(ticket).status for ticket in tickets} == {200}
    assert cancelled(one, tickets[2]).status == 200


# ---- When it is full ----

def test_a_full_queue_denies_as_usual(host):
    one = host(HEAD + "queue: { max: 7, max_bytes: 100KiB }\n" + """rules:
  - { name: few, match: { path: /few }, limit: 1, window: 1d, on_limit: queue, queue: { max: 3 } }
  - { name: small, match: { path: /small }, limit: 1, window: 1d, on_limit: queue, queue: { max_bytes: 20KiB } }
  - { name: rest, match: { path: /rest }, limit: 1, window: 1d, on_limit: queue }
  - { name: plain, match: { path: /plain }, limit: 1, window: 1d }
""")
    for path in ("/few", "/small", "/rest", "/plain"):
        one.use_up(path)
    for _ in range(3):
        ticket, _ = one.keep("/few")
    full, plain = one.ask("/few"), one.ask("/plain")
    assert usual(full, "few") and usual(plain, "plain")
    assert full.body == plain.body.replace(b'"plain"', b'"few"')
    assert [name for name, _ in full.headers.items()] == [name for name, _ in plain.headers.items()]
    assert cancelled(one, ticket).status == 200
    one.keep("/few")  # where there is room again
    one.keep("/small", body=b"a" * 8000)
    one.keep("/small", body=b"a" * 8000)
    assert usual(one.ask("/small", body=b"a" * 8000), "small")
    one.keep("/rest", body=b"a" * 70000)
    assert usual(one.ask("/rest", body=b"a" * 70000), "rest")  # too many bytes in all
    one.keep("/rest")
    assert usual(one.ask("/rest"), "rest")  # too many in all
    assert len(one.kept()) == 7 and one.said().count("the queue is full; requests are denied instead of kept") == 1


def test_a_bound_holds_however_many_come_at_once(host):
    one = host(HEAD + QUEUE + RULES.replace("on_limit: queue", "on_limit: queue, queue: { max: 40 }"))
    one.use_up()
    seen = together([lambda: [one.ask().status for _ in range(10)]] * 8)
    assert sorted(sum(seen, [])) == [202] * 40 + [429] * 40 and len(one.kept()) == 40


# ---- Tickets ----

def cancelled(one, ticket):
    """The answer to a DELETE; not the one to somebody who comes while the agent has it in its hands."""
    return wait_until(lambda: (answer if (answer := one.tells(ticket, "DELETE")).status != 409 else None), "a moment")


def test_a_ticket_tells_and_cancels(host):
    one = host()
    one.use_up()
    (first, _), (second, _) = one.keep(body=b"1"), one.keep()
    told = json.loads(one.tells(first).body)
    assert (told["ticket"], told["rule"], told["attempts"]) == (first, "kept", 0)
    assert told["state"] in ("waiting", "under_way")  # the agent may be asking for it right now
    assert told["accepted"] < told["expires"] and "key" not in told
    assert one.tells(first, "HEAD").status == 200 and one.tells(first, "HEAD").body == b""
    gone = cancelled(one, first)
    assert (gone.status, json.loads(gone.body)["state"]) == (200, "cancelled")
    again = one.tells(first, "DELETE")
    assert (again.status, json.loads(again.body)["state"]) == (409, "cancelled")
    assert json.loads(one.tells(first).body)["state"] == "cancelled" and list(one.kept()) == [second]
    for nothing in ("0" * 32, "0" * 31, first.upper(), "", "../accept", "..%2faccept", first + "/x", "x" * 5000):
        answer = one.tells(nothing)
        assert answer.status in (404, 200) and (answer.status == 404 or b'"path"' in answer.body), (nothing, answer)
    assert one.tells(second, "POST").status == 405 and one.tells(second, "PUT").status == 405
    wait_until(lambda: get(one.port, f"/.weir/tickets/{second}", method="DELETE", body=b"x" * 500).status == 200,
               "the end of the other")
    assert one.kept() == {}


def test_who_is_over_the_limit_may_ask_for_a_ticket(host):
    one = host(HEAD + QUEUE + "rules:\n  - { name: all, limit: 1, window: 1d, on_limit: queue }\n")
    one.use_up("/")
    ticket, _ = one.keep("/")
    assert {one.tells(ticket).status for _ in range(10)} == {200} and len(one.kept()) == 1


def test_many_who_ask_leave_room_for_requests(host):
    """More of them than are let through at once wait for nothing, and take no connection of the agent's."""
    one = host()
    agent = one.agent()
    asking = []
    os.kill(agent, signal.SIGSTOP)
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
    one.keep()


# ---- When the agent is gone, or nobody waits any more ----

def test_a_client_that_leaves_while_it_is_kept(host):
    one = host()
    one.use_up()
    agent = one.agent()
    os.kill(agent, signal.SIGSTOP)
    try:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", one.port), timeout=10) as left:
                left.sendall(b"POST /kept HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
                time.sleep(0.02)
        time.sleep(2)  # nginx notices
    finally:
        os.kill(agent, signal.SIGCONT)
    ticket, _ = one.keep()
    assert list(one.kept()) == [ticket]
    assert one.agent() == agent and one.tells(ticket).status == 200


def test_an_agent_killed_in_the_middle_is_the_usual_denial(host):
    one = host()
    one.use_up()
    agent = one.agent()
    os.kill(agent, signal.SIGSTOP)
    timer = threading.Timer(1.0, os.kill, (agent, signal.SIGKILL))
    timer.start()
    answers = together([lambda: one.ask(body=b"abc")] * 12)
    timer.join()
    assert all(usual(answer) for answer in answers), answers
    one.wait_for_queue()
    assert one.agent() != agent
    one.keep()
    wait_until(lambda: sorted(line["decision"] for line in one.access() if line["path"] == "/kept") ==
               ["allow"] + ["deny"] * 12 + ["queue"], "the lines of the log")


def test_kills_in_the_middle_lose_no_ticket(host):
    one = host()
    one.use_up()
    tickets, stop = [], threading.Event()
    odd = []

    def client():
        while not stop.is_set():
            answer = one.ask(body=b"abc")
            if answer.status == 202:
                tickets.append(answer.headers["Location"].rpartition("/")[2])
            elif not usual(answer):
                odd.append(answer)
    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        before = len(tickets)
        wait_until(lambda: len(tickets) > before + 20, "more tickets")
        os.kill(wait_until(one.agent, "the agent"), signal.SIGKILL)
    stop.set()
    for thread in threads:
        thread.join()
    one.wait_for_queue()
    kept = one.kept()
    assert not odd and len(set(tickets)) == len(tickets) and not set(tickets) - set(kept)
    print(f"{len(tickets)} tickets, {len(kept) - len(tickets)} kept without an answer")


def test_no_agent_no_queue_but_never_an_error(host):
    one = host(start=False)
    one.socket.mkdir(parents=True)  # nobody can listen there
    Host.start(one)
    one.says("queue.sock: Is a directory; it is tried again")
    one.use_up()
    assert usual(one.ask()) and usual(one.ask(body=b"a" * BOUND)) and chunked(one.port, [5])[0] == 429
    assert one.tells("0" * 32).status == 503 and one.tells("0" * 32).headers["Retry-After"] == "1"
    one.socket.rmdir()
    one.says("queue: listens on ")
    one.keep()


@measured
def test_an_agent_that_hangs_is_not_waited_for_for_ever(host):
    one = host()
    one.use_up()
    agent = wait_until(one.agent, "the agent")
    os.kill(agent, signal.SIGSTOP)
    begin = time.monotonic()
    try:
        answer = one.ask()
        assert usual(answer), (answer, time.monotonic() - begin, one.said())
    finally:
        os.kill(agent, signal.SIGCONT)
    assert 8 < time.monotonic() - begin < 15
    ticket, _ = one.keep()
    assert list(one.kept()) == [ticket]  # what was denied was not kept after all


def test_a_reload_and_a_stop_answer_what_is_under_way(host):
    one = host()
    one.use_up()
    one.keep()
    agent = one.agent()
    one.write(one.file.read_text().replace("body: 10KiB", "body: 20KiB"))
    one.says("reloaded")
    wait_until(lambda: one.agent() not in (0, agent), "another agent")
    wait_until(lambda: one.ask(body=b"a" * 2 * BOUND).status == 202, "the new bound")
    before, stop, seen = len(one.kept()), threading.Event(), []

    def client():
        with contextlib.suppress(OSError, http.client.HTTPException):
            while not stop.is_set():
                seen.append(one.ask().status)
    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(seen) > 50, "some answers")
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    stop.set()
    for thread in threads:
        thread.join()
    assert set(seen) == {202} and len(one.kept()) == before + len(seen)
    assert not one.socket.exists() and one.nothing_left()


# ---- Who may do what ----

def test_only_workers_reach_the_queue_and_only_the_agent_the_way_out(host):
    one = host()
    is_socket = one.socket.stat()
    assert stat.S_ISSOCK(is_socket.st_mode)
    if os.geteuid() == 0:
        assert stat.S_IMODE(is_socket.st_mode) == 0o660 and grp.getgrgid(is_socket.st_gid).gr_name == "www-data"
    else:
        assert stat.S_IMODE(is_socket.st_mode) == 0o600
    assert stat.S_IMODE((one.private / "deliver").stat().st_mode) == 0o700
    assert stat.S_IMODE((one.folder / "state" / "queue.db").stat().st_mode) == 0o600


def through(path, request):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(str(path))
        s.sendall(request)
        response = http.client.HTTPResponse(s)
        response.begin()
        return response.status, response.headers, response.read()


def test_what_is_delivered_passes_unlimited_and_as_it_came(host):
    one = host()
    for _ in range(3):
        status, headers, body = through(
            one.private / "deliver" / "socket",
            b"POST /denied?a=%20b HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 9.9.9.9\r\nX-Real-IP: 9.9.9.9\r\n"
            b"X-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.example\r\nContent-Length: 3\r\n\r\nabc")
        told = json.loads(body)
        assert status == 200 and "X-RateLimit-Limit" not in headers
        assert (told["path"], told["length"]) == ("/denied?a=%20b", 3)
        assert {name: told["headers"][name] for name in (
            "Host", "X-Forwarded-For", "X-Real-IP", "X-Forwarded-Proto", "X-Forwarded-Host")} == {
                "Host": "shop.example", "X-Forwarded-For": "9.9.9.9", "X-Real-IP": "9.9.9.9",
                "X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.example"}


def test_nonsense_at_the_agent_s_door(host):
    """Only nginx comes there; but a fault of it, or of an older one, must not hurt."""
    one = host()
    one.use_up("/denied")
    good = {"X-Weir-Method": "POST", "X-Weir-Target": "/x", "X-Weir-Rule": b"denied".hex(), "X-Weir-Key": "2a", "X-Weir-Cost": "1",
            "X-Weir-Bounds": "0,0,0"}

    def put(body=b"", line=b"POST /accept HTTP/1.1", **changed):
        headers = {**good, **{f"X-Weir-{name}": value for name, value in changed.items()}}
        text = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value is not None)
        return through(one.socket, line + b"\r\nHost: a\r\n" + text.encode() +
                       b"Content-Length: %d\r\n\r\n" % len(body) + body)[0]
    assert put() == 202
    for wrong in ({"Rule": None}, {"Rule": "6"}, {"Rule": "zz"}, {"Rule": "6b" * 96}, {"Key": ""}, {"Key": "6b" * 257},
                  {"Cost": "x"}, {"Cost": "-1"}, {"Bounds": "1,2"}, {"Bounds": "1,2,3,4"}, {"Bounds": "-1,0,0"},
                  {"Method": "G T"}, {"Method": "A" * 33}, {"Target": "x"}, {"Target": None}):
        assert put(**wrong) == 400, wrong
    assert put(body=b"a" * (BOUND + 1)) == 413
    assert through(one.socket, b"POST /accept HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n" +
                   "".join(f"{name}: {value}\r\n" for name, value in good.items()).encode() + b"\r\n0\r\n\r\n")[0] == 413
    assert put(line=b"GET /accept HTTP/1.1") == 404 and put(line=b"POST /other HTTP/1.1") == 404
    with socket.socket(socket.AF_UNIX) as s:  # one that ends in the middle
        s.connect(str(one.socket))
        s.sendall(b"POST /accept HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n" +
                  "".join(f"{name}: {value}\r\n" for name, value in good.items()).encode() + b"\r\nhalf")
    assert put() == 202 and len(one.kept()) == 2


# ---- An nginx of one's own ----

TEXT = (pathlib.Path(__file__).parents[2] / "docs" / "nginx.md").read_text()
OWN = next(block for block in re.findall(r"```nginx\n(.*?)```", TEXT, re.S) if "weir_queue @" in block).replace("1m;", "10k;")


@pytest.fixture
def agent():
    """weir agent with a queue, beside an nginx that it did not start."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-queue-"))
    folder.chmod(0o755)
    file = folder / "weir.yaml"
    file.write_text(f'segment: {{ path: "{folder}/segment", size: 1MiB }}\nstate: "{folder}"\n'
                    'user: nobody\nrules:\n  - { name: none, match: { path: /none }, limit: 1, window: 1d }\n'
                    'queue: { deliver_to: "http://127.0.0.1:1" }\n')
    with open(folder / "said", "wb") as said:
        process = subprocess.Popen([WEIR, "agent", str(file)], env=ENVIRONMENT, stderr=said, stdout=said)
    wait_until((folder / "queue.sock").exists, "the queue")
    yield folder / "queue.sock"
    process.terminate()
    code, said = process.wait(20), (folder / "said").read_text()
    shutil.rmtree(folder)
    assert code == 0, said


class Names(http.server.BaseHTTPRequestHandler):
    """Says who somebody is."""

    def do_GET(self):
        self.send_response(200 if self.headers["Authorization"] else 401)
        self.send_header("X-Name", self.headers["Authorization"] or "")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *arguments):
        pass


def test_an_nginx_of_ones_own_with_subrequests(gateway, agent):
    rules = json.dumps({"rules": [{"name": "r", "key": "${name}", "limit": 1, "window": "1d", "on_limit": "queue",
                                   "match": {"path": ["/x", "/x/*"]}}]})
    g = gateway(rules, http=f"upstream weir_queue {{ server unix:{agent}; keepalive 8; }}", server=OWN + """
        location /x {
            auth_request /ask;
            auth_request_set $name $upstream_http_x_name;
            weir_phase precontent;
            weir_attribute name $name;
            mirror /mirror;
            proxy_pass http://@BACKEND@;
        }
        location = /ask { internal; proxy_pass_request_body off; proxy_set_header Content-Length "";
                          proxy_pass http://127.0.0.1:%d; }
        location = /mirror { internal; proxy_pass http://@BACKEND@; }
        location /x/early { proxy_pass http://@BACKEND@; weir_attribute name "early"; }
        location /x/dry { proxy_pass http://@BACKEND@; weir dry_run; weir_attribute name "dry"; }
        location /x/off { proxy_pass http://@BACKEND@; weir_queue off; weir_attribute name "off"; }
        location /x/lost { proxy_pass http://@BACKEND@; weir_queue @nowhere; weir_attribute name "lost"; }
        location /direct { weir_denied; }
    """ % (port := free_port()), workers=2)
    names = http.server.ThreadingHTTPServer(("127.0.0.1", port), Names)
    threading.Thread(target=names.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        asked = [get(g.port, "/x", method="POST", body=b"a" * 9000, headers={"Authorization": name})
                 for name in ("a", "a", "b", "b", "a")]
        assert [a.status for a in asked] == [200, 202, 200, 202, 202], (asked, g.errors())
        assert get(g.port, "/x", method="POST", body=b"a" * 11000, headers={"Authorization": "a"}).status == 429
        assert get(g.port, "/x").status == 401
    finally:
        names.shutdown()
        names.server_close()
    assert [get(g.port, "/x/early").status for _ in range(2)] == [200, 202]
    assert [get(g.port, "/x/dry").status for _ in range(2)] == [200, 200]
    assert [get(g.port, "/x/off").status for _ in range(2)] == [200, 429]
    assert [get(g.port, "/x/lost").status for _ in range(2)] == [200, 429]
    assert "there is no location @nowhere" in g.errors()
    assert get(g.port, "/direct").status == 404
    ticket = json.loads(asked[1].body)["status"]
    assert json.loads(get(g.port, ticket).body)["rule"] == "r" and get(g.port, ticket[:-1]).status == 404
    assert [line["decision"] for line in g.log() if line["uri"].startswith("/x/dry")] == ["allow", "deny_dry_run"]
    assert [line["decision"] for line in g.log() if line["uri"].startswith("/x/early")] == ["allow", "queue"]


@pytest.mark.parametrize("line, wrong", [
    ("weir_queue /uri;", "needs a named location"), ("weir_queue @;", "needs a named location"),
    ("weir_queue @q body=x;", "invalid parameter"), ("weir_queue @q size=1;", "invalid parameter"),
    ("weir_queue off body=1;", "takes no parameters"), ("weir_queue @q; weir_queue @q;", "is duplicate")])
def test_wrong_directives_are_told(gateway, line, wrong):
    g = gateway("rules: []\n", start=False, server=line)
    good, said = g.test()
    assert not good and wrong in said
