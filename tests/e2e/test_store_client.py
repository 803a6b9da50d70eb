"""The blocking client of a store with real servers: every kind of store, every fault, exact counts."""
import shutil
import time

import pytest

from gateway import wait_until
from linked import PATIENT, store_client, exact, patient, place, store  # noqa: F401
from measured import Lateness, measured
from relay import Relay
from stores import Authority, Cluster, Sentinel, Sentinels, Server, anonymous_tls, openssl, openssl_with_anonymous_ciphers


def test_a_server(store, store_client):
    server = store(Server)
    client = store_client(patient(server.url + "/5"))
    exact(client)
    assert server.do("SELECT", 5) and server.info("keyspace")["db5"].startswith("keys=1")
    assert client.do("take", 10, 4, "weir:t:back")["taken"]
    client.do("refund")
    assert client.do("stats")["refunds"] == 1
    assert client.do("take", 10, 10, "weir:t:back")["passes"]


def test_a_name_and_a_unix_socket(store, store_client, place):
    server = store(Server, f"unixsocket {place}/s")
    exact(store_client(patient(f"redis://localhost:{server.port}")))
    exact(store_client(patient(f"redis+unix://{place}/s?database=2")))


def test_users_and_passwords(store, store_client):
    server = store(Server, "user weir on >pw%:/ ~weir:* +@all -@dangerous +role", password="secret")
    url = lambda who: patient(f"redis://{who}127.0.0.1:{server.port}")  # noqa: E731
    exact(store_client(url(":secret@")))
    exact(store_client(url("weir:pw%25%3a%2f@")), name="weir:t:other")
    for who, name in (("weir:no@", "weir:k"), ("", "weir:k"), ("weir:pw%25%3a%2f@", "not:ours")):
        assert store_client(url(who)).do("take", 1, 1, name)["error"] == "WEIR_ESTOREAUTH"


def test_tls(store, store_client, place):
    authority, other = Authority(place), Authority(place, "other")
    own = authority.sign("client")
    server = store(Server, tls=(authority, authority.sign("server", "DNS:store.test,IP:127.0.0.1")))
    url = f"{server.url}?{PATIENT}&"
    exact(store_client(f"{url}ca={authority.ca}"))
    exact(store_client(f"{url}ca={authority.ca}&certificate={own[0]}&key={own[1]}"), name="weir:t:own")
    exact(store_client(f"{url}ca={authority.ca}&server_name=store.test"), name="weir:t:sni")
    exact(store_client(f"{url}verify=no"), name="weir:t:verify")
    for wrong in (f"ca={other.ca}", "", f"ca={authority.ca}&server_name=another.test", f"ca={place}/none.pem"):
        assert store_client(url + wrong).do("take", 1, 1, "k")["error"] == "WEIR_ESTOREAUTH", wrong
    server.must("CONFIG", "SET", "tls-auth-clients", "yes")
    exact(store_client(f"{url}ca={authority.ca}&certificate={own[0]}&key={own[1]}"), name="weir:t:mutual")
    assert store_client(f"{url}ca={authority.ca}").do("take", 1, 1, "k")["error"] in ("WEIR_ESTOREAUTH", "WEIR_ESTOREDOWN")
    # Plain where TLS is spoken, and TLS where it is not.
    assert store_client(f"redis://127.0.0.1:{server.port}?deadline=500ms").do("take", 1, 1, "k")["error"]
    plain = store(Server)
    assert store_client(f"rediss://127.0.0.1:{plain.port}?deadline=300ms").do("take", 1, 1, "k")["error"]


def test_a_server_without_a_certificate_is_refused(store, store_client, place, monkeypatch):
    authority, server = Authority(place), store(Server)
    relay = Relay(server.port, tls=anonymous_tls())
    monkeypatch.setenv("OPENSSL_CONF", openssl_with_anonymous_ciphers(place))
    url = f"rediss://127.0.0.1:{relay.port}?{PATIENT}&"
    assert store_client(f"{url}ca={authority.ca}").do("take", 1, 1, "k")["error"] == "WEIR_ESTOREAUTH"
    exact(store_client(f"{url}verify=no"))  # so the ciphers were agreed on
    relay.remove()


def test_renewed_certificates_are_read(store, store_client, place):
    authority, other = Authority(place), Authority(place, "other")
    server = store(Server, tls=(authority, authority.sign("server")))
    server.must("CONFIG", "SET", "tls-auth-clients", "yes")
    old, new = (one.sign(name) for one, name in ((other, "old"), (authority, "new")))
    own = [shutil.copy(file, place / f"own{file.suffix}") for file in old]
    client = store_client(f"{server.url}?{PATIENT}&ca={authority.ca}&certificate={own[0]}&key={own[1]}")
    assert client.do("take", 9, 1, "weir:k")["error"] == "WEIR_ESTOREAUTH"
    for file, to in zip(new, own):
        shutil.copy(file, to)
    wait_until(lambda: not client.do("take", 9, 1, "weir:k")["error"], "the new ones", every=0.2)


