"""Delivery of deferred requests: exact, in order, at the rule's rate; failures, an unavailable upstream, kill -9."""
import contextlib
import http.client
import json
import os
import random
import signal
import threading
import time

import pytest

from clients import get, raw, together
from controlled import Host, weir
from gateway import wait_until
from measured import Lateness
from delivering import Upstream, defer, items, queue, ready, yaml
from redis_server import RedisServer
from served import PRELOAD, Served


LONG = os.environ.get("WEIR_TEST_LONG") == "1"  # as long as it says, for who has the time


@pytest.fixture
def upstream():
    one = Upstream()
    yield one
    one.stop()


@pytest.fixture
def queued(upstream):
    """Makes a weir serve with a queue, which is running, and whose agent accepts."""
    made = []

    def make(kind=Served, head="", **more):
        one = kind(head + yaml(**more), upstream)
        made.append(one)
        return ready(one.begin() if kind is Host else one.start())
    yield make
    for one in made:
        one.remove()


@contextlib.contextmanager
def running_redis():
    store = RedisServer(more=("--appendonly", "yes", "--appendfsync", "always")).start()
    try:
        yield store
    finally:
        store.remove()


@pytest.fixture(params=["sqlite", "redis"])
def storage(request):
    """What a weir.yaml begins with to have its queue there."""
    if request.param == "sqlite":
        yield ""
        return
    with running_redis() as store:
        # Rules are strict then: long, as a reply that is late on a busy machine would let requests pass by the local policy.
        yield f"store: {{ url: '{store.url()}', deadline: 3s }}\n"


def states(one, tickets=()):
    """States by ticket, or of some tickets; read by one run of the command."""
    ticket_status = {item["ticket"]: item["state"] for item in items(one)}
    return {ticket_status.get(ticket) for ticket in tickets} if tickets else ticket_status


def wait_for(one, tickets, state="delivered", seconds=30):
    wait_until(lambda: states(one, tickets) == {state}, f"{len(tickets)} {state}", seconds, every=0.2)


# ---- What is delivered ----

