"""weir key, and what else blocks, unblocks and resets a key: on all hosts that share a real Redis, on those that start later,
while the store is gone and after it has lost everything."""
import json
import time

import pytest

from clients import get
from controlled import Host, weir
from gateway import wait_until
from ports import free_port
from redis_server import RedisServer
from resp import Client
from served import Backend
from stores import Cluster

pytestmark = pytest.mark.xdist_group("keys")  # they share hosts
YAML = """host: {name}
segment: {{ path: @FOLDER@/segment, size: 1MiB }}
state: @FOLDER@/state
workers: 1
gateway: {{ listen: 127.0.0.1:@PORT@, upstreams: ["@BACKEND@"] }}
service:
  http: 127.0.0.1:{http}
  resp: 127.0.0.1:{resp}
  access: {{ operator_tokens: [operator-token], operator_password: redis-operator, open: [api] }}
{admin}
{store}
rules:
  - {{ name: near, match: {{ path: /near }}, key: "user:${{header:x-user}}", limit: 1000, window: 1h, consistency: local }}
  - {{ name: soon, match: {{ path: /soon }}, key: "user:${{header:x-user}}", limit: 1000, window: 1h, consistency: eventual }}
  - {{ name: exact, match: {{ path: /exact }}, key: "user:${{header:x-user}}", limit: 1000, window: 1h, algorithm: fixed_window }}
  - {{ name: login, match: {{ path: /login }}, key: "ip:${{client_ip}}", limit: 2, window: 1h, consistency: local }}
  - {{ name: few_near, match: {{ path: /few_near }}, key: "few:${{header:x-user}}", limit: 2, window: 1h, consistency: local }}
  - {{ name: few_soon, match: {{ path: /few_soon }}, key: "few:${{header:x-user}}", limit: 2, window: 1h, consistency: eventual }}
  - {{ name: few_exact, match: {{ path: /few_exact }}, key: "few:${{header:x-user}}", limit: 2, window: 1h, algorithm: fixed_window }}
  - {{ name: bucket, match: {{ path: /bucket }}, key: "bucket:${{header:x-user}}", limit: 2, window: 1h, consistency: strict }}
"""
PATHS = ("/near", "/soon", "/exact")
SECOND = 1.0


class Keyed(Host):
    def __init__(self, name, backend, store, admin=False):
        self.http, self.resp = free_port(), free_port()
        self.user = 0
        super().__init__(YAML.format(name=name, http=self.http, resp=self.resp, store=f"store: {store}" if store else "",
                                     admin="admin: 127.0.0.1:@ADMIN@" if admin else ""), backend)

    def weir(self, *words, code=0):
        done = weir(*words, cwd=self.folder, code=code)
        return done.stdout + done.stderr

    def status(self, path, user):
        return get(self.port, path, headers={"X-User": user}).status

    def denies(self, user, path="/near"):
        return self.status(path, user) in (403, 429)  # blocked, or over its limit


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
    """Two with one store: the first has a rules service."""
    both = [Keyed("gate-1", backend, server.url(), admin=True), Keyed("gate-2", backend, server.url())]
    try:
        both[0].begin()
        both[1].start()
        wait_until(lambda: all('],"hosts":"all"' in one.weir("key", "show", "user:0", "--json") for one in both), "both agents")
        yield both
    finally:
        for one in both:
            one.remove()


def within_a_second(look, what):
    """The bound of the docs; a machine that stands still gets more, once."""
    begun = time.monotonic()
    wait_until(look, what, 10, every=0.02)
    took = time.monotonic() - begun
    if took > SECOND:
        print(f"AGAIN {what}: {took:.2f} s")
    return took


