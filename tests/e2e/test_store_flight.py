"""algorithm: concurrency with consistency: strict. Three hosts share the slots of a key, whatever dies."""
import json
import os
import select
import signal
import threading
import time

import pytest

from clients import get, together
from flight import LEASE, send_request, through
from gateway import wait_until
from resp import Client, RespGateway, encode, fields
from stores import Cluster, Sentinels

NAME = "weir:r:*"


def rules(limit, lease="30s", *others, **more):
    rule = {"name": "r", "match": {"path": "/*"}, "algorithm": "concurrency", "limit": limit, "lease": lease,
            "consistency": "strict", **more}
    return json.dumps({"rules": [rule, *others]})


@pytest.fixture
def three(hosts, slow):
    """Three hosts in front of one slow upstream."""
    def make(store, text, count=3, **more):
        more = {"server": through(slow) + "location = /page.txt {}", "workers": 2, "listen": "reuseport", **more}
        return hosts(store, count, text, **more)
    return make


def held(server):
    """Leases that have not ended."""
    client = server.client()
    seconds, micros = client.time()
    return client.zcount(NAME, f"({seconds * 1000000 + micros}", "+inf")


def free(g):
    answer = get(g.port, "/page.txt")
    return int(answer.headers["X-RateLimit-Remaining"]) + 1 if answer.status == 200 else 0


def fill(gateways, slow, count):
    """So many concurrent requests, one after the other; repeated if the store did not reply in time."""
    waiting = []
    while slow.inside < count:
        before, one = slow.inside, send_request(gateways[len(waiting) % len(gateways)].port)
        wait_until(lambda: slow.inside > before or select.select([one], [], [], 0)[0], "its turn, or an answer")
        if slow.inside > before:
            waiting.append(one)
    return waiting


def all_back(server, seconds=10):
    wait_until(lambda: held(server) == 0, "every slot", seconds)


def test_exactly_the_limit_over_three_hosts(redis_server, three, slow):
    server = redis_server()
    fleet = three(server, rules(7))
    results = []
    calls = [lambda port=fleet[i % 3].port: get(port, "/slow") for i in range(60)]
    askers = threading.Thread(target=lambda: results.extend(together(calls)))
    askers.start()
    wait_until(lambda: sum(g.rule("r")["denied"] for g in fleet) == 53, "53 denials")
    wait_until(lambda: slow.inside == 7, "seven requests upstream")
    server.client().script_flush()
    assert held(server) == 7 and not free(fleet[0]) and not free(fleet[2])
    slow.go.set()
    askers.join()
    assert sorted(answer.status for answer in results) == [200] * 7 + [429] * 53 and slow.most == 7
    denied = next(answer for answer in results if answer.status == 429)
    assert denied.headers["Retry-After"] == "1" and denied.headers["X-RateLimit-Remaining"] == "0"
    assert denied.headers["X-RateLimit-Limit"] == "7" and "X-RateLimit-Reset" not in denied.headers
    all_back(server)
    for g in fleet:  # each look takes one, which is back a moment later
        wait_until(lambda: free(g) == 7, "seven free slots")
    wait_until(lambda: not server.client().exists(NAME), "no key of nobody's")
    output = [g.status() for g in fleet]
    assert all(s["decisions"][word] == s["by_rule"][0][word] for s in output for word in ("allowed", "denied"))
    assert sum(s["decisions"]["allowed"] for s in output) >= 7 + 3
    assert all(s["store"]["failed"] == 0 for s in output)


def test_clients_that_disconnect(redis_server, three, slow):
    server = redis_server()
    fleet = three(server, rules(3))
    waiting = fill(fleet, slow, 3)
    assert [free(g) for g in fleet] == [0, 0, 0]
    waiting.pop().close()
    wait_until(lambda: free(fleet[0]) == 1, "the slot of one that left")
    for s in waiting:
        s.close()
    all_back(server)
    # While the question is on its way.
    server.pause()
    before = sum(g.errors().count("prematurely closed") for g in fleet)
    leavers = [send_request(g.port) for g in fleet]
    time.sleep(1)
    for s in leavers:
        s.close()
    wait_until(lambda: sum(g.errors().count("prematurely closed") for g in fleet) >= before + 3, "their end")
    server.resume()
    wait_until(lambda: sum(g.status()["store"]["refunds"] for g in fleet) >= 6, "what they took to be back")
    all_back(server)


def test_longer_than_the_lease(redis_server, three, slow):
    server = redis_server()
    fleet = three(server, rules(1, LEASE))
    waiting = send_request(fleet[0].port)
    wait_until(lambda: slow.inside == 1, "a request")
    end = time.monotonic() + 6
    while time.monotonic() < end:
        assert [free(g) for g in fleet] == [0, 0, 0]
        time.sleep(0.1)
    server.client().script_flush()
    time.sleep(4.5)
    assert not free(fleet[1])
    slow.go.set()
    assert b" 200 " in waiting.recv(65536)
    all_back(server, 3)  # and not when the lease ends