def test_the_request_is_delivered_as_it_came(queued, upstream):
    one = queued(limit=2)
    body = bytes(range(256)) * 9
    head = (f"PATCH /api/a//b/./%2e%2e/c?x=%2F&y=%C3%A4&&z HTTP/1.1\r\nHost: Shop.Example:81\r\nX-User: 7\r\n"
            f"Content-Type: application/octet-stream\r\nAuthorization: Bearer s3cret\r\nX-Two: a\r\nX-Two: b\r\n"
            f"Connection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\nX-Weir-Attempt: 77\r\nX-Weir-Rule: 00\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()

    def deferred():  # the second, unless it comes half a second later
        answer = raw(one.port, head + body, until_closed=True)
        assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")), answer
        return answer.startswith(b"HTTP/1.1 202") and answer
    ticket = json.loads(wait_until(deferred, "a denial", every=0).partition(b"\r\n\r\n")[2])["ticket"]
    wait_for(one, [ticket])
    came, = upstream.deferred()
    assert (came.method, came.target, came.body) == ("PATCH", "/api/a//b/./%2e%2e/c?x=%2F&y=%C3%A4&&z", body)
    assert came.headers["Host"].lower() == "shop.example:81"
    assert came.headers.get_all("X-Two") == ["a", "b"] and came.headers["Authorization"] == "Bearer s3cret"
    assert came.headers.get_all("X-Weir-Attempt") == ["1"] and came.headers["Idempotency-Key"] == ticket
    assert came.headers["X-Forwarded-For"] == "127.0.0.1"
    for gone in ("X-Hop", "TE", "X-Weir-Rule", "Transfer-Encoding", "Expect"):
        assert came.headers[gone] is None, gone
    ticket_status = get(one.port, f"/.weir/tickets/{ticket}")
    assert ticket_status.status == 200 and b"delivered" in ticket_status.body
    deferred = queue(one, "get", ticket)
    assert deferred["state"] == "delivered" and deferred["last_status"] == 200 and deferred["why"] is None
    assert "s3cret" not in json.dumps(deferred)


QUOTA = """
  - { name: quota, match: { path: /api/* }, key: "day:${header:X-User}", limit: { pro: 4, default: 1000 }, tier: "header:X-Plan",
      window: 1d, algorithm: fixed_window, align: first_request }
  - { name: tried, match: { path: /api/* }, limit: 1, window: 1d, shadow: true }
"""


def test_every_rule_of_a_request_is_charged(queued, upstream, storage):
    """A daily quota counts what is delivered later, and holds it up when it is used up; the rule that denied is not alone."""
    one = queued(head=storage, limit=5, rules=QUOTA)
    headers = {"X-User": "7", "X-Plan": "pro"}
    first = get(one.port, "/api/x", "POST", headers=headers)
    assert first.status == 200
    tickets = []

    def deferred():  # at once, or the quota denies what the rate lets pass again
        answer = get(one.port, "/api/x", "POST", headers=headers)
        tickets.extend([json.loads(answer.body)["ticket"]] if answer.status == 202 else [])
        return len(tickets) == 5
    wait_until(deferred, "five that wait", every=0)
    passed = 4 - len([s for s in upstream.seen if not s.headers["X-Weir-Attempt"]])
    wait_for(one, tickets[:passed])
    time.sleep(1.5)  # the rate would let seven pass
    assert len(upstream.seen) == 4
    states = [json.loads(get(one.port, f"/.weir/tickets/{t}").body) for t in tickets[passed:]]
    assert {s["state"] for s in states} == {"waiting"} and states[0]["why"] == "its limit is reached", states
    assert get(one.port, "/api/x", "POST", headers=headers).status == 429  # the quota is what denies now
    assert get(one.port, "/api/x", "POST", headers={"X-User": "8"}).status == 200
    assert "X-Weir-Others" not in {name for came in upstream.seen for name in came.headers}


SHARED = """
  - { name: shared, match: { path: /s/* }, limit: 2, window: 1s, burst: 1, on_limit: queue, consistency: local }
  - { name: day, match: { path: /s/* }, key: "d:${header:X-User}", limit: { bad: 3, default: 1000 }, tier: "header:X-User",
      window: 1d, algorithm: fixed_window, align: first_request, consistency: local }
"""


def test_one_client_holds_up_no_other(queued, upstream, storage):
    """Requests of a client whose quota is used up let those of others pass that wait for the same shared rule."""
    one = queued(head=storage, rules=SHARED)
    tickets = {"bad": [], "good": []}

    def deferred(user, count):
        def sent():
            answer = get(one.port, "/s/x", "POST", headers={"X-User": user})
            tickets[user].extend([json.loads(answer.body)["ticket"]] if answer.status == 202 else [])
            return len(tickets[user]) == count or answer.status == 429  # the quota is used up already
        wait_until(sent, f"{count} of {user}", every=0)
    deferred("bad", 12)
    deferred("good", 2)
    assert len(tickets["bad"]) > 3 and tickets["good"], tickets
    wait_for(one, tickets["good"])
    left = [ticket for ticket in tickets["bad"] if states(one)[ticket] == "waiting"]
    assert left and left == tickets["bad"][-len(left):], "the oldest of a client go first"
    assert sum(came.headers["X-User"] == "bad" for came in upstream.seen) == 3


def test_a_delivered_ticket_has_no_reason(queued, storage):
    """It waited as its limit was reached; that is over."""
    one = queued(head=storage, limit=5)
    tickets = []

    def deferred():
        answer = get(one.port, "/api/x", "POST", headers={"X-User": "7"})
        tickets.extend([json.loads(answer.body)["ticket"]] if answer.status == 202 else [])
        return len(tickets) == 3
    wait_until(deferred, "three that wait", every=0)

    def ticket_status(ticket):
        return json.loads(get(one.port, f"/.weir/tickets/{ticket}").body)
    wait_until(lambda: ticket_status(tickets[2]).get("why") == "its limit is reached", "the last to wait", every=0.01)
    wait_for(one, tickets)
    assert [("why" in ticket_status(ticket), ticket_status(ticket)["state"]) for ticket in tickets] == [(False, "delivered")] * 3


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS", "POST"])
def test_methods_with_and_without_a_body(queued, upstream, method):
    one = queued(limit=5)
    headers = {"X-User": "7", "Idempotency-Key": "the-clients-own"}
    wait_until(lambda: get(one.port, "/api/x", method, headers=headers).status == 202, "a denial", every=0)
    wait_until(lambda: any(d.headers["X-Weir-Attempt"] for d in upstream.seen), "a delivery")
    attempts = [d for d in upstream.seen if d.headers["X-Weir-Attempt"]]
    came = attempts[0]
    assert came.method == method and came.body == b""
    assert came.headers.get_all("Idempotency-Key") == ["the-clients-own"]
    assert came.headers["Content-Length"] == ("0" if method == "POST" else None)
    assert came.headers["Content-Type"] is None


def test_in_order_at_the_rules_rate(queued, upstream):
    one = queued(limit=10)
    with Lateness() as machine:
        tickets = {user: defer(one, user, count=12) for user in "ab"}
        wait_for(one, tickets["a"] + tickets["b"])
    for user in "ab":
        came = [d for d in upstream.deferred() if d.headers["X-User"] == user]
        assert [d.body.decode() for d in came] == [f"{user} {i}" for i in range(12)]
        assert [d.headers["Idempotency-Key"] for d in came] == tickets[user]
        everything = sorted(d.at for d in upstream.seen if d.headers["X-User"] == user)
        for i, first in enumerate(everything):  # a bucket of 1 and 10 a second; what is written down comes a little later
            for j in range(i + 1, len(everything)):
                assert j - i <= 1 + 10 * (everything[j] - first + 0.1), (i, j)
        assert everything[-1] - everything[0] < 12 / 10 + 2.5 + machine.lost()


def test_a_slow_upstream_holds_only_its_own_keys(queued, upstream):
    one = queued(limit=20)
    upstream.slow = 1
    tickets = [ticket for user in "abcdefgh" for ticket in defer(one, user, count=2)]
    wait_for(one, tickets)
    assert upstream.most > 4


def test_a_slow_rule_holds_up_no_other_rule(storage, queued, upstream):
    """64 keys of one rule whose deliveries do not end, and another rule, whose requests are delivered meanwhile."""
    one = queued(head=storage, limit=20)
    go = threading.Event()
    upstream.slow = lambda delivery: delivery.target.startswith("/api/") and go.wait(50)
    try:
        slow = [ticket for i in range(64) for ticket in defer(one, f"u{i}")]
        wait_until(lambda: upstream.busy == 32, "as many as one rule may have")
        quick = defer(one, path="/other", count=3)
        wait_for(one, quick)
        assert upstream.busy == 32 and not go.is_set()
        assert states(one, slow) == {"under_way", "waiting"}
    finally:
        go.set()
    wait_for(one, slow)


def test_requests_in_flight_are_one_at_a_time_also_from_the_queue(queued, upstream):
    """A permit is held during a delivery and released afterwards: no request waits for the lease to end."""
    one = queued()
    go, answers = threading.Event(), []
    upstream.slow = lambda delivery: go.wait(50)
    first = threading.Thread(target=lambda: answers.append(one.get("/few").status))
    first.start()
    wait_until(lambda: upstream.busy, "the first")
    deferred = together([lambda: one.get("/few") for _ in range(3)])
    assert [answer.status for answer in deferred] == [202] * 3
    upstream.slow = 0.5
    go.set()
    first.join()
    assert answers == [200]
    wait_for(one, [json.loads(answer.body)["ticket"] for answer in deferred], seconds=15)
    assert upstream.most == 1 and len(upstream.seen) == 4


def test_with_a_store_the_queue_is_there(queued, upstream):
    """In Redis: delivered in order, also by an agent that comes after one that was killed."""
    with running_redis() as store:
        one = queued(head=f"store: {store.url()}\n", limit=10)
        upstream.slow = 0.5
        tickets = defer(one, "a", count=5)
        wait_until(lambda: upstream.busy, "a delivery")
        assert not (one.folder / "state/queue.db").exists()
        one.kill_agent()
        upstream.slow = 0
        wait_for(one, tickets)
        assert list(dict.fromkeys(d.headers["Idempotency-Key"] for d in upstream.deferred())) == tickets
        assert queue(one, "stats")["waiting"] == 0


# ---- Failures ----

def test_failures_are_tried_again(queued, upstream):
    one = queued(limit=5)
    statuses = {None: 200, "1": 503, "2": 429, "3": None, "4": 408}
    upstream.answer = lambda d: statuses.get(d.headers.get("X-Weir-Attempt"), 201)
    ticket, = defer(one)
    wait_for(one, [ticket], seconds=60)
    came = [d.headers["X-Weir-Attempt"] for d in upstream.deferred()]
    assert came == ["1", "2", "3", "4", "5"]
    assert {d.headers["Idempotency-Key"] for d in upstream.deferred()} == {ticket}
    deferred = queue(one, "get", ticket)
    assert deferred["attempts"] == 5 and deferred["last_status"] == 201


@pytest.mark.parametrize("status", [204, 302, 404, 422])
def test_other_statuses_end_delivery(queued, upstream, status):
    one = queued(limit=5)
    upstream.answer = lambda d: status if d.headers.get("X-Weir-Attempt") else 200
    ticket, = defer(one)
    wait_for(one, [ticket])
    assert queue(one, "get", ticket)["last_status"] == status
    time.sleep(0.3)
    assert len(upstream.deferred()) == 1  # and no redirect was followed
    assert not any("elsewhere" in d.target for d in upstream.seen)


def test_dead_letters_are_requeued(queued, upstream):
    one = queued(limit=20, retries=1)
    upstream.answer = lambda d: 500 if d.headers.get("X-Weir-Attempt") else 200
    first, second, third = defer(one, count=3)
    wait_for(one, [first, second, third], "dead")
    dead = items(one, "--state", "dead")
    assert [(d["why"], d["attempts"], d["last_status"]) for d in dead] == [("status 500", 2, 500)] * 3
    one.wait_for_log("became dead")
    assert queue(one, "stats")["dead"] == 3
    upstream.answer = 200
    assert queue(one, "cancel", third)["items"][0]["state"] == "cancelled"
    assert queue(one, "requeue", first)["items"][0]["state"] in ("waiting", "under_way", "delivered")
    wait_for(one, [first])
    assert len(queue(one, "requeue", "--all", "--rule", "api")["items"]) == 1
    wait_for(one, [second])
    assert states(one)[third] == "cancelled"
    done = weir("queue", "requeue", first, "--file", "weir.yaml", cwd=one.folder, code=1)
    assert "state does not allow" in done.stderr
    assert "no such ticket" in weir("queue", "get", "0" * 32, "--file", "weir.yaml", cwd=one.folder, code=1).stderr


def test_an_unavailable_upstream_uses_up_no_attempts(queued, upstream):
    """Many keys, few retries, and away for longer than they would last."""
    one = queued(limit=20, retries=2)
    users = [f"u{i}" for i in range(30)]
    tickets = [ticket for user in users for ticket in defer(one, user, count=2)]
    wait_for(one, tickets)
    upstream.stop()
    # The gateway answers 502 for those who may pass now; the others wait.
    late = []
    for user in users:
        for _ in range(3):
            answer = one.get("/api/x", method="POST", headers={"X-User": user}, body="late")
            if answer.status == 202:
                late.append(json.loads(answer.body)["ticket"])
    assert len(late) >= 30
    away = 60 if LONG else 6  # a whole minute of the drain's, by a clock of its own, has tests/unit/queue/test_dispatch_time.c
    time.sleep(away)
    assert states(one, late) <= {"waiting", "under_way"}
    tries = sum(item["attempts"] for item in items(one) if item["ticket"] in late)
    assert 3 <= tries <= 45, tries  # what was on its way when it went, and one in a while
    upstream.begin()
    begun = time.time()
    wait_for(one, late, seconds=150)  # pauses of up to 30 s, if it was away for long
    print(f"away for {away} s: {tries} attempts for {len(late)} requests; all delivered {time.time() - begun:.0f} s after it was back")


def test_a_rule_that_changes_or_goes(queued, upstream):
    one = queued(limit=1)
    slow = defer(one, "a", count=8)
    old = one.wait_for_agent()
    one.change("limit: 1, window: 1s, burst: 1, on_limit: queue }", "limit: 1, window: 5s, burst: 1 }")
    one.wait_for_agent(old)  # which knows only the new limit
    before, begun = len(upstream.deferred()), time.monotonic()
    time.sleep(3)
    came, took = len(upstream.deferred()) - before, time.monotonic() - begun
    assert came <= 1 + took // 5, (came, took)
    one.change("limit: 1, window: 5s, burst: 1 }", "limit: 50, window: 1s, burst: 1 }")
    wait_for(one, slow)
    assert [d.body.decode() for d in upstream.deferred()] == [f"a {i}" for i in range(8)]
    other = [json.loads(answer.body)["ticket"] for answer in (one.get("/other") for _ in range(6)) if answer.status == 202]
    one.change("name: other", "name: another")
    wait_until(lambda: all(state in ("dead", "delivered") for state in map(states(one).get, other)), "the end of a rule")
    dead = items(one, "--state", "dead")
    assert dead and {item["why"] for item in dead} == {"its rule is gone"}


# ---- Operation ----

def test_rest_and_metrics(queued, upstream):
    host = queued(kind=Host, head="admin: 127.0.0.1:@ADMIN@\n", limit=1)
    viewer = json.loads(weir("token", "create", "v", "--role", "viewer", "--json", "--file", "weir.yaml",
                             cwd=host.folder).stdout)["token"]
    go = threading.Event()
    upstream.slow = lambda delivery: go.wait(50)  # the last one waits, however long all that is asked takes
    tickets = defer(host, "a", count=3) + defer(host, "b\u00e4", count=3)
    listed = host.request_json("GET", "/v1/queue?limit=2")
    assert [item["ticket"] for item in listed["items"]] == tickets[:2]
    rest = host.request_json("GET", f"/v1/queue?limit=1000&after={listed['next']}")
    assert [item["ticket"] for item in rest["items"]] == tickets[2:] and rest["next"] is None
    assert rest["items"][0]["path"] == "/api/x" and rest["items"][0]["rule"] == "api"
    seen = host.request_json("GET", "/v1/queue?rule=api", token=viewer)["items"]
    assert seen[0]["ticket"] == tickets[0][:8] + "…"
    assert host.request_json("GET", "/v1/queue?rule=none")["items"] == []
    assert host.request_json("GET", f"/v1/queue/{tickets[0]}", token=viewer)["ticket"] == tickets[0]
    assert host.request("POST", f"/v1/queue/{tickets[5]}/cancel", token=viewer)[0] == 403
    assert host.request_json("POST", f"/v1/queue/{tickets[5]}/cancel")["state"] == "cancelled"
    assert host.request("POST", f"/v1/queue/{tickets[5]}/cancel")[0] == 409
    assert host.request("POST", f"/v1/queue/{'0' * 32}/cancel")[0] == 404
    figures = host.request_json("GET", "/v1/queue/stats")
    assert figures["rules"][0]["rule"] == "api" and figures["waiting"] + figures["under_way"] == 5
    go.set()

    def metrics():
        lines = get(host.metrics, "/metrics").body.decode().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if line.startswith("weir_queue_"))
    try:
        wait_until(lambda: metrics().get("weir_queue_delivered_total") == "5", "the figures")
    except AssertionError as problem:
        raise AssertionError(f"{problem}: {metrics()}, {items(host)}, {host.log_text()}") from None
    last = metrics()
    assert last["weir_queue_dispatching"] == "1" and last["weir_queue_accepted_total"] == "6"
    assert float(last.get('weir_queue_waiting{rule="api"}', 0)) == 0
    audit = host.request_json("GET", "/v1/audit")["items"]
    assert [(line["action"], line["object"]) for line in audit if line["action"].startswith("queue")] == [
        ("queue_cancel", tickets[5][:8] + "…")] * 2
    ticket_status = weir("queue", "list", "--url", f"http://127.0.0.1:{host.admin}", env={"WEIR_TOKEN": host.token}).stdout
    assert tickets[0] in ticket_status and "delivered" in ticket_status and "cancelled" in ticket_status


