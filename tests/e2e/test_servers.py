"""Every server that weir promises to work with, of other versions than the machine's own: reached in each way, behind real
hosts, with a user of its own where it knows users, and its errors by their names."""
import json
import os
import re
import shlex
import subprocess

import pytest

from building import ROOT
from clients import get
from gateway import wait_until
from linked import store_client, exact, patient, store  # noqa: F401
from served import WEIR, Served
from stores import Cluster, Sentinel, Server, version
from strict import ALGORITHMS

ANY = subprocess.run([ROOT / "tools/servers.sh", "names"], check=True, capture_output=True, text=True)
NAMES = [*ANY.stdout.split(), *(pytest.param(name, marks=pytest.mark.skip(reason=why))
                                for name, why in re.findall(r"SKIP (\S+): (.*)", ANY.stderr))]
SECRET = "password"


@pytest.fixture(params=NAMES)
def release(request, monkeypatch):
    """Servers that the test starts are of this version: (major, minor)."""
    path = ROOT / "build/servers" / request.param / "redis-server"
    assert os.access(path, os.X_OK), f"it is missing: tools/servers.sh build/servers {request.param} says why"
    monkeypatch.setenv("WEIR_TEST_SERVER", str(path))
    return version(str(path))


def allow_user(server):
    """The user of docs/reference/store.md with no more than its permissions. Returns the store's URL with it."""
    lines = (ROOT / "docs/reference/store.md").read_text().replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("redis-cli ACL SETUSER")]
    assert len(commands) == 2
    for words in commands:
        server.must(*words)
    return f"redis://weir:{SECRET}@127.0.0.1:{server.port}"


# ---- Behind hosts ----

def yaml(url):
    rules = [f"  - {{ name: {name}, match: {{ path: /{name} }}, key: '${{header:x-key}}', limit: 5, consistency: strict"
             f"{', window: 1h' if 'window:' not in more else ''}{more} }}\n" for name, more in ALGORITHMS.items()]
    return f"""
segment: {{ path: @FOLDER@/segment, size: 4MiB }}
state: "@FOLDER@/state"
workers: 1
store: {{ url: "{url}", sync_interval: 20ms, deadline: 3s }}
gateway: {{ listen: 127.0.0.1:@PORT@, upstreams: ["@BACKEND@"] }}
metrics: 127.0.0.1:@METRICS@
queue: {{ body: 10KiB }}
rules:
{"".join(rules)}
  - {{ name: parts, match: {{ path: /parts }}, key: '${{header:x-key}}', limit: 5, window: 1h, consistency: strict,
      algorithm: sliding_window_counter, buckets: 10 }}
  - {{ name: interval, match: {{ path: /interval }}, key: '${{header:x-key}}', limit: 5, window: 1h, consistency: strict,
      refill: interval }}
  - {{ name: flight, match: {{ path: /flight }}, algorithm: concurrency, limit: 1, lease: 30s, consistency: strict }}
  - {{ name: eventual, match: {{ path: /eventual }}, limit: 5, window: 1h, consistency: eventual }}
  - {{ name: later, match: {{ path: /later }}, limit: 1, window: 1s, consistency: strict, on_limit: queue }}
"""


def send_request(host, path, key="a", **more):
    return get(host.port, path, headers={"X-Key": key}, **more)


def state(host, ticket):
    answer = get(host.port, f"/.weir/tickets/{ticket}")
    return json.loads(answer.body)["state"] if answer.status == 200 else answer


def deferred(host):
    """The answer to a request that was denied and kept; on a slow machine the first may pass."""
    def denied():
        answer = send_request(host, "/later", method="POST", body="x")
        assert answer.status in (200, 202), answer
        return answer.status == 202 and answer
    return wait_until(denied, "a denial")


def test_two_hosts(release, store, backend):
    server = store(Server, password=None if release >= (6, 0) else SECRET)
    url = allow_user(server) if release >= (6, 0) else server.url
    two = []
    try:
        for _ in range(2):
            two.append(Served(yaml(url), backend).start())
        for name in [*ALGORITHMS, "parts", "interval"]:
            seen = [send_request(two[i % 2], f"/{name}").status for i in range(7)]
            assert seen == [200] * 5 + [429] * 2, name
        server.forget_scripts()
        assert [send_request(two[i % 2], "/token_bucket", "b").status for i in range(6)] == [200] * 5 + [429]
        for host in two * 2:
            wait_until(lambda: send_request(host, "/flight").status == 200, "that the one before has given it back")
        for host in two * 2:
            assert send_request(host, "/eventual").status == 200
            wait_until(lambda: server.must("EXISTS", "weir:eventual:*"), "an exchange")
        wait_until(lambda: {send_request(host, "/eventual").status for host in two} == {429}, "that they agree")
        # What is denied is kept there, and delivered by whoever drains.
        wait_until(lambda: get(two[0].port, f"/.weir/tickets/{'0' * 32}").status == 404, "the queue")
        for answer in (deferred(two[0]), deferred(two[1])):
            wait_until(lambda: state(two[1], json.loads(answer.body)["ticket"]) == "delivered", "a delivery", 20)
        # A key is blocked on both, with no more permissions than those of the documented user.
        done = subprocess.run([WEIR, "key", "block", "c", "--rule", "fixed_window", "--all-hosts"], cwd=two[0].folder,
                              capture_output=True, text=True, timeout=60)
        assert done.stdout == "fixed_window: c blocked for 1h on all hosts\n", done
        wait_until(lambda: send_request(two[1], "/fixed_window", "c").status == 403, "the block on the other host", 10)
        for host in two:
            assert "weir_store_up 1\n" in get(host.metrics, "/metrics").body.decode()
            wait_until(lambda: 'weir_hosts{state="running"} 2\n' in get(host.metrics, "/metrics").body.decode(), "who is there")
    finally:
        for one in two:
            one.remove()