def test_what_another_rule_denies_holds_nothing(redis_server, three, slow):
    server = redis_server()
    fleet = three(server, rules(2, "30s", {"name": "rate", "match": {"path": "/slow"}, "limit": 4, "window": "1h", "consistency": "strict"},
                                {"name": "near", "match": {"path": "/slow"}, "limit": 1, "window": "1h"}))
    slow.go.set()
    seen = [get(fleet[i % 3].port, "/slow").status for i in range(30)]
    assert sorted(seen) == [200] * 3 + [429] * 27
    all_back(server)
    assert [g.rule("r")["allowed"] for g in fleet] == [1, 1, 1]


def test_a_killed_worker_and_a_killed_host(redis_server, three, slow):
    server = redis_server()
    fleet = three(server, rules(6, LEASE), expected=("exited on signal 9", "open socket"))
    waiting = fill(fleet, slow, 6)
    victim = fleet[0]
    for pid in victim.workers():
        os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    assert free(fleet[1]) == 0
    wait_until(lambda: held(server) == 4, "the leases of the dead to end")
    assert time.monotonic() - began < 12
    wait_until(lambda: victim.workers() and free(victim) == 2, "a worker that comes after it")
    # And all of a host, at once.
    gone = fleet[1]
    for pid in (gone.master, *gone.workers()):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: held(server) == 2, "the leases of the host to end")
    wait_until(lambda: free(fleet[2]) == 4, "the host's slots at another")
    slow.go.set()
    for s in waiting:
        s.close()
    all_back(server)


def test_many_deaths_lose_no_slot(redis_server, three, slow):
    server = redis_server()
    fleet = three(server, rules(5, LEASE), 2, expected=("exited on signal 9", "open socket"))
    end, most = time.monotonic() + 6, 0
    while time.monotonic() < end:
        waiting = [send_request(g.port) for g in fleet for _ in range(4)]
        time.sleep(0.05)
        most = max(most, held(server))
        for g in fleet:
            for pid in g.workers():
                os.kill(pid, signal.SIGKILL)
        for s in waiting:
            s.close()
        for g in fleet:
            wait_until(g.workers, "another worker")
    assert most == 5
    all_back(server, 12)
    slow.go.set()
    slow.hold_again()
    waiting = fill(fleet, slow, 5)
    assert [free(g) for g in fleet] == [0, 0] and waiting


def test_a_redis_that_forgets_hears_of_them_again(redis_server, three, slow):
    server = redis_server()
    fleet = three(server, rules(4, "3s"))
    waiting = fill(fleet, slow, 4)
    server.kill()
    server.start()
    wait_until(lambda: held(server) == 4, "all that are in flight")
    wait_until(lambda: [free(g) for g in fleet] == [0, 0, 0], "the store on every host")
    assert slow.inside == 4
    slow.go.set()
    assert sum(b" 200 " in s.recv(65536) for s in waiting) == 4
    all_back(server)


def test_without_the_store_each_host_has_its_own(redis_server, three, slow):
    server = redis_server()
    fleet = three(server, rules(2, LEASE), deadline="100ms")
    waiting = fill(fleet[:1], slow, 2)
    server.pause()
    began = time.monotonic()
    for s in waiting:  # given back to nobody: free when they end
        s.close()
    wait_until(lambda: [free(g) for g in fleet] == [2, 2, 2], "slots of each host's own")
    assert time.monotonic() - began < 12
    slow.go.set()
    slow.hold_again()
    local = fill(fleet, slow, 6)
    assert [free(g) for g in fleet] == [0, 0, 0]
    server.resume()
    wait_until(lambda: [free(g) for g in fleet] == [2, 2, 2], "the store")
    slow.go.set()
    assert sum(b" 200 " in s.recv(65536) for s in local) == 6
    all_back(server)
    closed, = three(server, rules(2, on_store_failure="closed"), 1, deadline="100ms")
    server.pause()
    assert free(closed) == 0
    server.resume()


def test_a_worker_that_exits_releases_its_permits(redis_server, three, slow):
    server = redis_server()
    one, = three(server, rules(3), 1)
    waiting = fill([one], slow, 3)
    one.reload()
    assert not free(one)
    slow.go.set()
    assert sum(b" 200 " in s.recv(65536) for s in waiting) == 3
    all_back(server)
    slow.hold_again()
    waiting = fill([one], slow, 3)
    os.kill(one.master, signal.SIGQUIT)
    time.sleep(0.3)
    slow.go.set()
    assert sum(b" 200 " in s.recv(65536) for s in waiting) == 3
    all_back(server)


def test_a_failover_to_a_replica_that_was_behind(three, slow):
    store = Sentinels().start()
    try:
        fleet = three(store.url, rules(4, "6s"), 2)
        waiting = fill(fleet, slow, 4)
        old = store.master()
        old.process.kill()
        new = store.promoted(old)
        new.must("DEL", NAME)
        wait_until(lambda: new.do("ZCARD", NAME) == 4, "all that are in flight")
        for g in fleet:
            wait_until(lambda: free(g) == 0, "the store")
        assert slow.inside == 4
        slow.go.set()
        assert sum(b" 200 " in s.recv(65536) for s in waiting) == 4
        wait_until(lambda: new.do("EXISTS", NAME) == 0, "every slot")
    finally:
        store.remove()