# ---- Ends and beginnings ----

def test_a_stop_in_mid_delivery_loses_nothing(queued, upstream):
    one = queued(limit=10)
    upstream.slow = 4  # longer than a stop waits
    tickets = defer(one, "a", count=6)
    wait_until(lambda: upstream.busy, "a delivery")
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    upstream.slow = 0
    ready(one.start())
    wait_for(one, tickets)
    first = list(dict.fromkeys(d.headers["Idempotency-Key"] for d in upstream.deferred()))
    assert first == tickets


def test_a_killed_agent_goes_on_at_once(queued, upstream):
    one = queued(limit=10)
    upstream.slow = 1.5
    tickets = defer(one, "a", count=4)
    wait_until(lambda: upstream.busy, "a delivery")
    one.kill_agent()
    upstream.slow = 0
    begun = time.time()
    with Lateness() as machine:
        wait_for(one, tickets)
    assert time.time() - begun < 8 + machine.lost()  # not when its claims would have ended
    first = list(dict.fromkeys(d.headers["Idempotency-Key"] for d in upstream.deferred()))
    assert first == tickets


@pytest.mark.parametrize("files", [["queue.db"], ["queue.db", "queue.db-wal", "queue.db-shm"]], ids=["database", "all"])
def test_a_queue_that_is_removed_is_begun_anew(queued, upstream, files):
    """Nothing needs a restart, the loss is logged once, and requests that are acknowledged afterwards are stored."""
    one = queued(limit=2)
    lost = defer(one, "a", count=8)
    wait_until(upstream.deferred, "a delivery")  # so the dispatcher has the file open, which it finds removed
    for file in files:
        (one.folder / "state" / file).unlink()
    deferred = [ticket for user in "bcd" for ticket in defer(one, user, count=4)]
    one.wait_for_log("was removed or replaced")
    wait_for(one, deferred)
    assert one.log_text().count("was removed or replaced") == 1
    done = [d.headers["Idempotency-Key"] for d in upstream.deferred()]
    assert sorted(ticket for ticket in done if ticket in deferred) == sorted(deferred)  # each once
    assert not set(states(one)) & set(lost)
    assert get(one.port, f"/.weir/tickets/{lost[-1]}").status == 404
    one.kill_agent()  # and it is on the disk
    assert states(one, deferred) == {"delivered"}