def test_a_key_with_a_pass_phrase_is_refused_without_a_prompt(store, store_client, place):
    authority = Authority(place)
    certificate, key = authority.sign("client")
    openssl("pkey", "-aes128", "-passout", "pass:secret", "-in", key, "-out", place / "locked.key")
    server = store(Server, tls=(authority, authority.sign("server")))
    client = store_client(f"{server.url}?deadline=200ms&ca={authority.ca}&certificate={certificate}&key={place}/locked.key")
    # All lines are there at once: the second is not read as the pass phrase.
    for words in (("take", 1, 1, "weir:k"), ("stats",)) * 3:
        client.send(*words)
    assert ["error" in client.receive() for _ in range(3)] == [True, False, True]
    assert client.receive()["last_error"] == "WEIR_ESTOREAUTH"


def test_a_child_makes_its_own_connections(store, store_client):
    server = store(Server)
    client = store_client(patient(server.url))
    assert client.do("take", 3, 1, "weir:t:k")["passes"]
    client.do("fork")
    assert [client.do("take", 3, 1, "weir:t:k")["passes"] for _ in range(3)] == [True, True, False]
    assert client.do("stats")["connects"] == 1


@measured
def test_unavailable_and_available_again(store, store_client):
    server = store(Server)
    client = store_client(patient(server.url, "200ms"))
    exact(client)
    server.kill()
    seen = [client.do("take", 9, 1, "weir:t:k") for _ in range(50)]
    assert all(one["us"] < 400000 for one in seen)
    assert seen[-1]["error"] == "WEIR_ESTOREBREAKER"
    server.start()
    begun = time.monotonic()
    wait_until(lambda: client.do("work", 20) == {} and not client.do("take", 9, 1, "weir:t:k")["error"], "the return")
    assert time.monotonic() - begun < 2


def take_rarely(client, every=1.2):
    """Nobody lets the link work between the questions, which are further apart than a connection may take."""
    time.sleep(every)
    return client.do("take", 1000, 1, "weir:t:k")["error"]


@measured
def test_rare_requests_reconnect_too(store, store_client):
    server = store(Server)
    client = store_client(patient(server.url, "500ms"))
    exact(client)
    server.kill()
    wait_until(lambda: client.do("take", 9, 1, "weir:t:k")["error"] == "WEIR_ESTOREBREAKER", "the breaker")
    server.start()
    assert "" in [take_rarely(client) for _ in range(2)]


@measured
def test_rare_requests_find_a_master_too(store, store_client):
    stores = store(Sentinels)
    client = store_client(patient(stores.url, "500ms"))
    exact(client)
    for one in [*stores.sentinels, *stores.servers]:
        one.kill()
    wait_until(lambda: client.do("take", 9, 1, "weir:t:k")["error"] == "WEIR_ESTOREBREAKER", "the breaker")
    stores.start()
    assert "" in [take_rarely(client) for _ in range(3)]


@measured
def test_a_connection_that_takes_longer_than_a_question(store, store_client, place):
    authority = Authority(place)
    # Of the older version, as it takes more ways to and fro.
    server = store(Server, "tls-protocols TLSv1.2", tls=(authority, authority.sign("server")))
    relay = Relay(server.port)
    relay.be(delay=0.03)
    client = store_client(f"rediss://127.0.0.1:{relay.port}?deadline=100ms&ca={authority.ca}")
    try:
        assert "" in [take_rarely(client) for _ in range(6)]
    finally:
        relay.remove()


@measured
def test_paused(store, store_client):
    server = store(Server)
    client = store_client(patient(server.url, "200ms"))
    exact(client)
    server.pause()
    seen = [client.do("take", 1000000, 1, "weir:t:k") for _ in range(50)]
    assert {one["error"] for one in seen} == {"WEIR_ESTORESLOW", "WEIR_ESTOREBREAKER"}
    assert sum(one["error"] == "WEIR_ESTORESLOW" for one in seen) == 5
    client.do("work", 3000)
    server.resume()
    begun = time.monotonic()
    wait_until(lambda: client.do("work", 20) == {} and not client.do("take", 9, 1, "weir:t:k")["error"], "the return")
    assert time.monotonic() - begun < 2


def test_scripts_flushed_under_load(store, store_client):
    server = store(Server)
    client = store_client(patient(server.url))
    client.send("hammer", 1500, 1000, 50)
    for _ in range(20):
        server.forget_scripts()
        time.sleep(0.05)
    seen = client.receive()
    assert seen["errors"] == {}
    assert max(seen["passed"]) <= 1000
    assert client.do("stats")["script_loads"] >= 10


@pytest.mark.alone
@measured
def test_sentinel_failover(store, store_client):
    stores = store(Sentinels)
    client = store_client(patient(stores.url, "200ms"))
    exact(client)
    with Lateness() as machine:
        client.send("hammer", 8000, 1000000, 20)
        time.sleep(1)
        stores.failover()
        seen = client.receive()
    assert seen["last_error_us"] < 7000000, seen["errors"]
    assert seen["longest_us"] < 400000 + 1e6 * machine.longest()
    exact(client, name="weir:t:after")