# ---- The other ways ----

def test_a_cluster(release, store, store_client):
    cluster = store(Cluster, replicas=0)
    ask_it = store_client(patient(cluster.url))
    for i in range(12):
        exact(ask_it, name=f"weir:t:{i}")


def test_a_sentinel(release, store, store_client):
    server = store(Server)
    guide = Sentinel(where=server.folder)
    guide.config.write_text(f"port {guide.port}\nbind 127.0.0.1\nprotected-mode no\ndir {server.folder}\n"
                            f"sentinel monitor one 127.0.0.1 {server.port} 1\n")
    try:
        guide.start()
        exact(store_client(patient(f"redis+sentinel://127.0.0.1:{guide.port}/one")))
    finally:
        guide.remove()


# ---- What it refuses ----

def answered(one, name):
    """The result of a take, once the server replies in time: the machine may be busy."""
    def taken():
        answer = one.do("take", 5, 1, name)
        return answer["error"] not in ("WEIR_ESTORESLOW", "WEIR_ESTOREBREAKER") and answer
    return wait_until(taken, "an answer")


def test_permissions_of_redis_users(release, store, store_client):
    server = store(Server, password="other")
    url = lambda who: patient(f"redis://{who}127.0.0.1:{server.port}")  # noqa: E731
    exact(store_client(url(":other@")))
    for who in ("", ":wrong@", "weir:other@"):
        assert answered(store_client(url(who)), "weir:t:k")["error"] == "WEIR_ESTOREAUTH", who
    if release >= (6, 0):
        allow_user(server)
        exact(store_client(url(f"weir:{SECRET}@")), name="weir:t:user")
        assert answered(store_client(url(f"weir:{SECRET}@")), "other:k")["error"] == "WEIR_ESTOREAUTH"


def refused(store_client, server, name="weir:t:k"):
    return answered(store_client(patient(server.url)), name)["error"]


def test_errors_have_their_names(release, store, store_client):
    server = store(Server)
    server.must("RPUSH", "weir:t:list", "x")
    answer = answered(store_client(patient(server.url)), "weir:t:list")
    assert answer["error"] == "" and not answer["taken"] and not answer["passes"]
    exact(store_client(patient(server.url)), name="weir:t:k")
    server.must("CONFIG", "SET", "maxmemory", "1")
    assert refused(store_client, server, "weir:t:new") == "WEIR_ESTOREOOM"
    server.must("CONFIG", "SET", "maxmemory", "0")
    server.must("CONFIG", "SET", "min-replicas-to-write", "1")
    assert refused(store_client, server, "weir:t:new") == ("WEIR_ESTOREREADONLY" if release >= (6, 2) else "")
    server.must("CONFIG", "SET", "min-replicas-to-write", "0")
    server.must("REPLICAOF", "127.0.0.1", "1")
    assert refused(store_client, server, "weir:t:new") == "WEIR_ESTOREREADONLY"
    server.must("CONFIG", "SET", "replica-serve-stale-data", "no")
    assert refused(store_client, server) == "WEIR_ESTORELOADING"
    server.must("REPLICAOF", "NO", "ONE")
    exact(store_client(patient(server.url)), name="weir:t:last")
    # A cluster that is asked as if it were one server; no slot has an owner yet.
    node = store(Server, "cluster-enabled yes")
    assert refused(store_client, node) == "WEIR_ESTOREDOWN"


def test_a_disk_that_cannot_be_written_to(release, store, store_client):
    server = store(Server, "save 3600 1000000")
    in_its_way = server.folder / f"{server.port}.rdb"
    in_its_way.mkdir()
    server.must("BGSAVE")
    wait_until(lambda: server.info("persistence")["rdb_last_bgsave_status"] == "err", "a snapshot that fails")
    assert refused(store_client, server) == "WEIR_ESTOREDISK"
    in_its_way.rmdir()
    server.must("BGSAVE")
    wait_until(lambda: server.info("persistence")["rdb_last_bgsave_status"] == "ok", "a snapshot")
    exact(store_client(patient(server.url)))


def test_as_many_clients_as_it_lets_in(release, store, store_client):
    server = store(Server)
    with server.connect() as only:
        assert only.do("CONFIG", "SET", "maxclients", 1) == "OK"
        assert refused(store_client, server) == "WEIR_ESTORECLIENTS"
        assert only.do("CONFIG", "SET", "maxclients", 100) == "OK"
    exact(store_client(patient(server.url)))


# Those before version 7 answer nobody while they load as little as a test has.
@pytest.mark.parametrize("release", [name for name in NAMES if name not in ("redis-5.0", "redis-6.0", "redis-6.2")], indirect=True)
def test_loading(release, store, store_client):
    server = store(Server, *Server.LOADING)
    server.load()
    wait_until(lambda: refused(store_client, server) == "WEIR_ESTORELOADING", "that it says so")
    server.finish_loading()
    exact(store_client(patient(server.url)))