def test_a_put_without_a_reply_is_withdrawn(queued, upstream):
    """Redis hangs for longer than a put waits, and carries it out later: the client was denied, and there are no other puts."""
    with running_redis() as store:
        one = queued(head=f"store: {store.url()}\n", limit=1)
        wait_for(one, defer(one, path="/other"))  # so there are connections
        os.kill(store.process.pid, signal.SIGSTOP)
        try:
            statuses = [200]
            while statuses[-1] == 200 and len(statuses) < 20:
                statuses.append(one.get("/other").status)
        finally:
            os.kill(store.process.pid, signal.SIGCONT)
        assert statuses[-1] == 429
        wait_until(lambda: [item["state"] for item in items(one)] == ["delivered", "cancelled"], "the end of it")
        assert len(upstream.deferred()) == 1


class Client(threading.Thread):
    """Asks again and again; what got its ticket is written down, in order."""

    def __init__(self, one, user):
        super().__init__(daemon=True)
        self.one, self.user, self.acknowledged, self.sent, self.over = one, user, [], 0, False

    def request(self):
        self.sent += 1
        connection = http.client.HTTPConnection("127.0.0.1", self.one.port, timeout=5)
        with contextlib.closing(connection):
            connection.request("POST", "/api/x", body=f"{self.user} {self.sent}", headers={"X-User": self.user})
            answer = connection.getresponse()
            ticket_status = answer.read()
        if answer.status == 202:
            self.acknowledged.append((self.sent, json.loads(ticket_status)["ticket"]))

    def run(self):
        while not self.over:
            for _ in range(2):
                with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                    self.request()
            time.sleep(0.02)