def test_command_blocks_under_all_rules_on_all_hosts(hosts):
    one, two = hosts
    output = one.weir("key", "block", "user:1", "--for", "10m", "--reason", "scraping", "--all-hosts")
    assert [line for line in output.splitlines() if "user:1 blocked for 10m on all hosts" in line] == output.splitlines()
    assert {line.split(":")[0] for line in output.splitlines()} == {"near", "soon", "exact"}
    assert all(one.denies("1", path) for path in PATHS)  # here at once
    took = max(within_a_second(lambda: two.denies("1", path), path) for path in PATHS)
    assert took < SECOND
    assert not two.denies("2") and not one.denies("2")
    shown = two.weir("key", "show", "user:1")
    assert shown.count("blocked for ") == 3 and "on all hosts by " in shown and ": scraping" in shown
    listed = json.loads(two.weir("key", "list", "--json"))["items"]
    assert {item["rule"] for item in listed if item["key"] == "user:1"} == {"near", "soon", "exact"}
    assert all(590 < item["left_s"] <= 600 and item["reason"] == "scraping" and item["host"] == "gate-1" for item in listed)
    # The rules service, its audit log, weir why and the log of both agents.
    blocks = one.request("GET", "/v1/blocks")[1]["items"]
    assert sorted((item["rule"], item["key"]) for item in blocks) == [("exact", "user:1"), ("near", "user:1"), ("soon", "user:1")]
    audit = one.request("GET", "/v1/audit")[1]["items"]
    assert {entry["object"] for entry in audit if entry["action"] == "key_block"} == {"near/user:1", "soon/user:1", "exact/user:1"}
    assert all(entry["details"]["reason"] == "scraping" for entry in audit if entry["action"] == "key_block")
    assert "an operator had blocked the key" in two.weir("why", "user:1")
    for host in hosts:
        host.wait_for_log("key user:1 under rule near: blocked for ")
    # Any host ends it, under one rule or under all of them.
    assert two.weir("key", "unblock", "user:1", "--rule", "near").strip() == "near: user:1 unblocked on all hosts"
    within_a_second(lambda: not one.denies("1"), "the end of one block")
    assert one.denies("1", "/exact")
    two.weir("key", "unblock", "user:1")
    within_a_second(lambda: not any(one.denies("1", path) for path in ("/soon", "/exact")), "the end of all blocks")
    assert one.weir("key", "list").strip() == "no key is blocked on all hosts"


def test_block_ends_by_itself_on_all_hosts(hosts):
    one, two = hosts
    one.weir("key", "block", "user:3", "--for", "2s", "--rule", "near")
    within_a_second(lambda: two.denies("3"), "the block")
    wait_until(lambda: not one.denies("3") and not two.denies("3"), "the end of the block", 10, every=0.1)


def test_services_block_and_reset_on_all_hosts(hosts):
    one, two = hosts
    reply = get(one.http, "/v1/keys/near/user:4/block", method="PUT", body=json.dumps({"for": "10m"}),
                headers={"Content-Type": "application/json", "Authorization": "Bearer operator-token"})
    assert reply.status == 200 and json.loads(reply.body)["hosts"] == "all"
    within_a_second(lambda: two.denies("4"), "the block of the HTTP service")
    with Client(two.resp) as c:
        c.do("AUTH", "redis-operator")
        assert c.do("WEIR.BLOCK", "near", "user:4", 0) == "OK all hosts"
        within_a_second(lambda: not one.denies("4"), "the end of the block by RESP")
        assert c.do("WEIR.BLOCK", "near", "user:4", 600) == "OK all hosts"
        assert c.do("WEIR.RESET", "CL.THROTTLE", "k") == "OK this host"
    within_a_second(lambda: one.denies("4"), "the block by RESP")
    status, body, _ = one.request("DELETE", "/v1/keys/near/user:4/block")
    assert status == 200 and body["hosts"] == "all" and body["why"] is None
    within_a_second(lambda: not two.denies("4"), "the end of the block by the rules service")


@pytest.mark.parametrize("path", ("/few_near", "/few_soon", "/few_exact"))
def test_reset_holds_on_all_hosts(hosts, path):
    one, two = hosts
    rule = path[1:]
    wait_until(lambda: one.denies("5", path) and two.denies("5", path), "the limit", 10, every=0.1)
    output = one.weir("key", "reset", "few:5", "--rule", rule)
    assert output.strip() == f"{rule}: few:5 reset on all hosts"
    within_a_second(lambda: not two.denies("5", path), "the reset")
    if path == "/few_exact":  # one counter for both: two units in all
        assert [one.status(path, "5"), two.status(path, "5"), one.status(path, "5")] == [200, 429, 429]