@measured
def test_sentinel_master_killed(store, store_client):
    stores = store(Sentinels)
    client = store_client(patient(stores.url, "200ms"))
    exact(client)
    old = stores.master()
    old.kill()
    stores.promoted(old)
    begun = time.monotonic()
    wait_until(lambda: client.do("work", 20) == {} and not client.do("take", 9, 1, "weir:t:k")["error"], "the new master")
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize("secret, error", [("sentinel_password=others", ""), ("sentinel_password=no", "WEIR_ESTOREAUTH"),
                                           ("deadline=3s", "WEIR_ESTOREAUTH")])
def test_sentinels_with_a_password_of_their_own_and_tls(store, store_client, place, secret, error):
    authority = Authority(place)
    signed = authority.sign("server")
    master = store(Server, "user weir on >mine ~weir:* +@all", tls=(authority, signed), password="theirs")
    sentinel = Sentinel(tls=(authority, signed), password="others")
    sentinel.config.write_text(sentinel.config.read_text() + "\n".join([
        "tls-replication yes", f"sentinel monitor m 127.0.0.1 {master.port} 1", "sentinel auth-pass m theirs"]) + "\n")
    try:
        sentinel.start()
        client = store_client(f"rediss+sentinel://weir:mine@127.0.0.1:{sentinel.port}/m/3?{PATIENT}&ca={authority.ca}&{secret}")
        if error:
            assert client.do("take", 1, 1, "weir:t:k")["error"] == error
            return
        exact(client)
        assert master.info("keyspace").keys() == {"db3"}
    finally:
        sentinel.remove()


def test_a_cluster_with_users_and_tls(store, store_client, place):
    authority = Authority(place)
    signed = authority.sign("server")
    one, two = (store(Server, "cluster-enabled yes", "cluster-config-file nodes-%d.conf" % i, "tls-cluster yes",
                      "user weir on >mine ~weir:* +@all", tls=(authority, signed), password="theirs") for i in range(2))
    one.must("CLUSTER", "ADDSLOTS", *range(8192))
    two.must("CLUSTER", "ADDSLOTS", *range(8192, 16384))
    one.must("CLUSTER", "MEET", "127.0.0.1", two.port)
    for server in (one, two):
        wait_until(lambda: b"cluster_state:ok" in server.do("CLUSTER", "INFO"), "a cluster")
    url = f"127.0.0.1:{one.port}?{PATIENT}&ca={authority.ca}"
    client = store_client(f"rediss+cluster://weir:mine@{url}")
    for name in range(8):
        exact(client, name=f"weir:t:{name}")
    assert all(int(server.do("DBSIZE")) > 0 for server in (one, two))
    assert client.do("take", 9, 1, *(f"weir:all:{i}" for i in range(6)))["passes"]
    assert store_client(f"rediss+cluster://weir:no@{url}").do("take", 1, 1, "weir:k")["error"] == "WEIR_ESTOREAUTH"


def slots_seen(cluster, server):
    return tuple(sorted((port, slots) for port, (_, _, slots) in cluster.nodes(server).items()))


def test_cluster_exact_through_a_resharding(store, store_client):
    cluster = store(Cluster)
    asks = [store_client(patient(cluster.url)) for _ in range(3)]
    exact(asks[0])
    for one in asks:
        one.send("hammer", 8000, 100, 200)
    first, second, _ = cluster.masters()
    time.sleep(0.5)
    cluster.reshard(first, second, 2000)
    wait_until(lambda: len({slots_seen(cluster, server) for server in cluster.alive()}) == 1, "agreement")
    cluster.reshard(second, first, 1000)
    seen = [one.receive() for one in asks]

    def all_passed():
        return [sum(of_one) for of_one in zip(*(one["passed"] for one in seen))]
    for _ in range(20):  # a busy machine does not come to an end in the time that it was given
        if min(all_passed()) >= 100 or any(one["errors"] for one in seen):
            break
        seen.append(asks[0].do("hammer", 1000, 100, 200))
    for one in seen:
        assert one["errors"].keys() <= {"WEIR_ESTORESLOW"}, one["errors"]
    total = all_passed()
    assert max(total) <= 100
    if not any(one["errors"] for one in seen):
        assert total == [100] * 200
    assert sum(one.do("stats")["redirects"] for one in asks) > 0


@measured
def test_cluster_master_lost(store, store_client):
    cluster = store(Cluster, Cluster.QUICK)
    client = store_client(patient(cluster.url, "500ms"))
    exact(client)
    lost = cluster.masters()[0]
    with Lateness() as machine:
        client.send("hammer", 6000, 1000000, 100)
        time.sleep(0.5)
        took = cluster.lose(lost)
        seen = client.receive()
    assert seen["longest_us"] < 700000 + 1e6 * machine.longest()
    # The slots of the others went on: most questions were answered.
    assert sum(seen["errors"].values()) < seen["count"] * 0.7, (took, seen["errors"])
    # Two seconds after a replica has taken over, so has the client.
    client.do("work", 2000)
    seen = client.do("hammer", 1000, 1000000, 100)
    assert seen["errors"] == {}, (took, seen["errors"])
