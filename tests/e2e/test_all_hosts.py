"""weir why, weir top and the rules service over all hosts that share a real Redis: which host denied what, hosts that are
filtered, killed, or hide keys, and a store that is gone."""
import contextlib
import http.client
import json
import os
import re
import signal
import threading
import time

import pytest

from clients import get
from gateway import wait_until
from redis_server import RedisServer
from served import Backend
from test_keys import Keyed
from test_statistics import Terminal

pytestmark = pytest.mark.xdist_group("all_hosts")  # they share hosts
NAMES = ["gate-1", "gate-2", "gate-3"]


def start(backend, server, store="", prefix="weir", rules=""):
    """Three hosts with one store: the first has a rules service."""
    url = f"{{ url: '{server.url()}', prefix: {prefix}{store} }}\nhot_keys: 2MiB\nidentity: {{ client_ip: {{ trusted_proxies: [127.0.0.0/8] }} }}"
    hosts = [Keyed(name, backend, url, admin=name == NAMES[0]) for name in NAMES]
    for one in hosts:
        with open(one.folder / "weir.yaml", "a", encoding="utf-8") as file:
            file.write(rules)
    hosts[0].begin()
    for one in hosts[1:]:
        one.start()
    wait_until(lambda: all(len(top(one, "--this-host")["hosts"]) == 3 for one in hosts), "three hosts", 20, every=0.2)
    all_found(hosts[1], "nothing")
    return hosts


def deny(one, user, times=3, path="/few_near", client="192.0.2.7"):
    """The limit is 2."""
    headers = {"X-User": user, "X-Forwarded-For": client, "X-Request-ID": f"id-{user}"}
    return [get(one.port, path, headers=headers).status for _ in range(times)]


def found(one, *arguments):
    output = one.weir("why", "--json", *arguments, code=None)
    return {"coverage": {"missing": [output]}} if output.startswith("weir why: no reply") else json.loads(output)


def complete(read):
    """What it returns once no host is missing: on a busy machine one may reply after the 2 s that others wait."""
    seen = []
    wait_until(lambda: seen.append(read()) or not seen[-1]["coverage"]["missing"], "replies of all hosts", 30, every=0.1)
    return seen[-1]


def all_found(one, *arguments):
    return complete(lambda: found(one, *arguments))


@pytest.fixture(scope="module")
def backend():
    one = Backend()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def server():
    one = RedisServer().start()
    yield one
    one.remove()


@pytest.fixture(scope="module")
def hosts(backend, server):
    three = start(backend, server)
    yield three
    for one in three:
        one.remove()


def test_why_finds_denials_of_all_hosts(hosts):
    assert deny(hosts[0], "42") == [200, 200, 429]
    time.sleep(0.05)  # more than a tick of the clock that dates denials
    assert deny(hosts[2], "42") == [200, 200, 429]
    seen = all_found(hosts[1], "few:42")
    assert [entry["host"] for entry in seen["denials"]] == ["gate-3", "gate-1"]  # the newest first
    assert seen["coverage"] == {"hosts": ["gate-2", "gate-1", "gate-3"], "missing": [], "why": None}
    assert all(entry["count"] == 1 and entry["rule"] == "few_near" and entry["key"] == "few:42" and entry["passes"] is False for entry in seen["denials"])
    for about in ("42", "192.0.2.7", "id-42", "few_near"):
        assert {entry["host"] for entry in all_found(hosts[1], about)["denials"]} == {"gate-1", "gate-3"}, about
    seen = []
    wait_until(lambda: seen.append(hosts[1].weir("why", "few:42", "--since", "1h")) or "not included" not in seen[-1], "all hosts", 30)
    text = seen[-1]
    assert re.search(r"^gate-3: rule few_near denied few:42 at \S+Z, \d+ s ago:\n  2 of 2 were used; the limit is 2 in 1h\n"
                     r"  the first had path /few_near, client 192\.0\.2\.7, request id-42\n  it would pass in \S+ s, at \S+Z, by the counters of gate-3$", text, re.M), text
    assert text.endswith("from 3 hosts: gate-2, gate-1, gate-3\n")
    nothing = hosts[1].weir("why", "few:99", code=1)
    assert "no denial of few:99; the records have " in nothing and "\nfrom " in nothing