def test_host_that_starts_later_and_agent_that_is_killed(hosts, backend, server):
    one, two = hosts
    one.weir("key", "block", "user:6", "--for", "10m", "--rule", "near")
    late = Keyed("gate-3", backend, server.url())
    try:
        late.start()
        wait_until(lambda: late.denies("6"), "the block on the host that started later", 10, every=0.05)
    finally:
        late.remove()
    pid = two.kill_agent(0)
    one.weir("key", "unblock", "user:6", "--rule", "near")  # while it does not run, or starts
    two.wait_for_agent(0, pid)
    wait_until(lambda: not two.denies("6"), "the unblock that its agent missed", 10, every=0.05)


def test_key_is_found_by_its_value(hosts):
    one, two = hosts
    shown = json.loads(one.weir("key", "show", "7", "--json"))["items"]
    assert {(item["rule"], item["key"]) for item in shown} == {(path[1:], "user:7") for path in PATHS} | {(f"few_{path[1:]}", "few:7") for path in PATHS} | {("bucket", "bucket:7")}
    # An address may be a user as well: nothing is changed before it is clear which.
    refused = one.weir("key", "block", "192.0.2.7", code=2)
    assert "is part of several keys" in refused and "ip:192.0.2.7 --rule login" in refused
    assert one.weir("key", "block", "ip:192.0.2.7").strip() == "login: ip:192.0.2.7 blocked for 1h on all hosts"
    assert one.weir("key", "unblock", "192.0.2.7", "--rule", "login").strip() == "login: ip:192.0.2.7 unblocked on all hosts"
    assert one.weir("key", "take", "few:7", "--rule", "few_near", "--cost", "2").strip() == "few_near: few:7 took it, 0 left"
    assert one.weir("key", "take", "few:7", "--rule", "few_near").startswith("few_near: few:7 denied, 0 left, passes again in ")
    # A prefix that no rule has is a mistake; --rule takes it.
    for action in ("show", "block", "unblock", "reset", "take"):
        refused = one.weir("key", action, "key:7", code=1)
        assert refused == f"weir key {action}: no rule counts a key such as 'key:7'; keys of rules: user:${{header:x-user}}, " \
            "ip:${client_ip}, few:${header:x-user}, bucket:${header:x-user}; --rule NAME takes any key\n"
    # No client has a network as its key.
    refused = one.weir("key", "block", "ip:192.0.2.0/24", code=1)
    assert "no rule counts a key such as 'ip:192.0.2.0/24'" in refused and "for a network, write block: { networks: [...] } into the rules" in refused
    assert one.weir("key", "block", "ip:2001:db8::7").strip() == "login: ip:2001:db8::/64 blocked for 1h on all hosts"
    assert one.weir("key", "unblock", "ip:2001:db8::/64").strip() == "login: ip:2001:db8::/64 unblocked on all hosts"
    assert one.weir("key", "reset", "key:7", "--rule", "near").strip() == "near: key:7 reset on all hosts"
    assert one.request("GET", "/v1/keys?about=key:7")[1]["items"] == []
    assert "no rule of this name" in one.weir("key", "block", "user:7", "--rule", "nope", code=1)
    assert "for: such as 10m" in one.weir("key", "block", "user:7", "--for", "soon", code=1)


def test_rules_service_by_its_url(hosts):
    one, two = hosts
    environment = {"WEIR_TOKEN": one.token}
    done = weir("key", "block", "user:8", "--rule", "near", "--reason", "by url", "--url", f"http://127.0.0.1:{one.admin}", env=environment)
    assert done.stdout.strip() == "near: user:8 blocked for 1h on all hosts"
    within_a_second(lambda: two.denies("8"), "the block")
    shown = weir("key", "show", "user:8", "--rule", "near", "--url", f"http://127.0.0.1:{one.admin}", env=environment).stdout
    assert "on all hosts by tests: by url" in shown
    weir("key", "unblock", "user:8", "--url", f"http://127.0.0.1:{one.admin}", env=environment)
    within_a_second(lambda: not two.denies("8"), "the end of it")