def test_a_cluster(three, slow):
    cluster = Cluster().start()
    try:
        text = json.dumps({"rules": [
            {"name": "r", "algorithm": "concurrency", "limit": 5, "consistency": "strict", "lease": "3s"},
            {"name": "s", "match": {"path": "/slow"}, "key": "ip:${client_ip}", "algorithm": "concurrency", "limit": 4, "consistency": "strict"},
            {"name": "t", "match": {"path": "/slow"}, "key": "x", "limit": 1000, "window": "1h", "consistency": "strict"}]})
        fleet = three(cluster.url, text)
        for _ in range(2):
            waiting = fill(fleet, slow, 4)
            assert [get(g.port, "/slow").status for g in fleet] == [429] * 3
            for g in fleet:
                wait_until(lambda: free(g) == 1, "what the others took to be back")
            time.sleep(3.5)
            for g in fleet:
                wait_until(lambda: free(g) == 1, "the same after a lease")
            slow.go.set()
            assert sum(b" 200 " in s.recv(65536) for s in waiting) == 4
            slow.hold_again()
            for g in fleet:
                wait_until(lambda: free(g) == 5, "every slot")
    finally:
        cluster.remove()


def test_leases_of_the_services(redis_server, gateway, slow):
    server = redis_server()
    store = f"weir_store {server.url()} deadline=3s;"
    two = [gateway(rules(2, "20s"), kind=RespGateway, http=store, outside=store,
                   server="location = /page.txt {} location /v1/ { weir off; weir_api; }") for _ in range(2)]

    def post(g, path, body):
        answer = get(g.port, f"/v1/{path}", "POST", {"Content-Type": "application/json"}, json.dumps(body))
        return answer.status, json.loads(answer.body)

    a, b = two
    status, first = post(a, "check", {"attributes": {"path": "/x"}})
    assert status == 200 and first["allowed"] and first["lease_s"] == 20 and first["reset_s"] is None
    with Client(b.resp) as c:
        second = fields(c.do("WEIR.CHECK", "path", "/x"))
        assert second["decision"] == b"allow" and second["lease"] and second["reset_ms"] == -1
        assert fields(c.do("WEIR.CHECK", "path", "/x"))["decision"] == b"deny"
        assert free(a) == 0 and not post(a, "check", {"attributes": {"path": "/x"}})[1]["allowed"]
        # Whatever service of whatever host has made it, any gives it back, once.
        assert c.do("WEIR.RELEASE", first["lease"]) == 1
        assert c.do("WEIR.RELEASE", first["lease"]) == 0
        assert post(a, "release", {"lease": first["lease"]}) == (200, {"released": False})
        wait_until(lambda: free(a) == 1, "the slot")
        status, renewed = post(a, "renew", {"lease": second["lease"].decode()})
        assert status == 200 and renewed["renewed"] and renewed["lease_s"] == 20
        assert c.do("WEIR.RENEW", renewed["lease"])
        assert post(a, "release", {"lease": renewed["lease"]}) == (200, {"released": True})
        assert c.do("WEIR.RENEW", renewed["lease"]) is None
        assert post(a, "renew", {"lease": renewed["lease"]})[0] == 410
        assert "no lease" in str(c.do("WEIR.RELEASE", "x")) and post(a, "release", {"lease": "x"})[0] == 400
        # Commands keep their order: what is given back is free for the next.
        both = [fields(c.do("WEIR.CHECK", "path", "/x")) for _ in range(2)]
        c.send(encode("WEIR.CHECK", "path", "/x") + encode("WEIR.RELEASE", both[0]["lease"]) +
               encode("WEIR.CHECK", "path", "/x") + encode("WEIR.RENEW", both[1]["lease"]) + encode("PING"))
        replies = [c.reply() for _ in range(5)]
        assert [fields(replies[0])["decision"], replies[1], fields(replies[2])["decision"]] == [b"deny", 1, b"allow"]
        assert replies[3] and replies[4] == "PONG"
        last = fields(replies[2])["lease"].decode()
        batch = post(a, "check", {"batch": [{"attributes": {"path": "/x"}}] * 3})[1]
        assert not any(each["allowed"] for each in batch["results"])
        for lease in (last, both[1]["lease"].decode()):
            assert post(b, "release", {"lease": lease})[1]["released"]
        batch = post(a, "check", {"batch": [{"attributes": {"path": "/x"}}] * 3})[1]["results"]
        assert [each["allowed"] for each in batch] == [True, True, False]
        assert all(post(b, "release", {"lease": each["lease"]})[1]["released"] for each in batch[:2])
        server.kill()
        assert post(a, "release", {"lease": last})[0] == 503
        assert "store" in str(c.do("WEIR.RELEASE", last))