@pytest.mark.parametrize("path, key", (("/few_exact", "few"), ("/bucket", "bucket")))
def test_counters_in_the_store_are_not_mistaken_for_those_of_a_host(hosts, path, key):
    assert deny(hosts[0], "77", path=path) == [200, 200, 429]
    entry, = all_found(hosts[1], f"{key}:77")["denials"]
    assert entry["in_store"] and entry["passes"] is None and entry["retry_after"] is None
    for one in hosts:  # that which denied, and others, which have no counter of it
        entry, = found(hosts[0], f"{key}:77", "--this-host")["denials"]
        assert entry["in_store"] and entry["passes"] is None and entry["retry_after"] is None
        text = one.weir("why", f"{key}:77", code=None)
        assert "\n  it would" not in text, text
        asked = json.loads(one.weir("check", "--segment", "weir.yaml", "--json", "-H", "X-User: 77", path))
        assert asked["decision"] == "deny" and asked["reason"] == "limit" and asked["retry_after_s"] > 0, asked
        for _ in range(2):  # which takes nothing
            asked = one.weir("check", "--segment", "weir.yaml", "-H", "X-User: 78", path)
            assert "decision  allow, 1 of 2 left" in asked and "no store" not in asked, asked
        assert "no store" not in one.weir("check", "--rules", "weir.yaml", "-H", "X-User: 77", path)
    assert f"decided in the store: weir key show {key}:77\n" in hosts[0].weir("why", f"{key}:77", "--this-host")
    yaml = (hosts[0].folder / "weir.yaml").read_text()
    (hosts[0].folder / "only.yaml").write_text(yaml[yaml.index("\nrules:"):])
    bare = hosts[0].weir("why", f"{key}:77", "--segment", "segment", "--rules", "only.yaml")
    assert f"decided in the store: weir key show {key}:77\n" in bare, bare
    assert "its host has a store" in hosts[0].weir("check", "--segment", "segment", "-H", "X-User: 77", path)


def test_check_takes_from_the_store(hosts):
    taken = [json.loads(one.weir("check", "--segment", "weir.yaml", "--take", "--json", "-H", "X-User: 79", "/bucket"))["decision"]
             for one in hosts]
    assert taken == ["allow", "allow", "deny"]
    soon = hosts[0].weir("check", "--segment", "weir.yaml", "-H", "X-User: 79", "/few_soon")  # decided on the host
    assert "allow, 1 of 2 left" in soon


def test_host_filter(hosts):
    deny(hosts[0], "43")
    deny(hosts[1], "43")
    assert [entry["host"] for entry in all_found(hosts[0], "few:43", "--host", "gate-2")["denials"]] == ["gate-2"]
    assert [entry["here"] for entry in all_found(hosts[0], "few:43", "--this-host")["denials"]] == [True]
    assert all_found(hosts[0], "few:43", "--host", "gate-1")["coverage"]["hosts"] == ["gate-1"]
    assert "no host is called 'gate-9'" in hosts[0].weir("why", "few:43", "--host", "gate-9", code=1)
    assert "exclude each other" in hosts[0].weir("why", "few:43", "--host", "gate-1", "--this-host", code=2)


def test_rules_service_has_denials_of_all_hosts(hosts):
    deny(hosts[1], "44")
    seen = complete(lambda: hosts[0].request_json("GET", "/v1/denials?about=few:44"))
    assert [(entry["host"], entry["here"], entry["key"]) for entry in seen["denials"]] == [("gate-2", False, "few:44")]
    assert sorted(seen["coverage"]["hosts"]) == NAMES
    assert hosts[0].request_json("GET", "/v1/denials?about=few:44&this_host=1")["denials"] == []
    replies = []
    wait_until(lambda: replies.append(hosts[0].request("GET", "/v1/denials?about=few:44&host=gate-2")) or replies[-1][0] == 200, "a reply", 30)
    assert [entry["host"] for entry in replies[-1][1]["denials"]] == ["gate-2"]
    status, reply, _ = hosts[0].request("GET", "/v1/denials?host=gate-9")
    assert status == 404 and reply["error"]["code"] == "no_host"
    deny(hosts[2], "45")
    limited = complete(lambda: hosts[0].request_json("GET", "/v1/denials?limit=1"))
    assert [entry["host"] for entry in limited["denials"]] == ["gate-3"] and limited["more"] >= 2


def test_nothing_is_left_in_the_store(hosts, server):
    found(hosts[0], "few:42")
    assert not [key for key in server.client().keys("*") if b"queries" in key or b"replies" in key]