def test_store_that_is_gone_and_has_lost_everything(hosts, backend, server):
    one, two = hosts
    one.weir("key", "block", "user:9", "--rule", "near")
    within_a_second(lambda: two.denies("9"), "the block")
    server.kill()
    wait_until(lambda: '],"hosts":"later"' in one.weir("key", "show", "user:0", "--json"), "the agent without its store", 10, every=0.2)
    output = one.weir("key", "block", "user:10", "--rule", "near", "--all-hosts", code=1)
    assert output.startswith("near: user:10 blocked for 1h on this host, and on the others when the store has it: ")
    assert one.denies("10") and not two.denies("10") and two.denies("9")
    # The list states that it may lack blocks. A command has none of its own; the agent knows those that it has read.
    listed = one.weir("key", "list", code=1)
    assert "no key is blocked" not in listed and "weir key list: the store cannot be read (" in listed
    assert json.loads(weir("key", "list", "--json", cwd=one.folder, code=1).stdout)["why"]
    known = weir("key", "list", "--url", f"http://127.0.0.1:{one.admin}", env={"WEIR_TOKEN": one.token}, code=1)
    assert "user:9" in known.stdout and "the store cannot be read (" in known.stderr
    server.start()  # empty
    wait_until(lambda: two.denies("10"), "the block that waited", 20, every=0.1)
    wait_until(lambda: any("restored them" in host.log_text() for host in hosts), "the restored blocks", 20, every=0.1)
    late = Keyed("gate-4", backend, server.url())
    try:
        late.start()
        wait_until(lambda: late.denies("9") and late.denies("10"), "both blocks on a new host", 10, every=0.05)
    finally:
        late.remove()


def test_without_a_store_it_is_this_host(backend):
    one = Keyed("alone", backend, None)
    try:
        one.start()
        assert one.weir("key", "block", "user:1", "--rule", "near").strip() == \
            "near: user:1 blocked for 1h on this host only: there is no store"
        assert one.denies("1") and one.status("/soon", "1") == 200
        assert "--all-hosts needs a store" in one.weir("key", "block", "user:2", "--all-hosts", code=1)
        assert not one.denies("2")
        assert "blocks hold on this host alone" in one.weir("key", "show", "user:1")
        assert "no store is shared" in one.weir("key", "list")
        with Client(one.resp) as c:
            c.do("AUTH", "redis-operator")
            assert c.do("WEIR.BLOCK", "near", "user:1", 0) == "OK this host"
        assert not one.denies("1")
    finally:
        one.remove()


def test_store_that_gets_no_texts_of_keys(backend, server):
    one = Keyed("hashed", backend, f"{{ url: '{server.url()}', hash_keys: true, prefix: hashed }}")
    try:
        one.start()
        assert "on this host only: the store gets no texts of keys (hash_keys)" in one.weir("key", "block", "user:1", "--rule", "near")
        assert one.denies("1")
        assert not [key for key in server.client().keys("hashed*") if b"user" in key]
    finally:
        one.remove()


def test_cluster(backend):
    cluster = Cluster(replicas=0).start()
    both = [Keyed(f"gate-{at}", backend, cluster.url) for at in (1, 2)]
    try:
        for one in both:
            one.start()
        wait_until(lambda: all('],"hosts":"all"' in one.weir("key", "show", "user:0", "--json") for one in both), "both agents", every=0.2)
        assert both[0].weir("key", "block", "user:1", "--rule", "exact").strip() == "exact: user:1 blocked for 1h on all hosts"
        within_a_second(lambda: both[1].denies("1", "/exact"), "the block")
        wait_until(lambda: "gate-2: rule exact denied user:1" in both[0].weir("why", "user:1", code=None), "the denial of the other host", 20, every=0.2)
    finally:
        for one in both:
            one.remove()
        cluster.remove()
