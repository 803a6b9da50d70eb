"""algorithm: concurrency. Permits are taken when a request begins and released when it ends, in any way."""
import json
import os
import signal
import threading
import time

from clients import get, together
from flight import LEASE, send_request, through
from gateway import wait_until
from resp import Client, RespGateway, fields


def rules(limit, lease="30s", *others):
    return json.dumps({"rules": [{"name": "r", "match": {"path": "/*"}, "algorithm": "concurrency", "limit": limit,
                                  "lease": lease}, *others]})


def free(g):
    """How many more there may be, without taking one: each takes one for as long as a file takes."""
    answer = get(g.port, "/page.txt")
    return int(answer.headers["X-RateLimit-Remaining"]) + 1 if answer.status == 200 else 0


def all_free(g, limit, seconds=10):
    wait_until(lambda: free(g) == limit, f"{limit} free slots", seconds)


def fill(g, slow, count):
    """So many concurrent requests. Permits are released just after the reply is sent: earlier requests may still hold theirs."""
    waiting = []

    def full():
        if slow.inside < count:
            waiting.append(send_request(g.port))
            time.sleep(0.05)
        return slow.inside == count
    wait_until(full, f"{count} requests")
    return waiting


def test_exactly_the_limit_over_two_workers(gateway, slow):
    g = gateway(rules(7), server=through(slow) + "location = /page.txt {}", workers=2, listen="reuseport")
    results = []
    askers = threading.Thread(target=lambda: results.extend(together([lambda: get(g.port, "/slow")] * 40)))
    askers.start()
    wait_until(lambda: g.rule("r")["denied"] == 33, "33 denials")
    wait_until(lambda: slow.inside == 7, "seven requests upstream")
    slow.go.set()
    askers.join()
    assert sorted(answer.status for answer in results) == [200] * 7 + [429] * 33 and slow.most == 7
    wait_until(lambda: len({line["pid"] for line in g.log() if line["uri"] == "/slow"}) == 2, "lines of both workers")
    denied = next(answer for answer in results if answer.status == 429)
    assert denied.headers["Retry-After"] == "1" and denied.headers["X-RateLimit-Remaining"] == "0"
    assert denied.headers["X-RateLimit-Limit"] == "7" and "X-RateLimit-Reset" not in denied.headers
    all_free(g, 7)


def test_clients_that_disconnect(gateway, slow):
    g = gateway(rules(3), server=through(slow) + "location = /page.txt {}", workers=2, listen="reuseport")
    waiting = [send_request(g.port) for _ in range(3)]
    wait_until(lambda: slow.inside == 3, "three requests")
    assert get(g.port, "/slow").status == 429
    waiting.pop().close()
    wait_until(lambda: free(g) == 1, "the slot of one that left")
    for s in waiting:
        s.close()
    all_free(g, 3)


def test_errors_redirects_and_upgrades_release_once(gateway, slow):
    g = gateway(rules(3), server=through(slow) + "location = /page.txt {}")
    waiting = [send_request(g.port, "/breaks"), send_request(g.port, "/inner")]
    wait_until(lambda: slow.inside == 2, "two requests")
    upgraded = send_request(g.port, "/ws", "Upgrade: x\r\nConnection: upgrade\r\n")
    assert b" 101 " in upgraded.recv(65536)
    assert get(g.port, "/page.txt").status == 429
    upgraded.sendall(b"hello")
    assert upgraded.recv(5) == b"hello"
    slow.go.set()
    assert b" 200 " in waiting[1].recv(65536) and waiting[0].recv(65536)
    all_free(g, 2)  # what was upgraded still runs
    time.sleep(0.2)
    assert free(g) == 2
    upgraded.close()
    all_free(g, 3)


def test_what_another_rule_denies_holds_nothing(gateway, slow):
    g = gateway(rules(2, "30s", {"name": "rate", "match": {"path": "/slow"}, "limit": 1, "window": "1h"}),
                server=through(slow) + "location = /page.txt {}")
    slow.go.set()
    assert [get(g.port, "/slow").status for _ in range(30)] == [200] + [429] * 29
    all_free(g, 2)


def test_longer_than_the_lease(gateway, slow):
    g = gateway(rules(1, LEASE), server=through(slow) + "location = /page.txt {}")
    waiting = send_request(g.port)
    wait_until(lambda: slow.inside == 1, "a request")
    end = time.monotonic() + 6
    while time.monotonic() < end:
        assert get(g.port, "/page.txt").status == 429
        time.sleep(0.05)
    slow.go.set()
    assert b" 200 " in waiting.recv(65536)
    all_free(g, 1)


def test_a_killed_worker(gateway, slow):
    g = gateway(rules(4, LEASE), server=through(slow) + "location = /page.txt {}", workers=2, listen="reuseport",
                expected=("exited on signal 9",))
    for _ in range(3):
        waiting = fill(g, slow, 4)
        assert free(g) == 0
        killed = g.workers()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        g.wait_for_workers(killed)
        all_free(g, 4, 20)  # by themselves, after a lease
        for s in waiting:
            s.close()
        slow.go.set()
        slow.hold_again()


def test_a_reload_keeps_permits(gateway, slow):
    g = gateway(rules(2), server=through(slow) + "location = /page.txt {}")
    waiting = [send_request(g.port) for _ in range(2)]
    wait_until(lambda: slow.inside == 2, "two requests")
    g.reload()
    assert get(g.port, "/page.txt").status == 429
    slow.go.set()
    assert all(b" 200 " in s.recv(65536) for s in waiting)
    all_free(g, 2)


def test_leases_of_the_services(gateway, slow):
    g = gateway(rules(2, "20s"), kind=RespGateway, server=through(slow) + "location = /page.txt {} "
                "location /v1/ { weir off; weir_api; }")

    def post(path, body):
        answer = get(g.port, f"/v1/{path}", "POST", {"Content-Type": "application/json"}, json.dumps(body))
        return answer.status, json.loads(answer.body)

    status, first = post("check", {"attributes": {"path": "/x"}})
    assert status == 200 and first["allowed"] and first["lease_s"] == 20 and first["reset_s"] is None
    with Client(g.resp) as c:
        second = fields(c.do("WEIR.CHECK", "path", "/x"))
        assert second["decision"] == b"allow" and second["lease"] and second["reset_ms"] == -1
        assert fields(c.do("WEIR.CHECK", "path", "/x"))["decision"] == b"deny"
        assert get(g.port, "/page.txt").status == 429  # one segment, one count
        assert not post("check", {"attributes": {"path": "/x"}})[1]["allowed"]
        # Whatever service has made it, any gives it back.
        assert c.do("WEIR.RELEASE", first["lease"]) == 1
        assert c.do("WEIR.RELEASE", first["lease"]) == 0
        assert get(g.port, "/page.txt").status == 200
        renewed = c.do("WEIR.RENEW", second["lease"])
        assert post("release", {"lease": renewed.decode()})[1]["released"]
        assert c.do("WEIR.RENEW", renewed) is None
        assert "no lease" in str(c.do("WEIR.RELEASE", "x")) and post("release", {"lease": "x"})[0] == 400
        assert "lease" not in fields(c.do("WEIR.PEEK", "path", "/x"))
    all_free(g, 2)