def test_hostile_queries_and_replies(hosts, server):
    """Another client of the store cannot break a reader or an agent: what it writes is ignored, or listed."""
    assert deny(hosts[0], "hostile") == [200, 200, 429]
    client = server.client()
    queries, ended, sent = "weir::{keys}:queries", threading.Event(), []
    broken = [b"", b"[]", b"{", b'{"id":7}', b"\xff\x00", b'{"id":"eeeeeeeeeeeeeeee","name":"' + b"x" * 500 + b'","reply":{}}',
              b'{"id":"ffffffffffffffff","name":"odd","reply":[]}', b'{"id":"aaaaaaaaaaaaaaaa","name":"\\u001b[2Jbad","reply":{"denials":'
              b'[7,{"key":7,"last":1e300,"count":-1e300,"others":{}},{"key":"few:42","host":"gate-1","here":true,"last":"z","x":{"y":[[]]}}],"warnings":{}}}']

    def disturb():
        while not ended.is_set():
            for query in client.hkeys(queries):
                if query not in sent and len(query) == 16:
                    sent.append(query)
                    client.rpush(b"weir::{keys}:replies:" + query, *broken)
            time.sleep(0.002)

    for text in ("", "[]", "{}", '{"v":1,"kind":"denials","from":7,"to":"","bytes":1}', '{"v":2}', "x" * 5000):
        client.eval("redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack({9e15, ARGV[2]}))", 1, queries, f"bad{len(text)}", text)
    client.hset(queries, "unpacked", "\xff")
    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        wait_until(lambda: any("bad" in name for name in found(hosts[0])["coverage"]["hosts"]), "a disturbed reply", 20, every=0.1)
    finally:
        ended.set()
        thread.join()
        client.delete(queries)
    assert "\x1b" not in hosts[0].weir("why", "few:hostile") and all_found(hosts[0], "few:hostile")["denials"]
    assert all(one.agent_pid() for one in hosts)


def test_store_that_is_gone(hosts, server):
    server.pause()
    try:
        seen = found(hosts[0], "few:42")
        assert [entry["host"] for entry in seen["denials"]] == ["gate-1"] and seen["coverage"]["why"]
        assert {one["name"] for one in seen["coverage"]["missing"]} == {"gate-2", "gate-3"}
        text = hosts[0].weir("why", "few:42")
        assert re.search(r"\nfrom 1 host: gate-1; not included: gate-2 \(no reply\), gate-3 \(no reply\); the store: .+\n$", text), text
        assert hosts[0].request_json("GET", "/v1/denials?about=few:42")["coverage"]["why"]
        checked = hosts[0].weir("check", "--segment", "weir.yaml", "-H", "X-User: 80", "/bucket")
        assert "within the limit, by the counter of this host: the store did not answer" in checked, checked
    finally:
        server.resume()
    wait_until(lambda: len(found(hosts[0], "few:42")["coverage"]["hosts"]) == 3, "all hosts again", 30, every=0.3)


def test_host_that_does_not_reply_or_is_silent(hosts):
    """Its agent stands still, as one that has hung or is of an older version; last, as it takes seconds."""
    pid = hosts[2].agent_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        seen = found(hosts[0], "few:42")
        assert {"name": "gate-3", "why": "no reply"} in seen["coverage"]["missing"] and "gate-1" in seen["coverage"]["hosts"]
        assert "gate-3 (no reply)" in hosts[0].weir("why", "few:42")
        status, reply, _ = hosts[0].request("GET", "/v1/denials?host=gate-3")
        assert status == 503 and reply["error"]["code"] == "no_reply"
        wait_until(lambda: {"name": "gate-3", "why": "silent"} in found(hosts[0], "few:42")["coverage"]["missing"], "it is silent", 30, every=0.5)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: len(found(hosts[0], "few:42")["coverage"]["hosts"]) == 3, "its reply", 30, every=0.3)


# ---- weir top, and the statistics of the rules service ----


def top(one, *arguments):
    output = one.weir("top", "--once", "--json", *arguments, code=None)
    return {"coverage": {"missing": [output]}} if output.startswith("weir top: no reply") else json.loads(output)


def rule_of(stats, name="near"):
    return next(rule for rule in stats["rules"] if rule["name"] == name and not rule["shadow"])


def load(hosts, user="777", path="/near"):
    """10, 20 and 300 requests; a key of more than 100 is sampled."""
    for one, times in zip(hosts, (10, 20, 300)):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", one.port)) as connection:
            for _ in range(times):
                connection.request("GET", path, headers={"X-User": user})
                connection.getresponse().read()


