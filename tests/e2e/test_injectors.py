"""That the faults of the store tests are faults: an injector that does nothing would prove everything."""
import contextlib
import subprocess
import time

import pytest

import wire
from relay import Relay
from resp import Broken, Client
from stores import Cluster, Sentinels, Server, small_disk


@pytest.fixture
def made():
    with contextlib.ExitStack() as stack:
        def keep(one):
            stack.callback(one.remove)
            return one
        yield keep


def took(job):
    begun = time.monotonic()
    return job(), time.monotonic() - begun


def test_the_relay(made):
    server = made(Server()).start()
    relay = made(Relay(server.port))
    with Client(relay.port) as client:
        assert client.do("PING") == "PONG"
        relay.be(delay=0.05)
        assert took(lambda: client.do("PING"))[1] >= 0.1
        relay.be("error", text="OOM no memory")
        answer = client.do("PING")
        assert isinstance(answer, Broken) and str(answer) == "OOM no memory"
        relay.be("garbage")
        client.send(b"*1\r\n$4\r\nPING\r\n")
        assert client.socket.recv(100) != b"+PONG\r\n"
    relay.be("trickle")
    with Client(relay.port) as client:
        def two():
            client.send(b"*1\r\n$4\r\nPING\r\n")
            return client.socket.recv(1) + client.socket.recv(1)
        answer, seconds = took(two)
        assert answer == b"+P" and seconds > 0.9
    relay.be("silent")
    with Client(relay.port, timeout=0.3) as client, pytest.raises(TimeoutError):
        client.do("PING")
    relay.be("refuse")
    with pytest.raises((ConnectionError, EOFError)), Client(relay.port) as client:
        client.do("PING")


def test_the_wire(made):
    can, why_not = wire.possible()
    if not can:
        pytest.skip(why_not)
    site = made(wire.Site())
    server = made(Server(bind=("127.0.0.1", site.store))).start()

    def request(words, seconds):
        done = subprocess.run([*site.inside, "timeout", str(seconds), "redis-cli", "-h", site.store, "-p",
                               str(server.port), *words], capture_output=True, text=True)
        return done.stdout.strip()

    assert request(["PING"], 30) == "PONG"
    site.be(delay=0.025)
    answer, seconds = took(lambda: request(["PING"], 30))
    assert answer == "PONG" and seconds >= 0.1  # to connect, and to ask
    site.be(loss=0.2)
    assert took(lambda: request(["-r", "30", "PING"], 3))[1] > 0.2  # TCP sent again
    site.be(cut=True)
    assert request(["PING"], 0.3) == ""
    site.be()
    assert request(["PING"], 30) == "PONG"


def test_a_full_disk_and_full_memory(made):
    with small_disk() as disk:
        if not disk:
            pytest.skip("no small file system can be mounted here: a full disk is not tested")
        server = made(Server("appendonly yes", "appendfsync everysec", where=disk)).start()
        answers = [server.do("SET", f"k{i}", "x" * 100000) for i in range(20)]
        assert isinstance(answers[-1], Broken) and "MISCONF" in str(answers[-1])
        server.kill()
    full = made(Server("maxmemory 100kb", "maxmemory-policy noeviction")).start()
    assert str(full.do("SET", "k", "v")).startswith("OOM")


def test_sentinels_choose_another_master(made):
    sentinels = made(Sentinels()).start()
    old = sentinels.master()
    old.must("SET", "k", "v")
    old.in_step(2)
    new = sentinels.failover()
    assert new is not old and new.do("GET", "k") == b"v"
    new.kill()
    assert sentinels.promoted(new).do("SET", "k", "w") == "OK"


def test_a_cluster_moves_slots_and_replaces_a_master(made):
    cluster = made(Cluster(Cluster.QUICK)).start()
    one, two, _ = cluster.masters()
    before = cluster.nodes(two)[two.port][2]
    cluster.reshard(one, two, 50)
    assert cluster.nodes(two)[two.port][2] == before + 50
    cluster.lose(one)
    assert one not in cluster.masters() and len(cluster.masters()) == 3