def kill(pid, killed):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        killed[0] += 1


def kill_some(one, dice, killed, moment):
    """One round: agents and workers, each a moment after it has begun to work, and in the end all of it."""
    for _ in range(4):
        ready(one)
        time.sleep(dice.uniform(0.0, moment))
        agent = one.agent_pid()
        if agent:
            kill(agent, killed)
        for worker in sorted(one.workers()):
            kill(int(worker), killed)
    time.sleep(dice.uniform(0.0, 0.1))
    kill(one.process.pid, killed)
    one.end()
    one.nothing_left()
    one.start()


@pytest.mark.xdist_group("folders")  # those of hosts that are killed stay for a while
def test_every_ticket_is_accounted_for_over_many_kills(storage, queued, upstream):
    kills = 200 if LONG else 50 if PRELOAD else 40 if storage else 200  # a sanitizer's starts take their time
    one = queued(head=storage, limit=100, retries=100)
    dice = random.Random(8)
    clients = [Client(one, f"u{i}") for i in range(6)]
    for client in clients:
        client.start()
    killed, begun = [0], time.time()

    def acknowledged():
        return [ticket for client in clients for _, ticket in client.acknowledged]

    while killed[0] < kills or len(acknowledged()) <= kills // 4:  # on a busy machine little is between two kills
        kill_some(one, dice, killed, 0.6 if storage else 0.15)  # an agent has to connect first, and Redis syncs each put
        assert time.time() - begun < 400, killed
    for client in clients:
        client.over = True
    for client in clients:
        client.join()
    took = time.time() - begun
    ready(one)
    tickets = acknowledged()
    assert len(set(tickets)) == len(tickets)

    def accounted():
        done = {d.headers["Idempotency-Key"] for d in upstream.deferred()}
        return all(ticket in done for ticket in tickets)
    wait_until(lambda: queue(one, "stats")["waiting"] == 0, "an empty queue", 60)
    dead = {item["ticket"] for item in items(one, "--state", "dead")}
    wait_until(lambda: accounted() or dead, "all deliveries", 60)
    done = {d.headers["Idempotency-Key"] for d in upstream.deferred()}
    assert not [ticket for ticket in tickets if ticket not in done and ticket not in dead]
    again = len(upstream.deferred()) - len(done)
    for client in clients:
        came = [int(d.body.split()[1]) for d in upstream.deferred() if d.headers["X-User"] == client.user]
        first = list(dict.fromkeys(came))
        assert first == sorted(first), client.user
    print(f"{'redis' if storage else 'sqlite'}: {killed[0]} kills in {took:.0f} s: {len(tickets)} tickets, {len(dead)} dead, {again} delivered more than once")