def test_top_adds_up_over_all_hosts(hosts):
    before = [rule_of(top(one, "--this-host"))["totals"]["allowed"] for one in hosts]
    load(hosts)
    own = [rule_of(top(one, "--this-host"))["totals"]["allowed"] for one in hosts]
    assert [now - then for now, then in zip(own, before)] == [10, 20, 300]
    seen = complete(lambda: top(hosts[0]))
    assert rule_of(seen)["totals"]["allowed"] == sum(own) and sorted(seen["coverage"]["hosts"]) == NAMES
    assert seen["host"]["name"] == "gate-1" and len(seen["hosts"]) == 3
    hot = [key for key in rule_of(seen)["hot"]["admitted"] if key["key"] == "user:777"]
    assert len(hot) == 1 and hot[0]["count"] > 100  # most of it is of another host
    other = complete(lambda: top(hosts[0], "--host", "gate-3"))
    assert other["host"]["name"] == "gate-3" and rule_of(other)["totals"]["allowed"] == own[2] and other["coverage"]["hosts"] == ["gate-3"]
    assert other["segment"]["path"] == str(hosts[2].folder / "segment")
    text = hosts[0].weir("top", "--once")
    assert re.search(r"^sums     of \d hosts?: gate-1", text, re.M) and "KEYS of near, most denied" in text
    assert "\nsums " not in hosts[0].weir("top", "--once", "--this-host")
    assert "no host is called 'gate-9'" in hosts[0].weir("top", "--once", "--host", "gate-9", code=1)
    assert "exclude each other" in hosts[0].weir("top", "--once", "--host", "x", "--this-host", code=2)
    # The rules service has the same, by rule, by second and by key.
    stats = complete(lambda: hosts[0].request_json("GET", "/v1/stats"))
    assert rule_of(stats)["totals"]["allowed"] == sum(own)
    assert rule_of(hosts[0].request_json("GET", "/v1/stats?this_host=1"))["totals"]["allowed"] == own[0]
    keys = complete(lambda: hosts[0].request_json("GET", "/v1/stats/hot?rule=near&n=5"))
    assert [key["key"] for key in keys["keys"]][:1] == ["user:777"] and sorted(keys["coverage"]["hosts"]) == NAMES
    wait_until(lambda: sum(complete(lambda: hosts[0].request_json("GET", "/v1/stats/history?rule=near&seconds=600"))["allowed"]) >= 330, "the history", 20)
    alone = hosts[0].request_json("GET", "/v1/stats/history?rule=near&seconds=600&this_host=1")
    assert sum(alone["allowed"]) <= own[0]


def test_top_lists_a_host_that_does_not_reply(hosts):
    pid = hosts[1].agent_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        seen = top(hosts[0])
        assert {"name": "gate-2", "why": "no reply"} in seen["coverage"]["missing"] and "gate-1" in seen["coverage"]["hosts"]
        assert "gate-2 (no reply)" in hosts[0].weir("top", "--once")
        assert "no reply from gate-2" in hosts[0].weir("top", "--once", "--host", "gate-2", code=1)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_live_view_of_all_hosts(hosts):
    screen = Terminal("--interval", "200ms", hosts[0].folder / "weir.yaml")
    screen.shows("sums     of 3 hosts: gate-1, gate-2, gate-3")
    load(hosts[:1], "live", "/soon")
    screen.shows("soon ")
    screen.type("q")
    assert screen.wait() == 0


def test_store_that_gets_no_texts_of_keys(backend, server):
    three = start(backend, server, ", hash_keys: true", "hashed",
                  '  - { name: by_path, match: { path: /users/* }, key: "${path}", limit: 2, window: 1h, consistency: local }\n')
    written = []
    try:
        assert deny(three[1], "secret-7", client="192.0.2.99") == [200, 200, 429]
        assert deny(three[1], "secret-8", path="/users/secret-8") == [200, 200, 429]
        with server.client().monitor() as seen:
            assert [(entry["host"], entry["key"], entry["hidden"], entry["client"]) for entry in all_found(three[0], "few:secret-7")["denials"]] == \
                [("gate-2", "few:secret-7", False, None)]
            entry, = all_found(three[0], "192.0.2.99")["denials"]
            assert entry["hidden"] and re.fullmatch("~[0-9a-f]{32}", entry["key"]) and entry["client"] is None
            for about in (entry["key"], "id-secret-7"):
                assert [one["key"] for one in all_found(three[0], about)["denials"]] == [entry["key"]]
            assert all_found(three[0], "secret-7")["denials"] == []  # a part of a key has another hash
            entry, = all_found(three[0], "/users/secret-8")["denials"]
            assert (entry["key"], entry["path"], entry["request_id"]) == ("/users/secret-8", None, None)
            three[0].request_json("GET", "/v1/denials")
            server.client().echo("end")
            for command in seen.listen():
                if command["command"] == "ECHO end":
                    break
                written.append(command["command"])
        assert any("::{keys}:replies:" in line and "few_near" in line for line in written)
        assert not [line for line in written if "secret" in line or "192.0.2.99" in line]
        own, = all_found(three[1], "few:secret-7", "--this-host")["denials"]
        assert own["hidden"] and re.fullmatch("~[0-9a-f]{16}", own["key"])  # the host's own hash, as weir top shows it
        ring = (three[1].folder / "segment.denials").read_bytes()
        assert b"secret-7" not in ring.replace(b"id-secret-7", b"") and b"192.0.2.99" not in ring
    finally:
        for one in three:
            one.remove()
