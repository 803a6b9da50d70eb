"""Eventual rules: every host decides by itself, and the agents make them agree; whatever is killed meanwhile."""
import collections
import json
import pathlib
import re
import signal
import subprocess
import threading
import time

import pytest

from clients import get
from fleet import Load
from gateway import wait_until
from measured import always, measured
from served import ENVIRONMENT, WEIR, Backend, Served

YAML = """
segment: { path: @FOLDER@/segment, size: 4MiB }
workers: 2
store: { url: "%s", sync_interval: %s }
gateway: { listen: 127.0.0.1:@PORT@, upstreams: ["@BACKEND@"] }
metrics: 127.0.0.1:@METRICS@
%s"""


def rules(limit=1000, window="1d", more=""):
    return (f"rules:\n  - {{ name: e, key: '${{header:x-key}}', limit: {limit}, window: {window}, consistency: eventual{more} }}\n")


@pytest.fixture
def served():
    """Makes hosts: weir serve, each with a segment of its own."""
    made, backend = [], Backend()

    def make(server, count=1, text=None, interval="50ms"):
        new = [Served(YAML % (server.url(), interval, text or rules()), backend).start() for _ in range(count)]
        made.extend(new)
        return new if count > 1 else new[0]
    yield make
    for one in made:
        one.remove()
    backend.stop()


PASSED = collections.Counter()  # on which port, of which key


def request(port, count, key="a"):
    """How many of so many requests pass."""
    statuses = [get(port, "/", headers={"X-Key": key}).status for _ in range(count)]
    assert set(statuses) <= {200, 429, 503}, statuses
    PASSED[port, key] += statuses.count(200)
    return statuses.count(200)


def left(port, key="a"):
    """What is left before a request, which it takes."""
    answer = get(port, "/", headers={"X-Key": key})
    PASSED[port, key] += answer.status == 200
    return int(answer.headers["X-RateLimit-Remaining"]) + (answer.status == 200)


def know(hosts, of=(), limit=1000):
    """Whether each host knows of all that passed on them, and `of` others. What was asked for just now may be on its way,
    and one may have come back: 1,000 a day are one in 86 s."""
    def passed():
        return sum(PASSED[host.port, "a"] for host in (*hosts, *of))
    return all(limit - passed() - left(host.port) >= -len(hosts) - 1 for host in hosts)


def agree(hosts, what="agreement", of=()):
    wait_until(lambda: know(hosts, of), what, every=0.1)


def in_store(server):
    return server.client().dbsize()


def test_hosts_hear_of_each_other(redis_server, served):
    server = redis_server()
    three = served(server, 3)
    assert [request(host.port, 10) for host in three] == [10, 10, 10]
    agree(three, "what the others let pass")
    names = [name.decode() for name in server.client().scan_iter("*")]
    assert "weir:e:a" in names and all(name == "weir:e:a" or name.startswith("weir::") for name in names), names


@measured
def test_status_and_metrics_of_the_ledger(redis_server, served):
    server = redis_server()
    one, two = served(server, 2)
    assert request(one.port, 6) == request(two.port, 4) + 2 == 6
    agree([one, two])

    def ledger_status():
        return json.loads(get(one.metrics, "/weir/status").body)["ledger"]
    wait_until(lambda: ledger_status()["units_sent"] >= 6 and ledger_status()["units_received"] >= 4 and ledger_status()["lag_ms"] == 0, "the figures")
    assert ledger_status()["agent"] is True and ledger_status()["store"] == "up" and ledger_status()["full"] == 0 and ledger_status()["entries"] > 1000
    text = get(one.metrics, "/metrics").body.decode()
    figures = dict(line.split(" ") for line in text.splitlines() if re.match("weir_(agent|ledger|sync)_", line))
    assert figures["weir_agent_up"] == "1" and int(figures["weir_sync_units_sent_total"]) >= 6, figures
    assert float(figures["weir_sync_lag_seconds"]) < 1 and int(figures["weir_sync_sent_bytes_total"]) > 100, figures
    server.kill()
    wait_until(lambda: ledger_status()["store"] == "down" and ledger_status()["last_error"].startswith("WEIR_ESTORE"), "the store's absence")
    request(one.port, 1)
    wait_until(lambda: ledger_status()["lag_ms"] > 300, "the lag")


KEYS_EVERY = 0.2  # seconds between two reads of blocks and resets of keys


@measured
def test_a_hot_key_costs_one_exchange_an_interval(redis_server, served):
    server = redis_server()
    host = served(server, text=rules(limit=100000))
    request(host.port, 5)
    time.sleep(0.5)
    before, began = server.calls(), time.monotonic()
    passed = request(host.port, 400)
    took = time.monotonic() - began
    assert passed == 400
    assert server.calls() - before <= took / 0.05 + took / KEYS_EVERY + 3
    time.sleep(1.5)  # it is asked for a few times more, then nobody is
    before, began = server.calls(), time.monotonic()
    time.sleep(2.1)
    took = time.monotonic() - began
    assert server.calls() - before <= took + took / KEYS_EVERY + 2  # whether the store is there, once a second


def test_a_killed_agent_is_started_again_and_nothing_is_lost(redis_server, served):
    server = redis_server()
    host, other = served(server, 2, rules(limit=10000))
    passed, stop = [0], threading.Event()

    def load():
        while not stop.is_set():
            passed[0] += request(host.port, 5)
    thread = threading.Thread(target=load)
    thread.start()
    killed = []
    try:
        for _ in range(5):
            host.wait_for_agent(*killed)
            time.sleep(0.2)
            killed.append(host.kill_agent(*killed))
    finally:
        stop.set()
        thread.join()
    host.wait_for_log("agent killed by signal 9", 5)
    sent = [request(other.port, 1)]

    def all_told():
        """10,000 a day: one recovers in nine seconds. Nothing is missing, and nothing was sent twice."""
        used = 10000 - left(other.port)
        missing = passed[0] + sum(sent) - used
        sent.append(1)
        assert missing > -5, missing
        return missing < 8
    wait_until(all_told, "all of it")


@measured
def test_a_busy_host_spreads_its_exchange_and_loses_nothing(redis_server):
    """Its agent is killed in the middle of intervals, too: the store has what passed, key by key."""
    server, backend = redis_server(), Backend()
    text = "rules: [{ name: e, key: '${path:2}', limit: 9000, window: 30d, consistency: eventual }]\n"
    host = Served(YAML % (server.url(), "500ms", text), backend).start()

    def ledger_status():
        return json.loads(get(host.metrics, "/weir/status").body)["ledger"]

    def used():
        """A number of 19 digits, of which the last four are units; after a late exchange `b<since>:<units>:<spare>:<end>`."""
        def units(value):
            return int(value.split(b":")[1] if value.startswith(b"b") else value[-4:])
        store = server.client()
        names = list(store.scan_iter("weir:e:*", count=1000))
        return collections.Counter({int(name.rsplit(b":", 1)[1]): units(value)
                                    for name, value in zip(names, store.mget(names))})
    try:
        wait_until(lambda: ledger_status()["agent"], "the agent")
        killed = []
        with Load([f"127.0.0.1:{host.port}"], ["k"], clients=16, seconds=6, keys=2000) as load:
            for pause in (1.7, 0.7):
                host.wait_for_agent(*killed)
                time.sleep(pause)
                killed.append(host.kill_agent(*killed))
        assert load.statuses().keys() == {200}, load.statuses()
        passed = load.admitted()
        try:
            wait_until(lambda: not passed - used(), "all of it")
        except AssertionError:
            always(False, passed - used())
        # A worker that stands still between taking and writing down, while the store first hears of the key, has it count twice.
        always(sum((used() - passed).values()) <= 3, used() - passed)
        assert ledger_status()["requests"] > 6 / 0.5 + 6, ledger_status()
    finally:
        host.remove()
        backend.stop()


@measured
def test_redis_killed_and_restarted(redis_server, served):
    server = redis_server()
    one, two = served(server, 2)
    assert request(one.port, 10) == request(two.port, 10) == 10
    agree([one, two])
    server.kill()
    for host in (one, two):
        host.wait_for_log("unavailable (")
    assert request(one.port, 10) == request(two.port, 10) == 10  # nobody is held up
    server.start()
    back = time.monotonic()
    agree([one, two], "agreement again")
    assert time.monotonic() - back < 3
    for host in (one, two):
        assert host.log_text().count("unavailable (") == 1, host.log_text()  # once a change


@pytest.mark.parametrize("failure", ["open", "closed", "local"])
@measured
def test_policies_while_the_store_is_unavailable(redis_server, served, failure):
    server = redis_server()
    host = served(server, text=rules(limit=5, more=f", on_store_failure: {failure}"))
    assert request(host.port, 7) == 5
    server.kill()
    passes = {"open": 3, "closed": 0, "local": 0}[failure]
    wait_until(lambda: request(host.port, 3, "b" if failure == "closed" else "a") == passes, "the policy")
    server.start()
    back = time.monotonic()
    wait_until(lambda: request(host.port, 1, "c") == 1 and request(host.port, 3) == 0, "the store's return")
    assert time.monotonic() - back < 3


@measured
def test_an_agent_that_exchanges_rarely_is_alive(redis_server, served):
    server = redis_server()
    host = served(server, text=rules(limit=1000, more=", on_store_failure: closed"), interval="7s")
    host.wait_for_agent()
    until = time.monotonic() + 6
    while time.monotonic() < until:
        assert request(host.port, 1) == 1
        time.sleep(0.3)


def test_the_shutdown_sends_what_is_left(redis_server, served):
    server = redis_server()
    host, other = served(server, 2)
    assert request(host.port, 20) == 20
    agent = host.wait_for_agent()
    host.signal(signal.SIGTERM)
    assert host.end() == 0
    assert not pathlib.Path(f"/proc/{agent}").exists() and host.nothing_left()
    agree([other], "the last exchange", of=[host])


def test_reload_renews_the_agent(redis_server, served):
    server, second = redis_server(), redis_server()
    host = served(server)
    first = host.wait_for_agent()
    host.change(server.url(), second.url())
    host.wait_for_log("reloaded")
    host.wait_for_agent(first)
    request(host.port, 3)
    wait_until(lambda: any(name == b"weir:e:a" for name in second.client().scan_iter("*")), "the other store")
    assert "killed" not in host.log_text() and "exited (exit code" not in host.log_text(), host.log_text()


# ---- weir agent, beside an nginx of somebody's own ----

def agent_file(folder, server, host):
    file = folder / "agent.yaml"
    file.write_text(f"segment: {{ path: {host.segment}, size: 4MiB }}\nstore: {server.url()}\nrules: {host.folder}/rules\n")
    return file


def run_agent(*arguments):
    return subprocess.run([WEIR, "agent", *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)


def test_weir_agent_alone(redis_server, gateway, tmp_path):
    server = redis_server()
    unset = rules().replace(", consistency: eventual", "")  # eventual, too, as it is a bucket
    *hosts, alone = [gateway(text, http=f"weir_store {server.url()};") for text in (rules(), unset, unset)]
    for host in hosts:
        assert request(host.port, 10) == 10
    files = []
    for i, host in enumerate(hosts):
        (tmp_path / str(i)).mkdir()
        files.append(agent_file(tmp_path / str(i), server, host))
    for file in files * 2:
        done = run_agent("--once", file)
        assert done.returncode == 0, done.stderr
    assert [left(host.port) for host in hosts] == [980, 980]

    log = open(tmp_path / "said", "wb")
    agents = [subprocess.Popen([WEIR, "agent", str(file)], env=ENVIRONMENT, stderr=log) for file in files]
    try:
        assert request(hosts[0].port, 5) == 5
        agree(hosts, "the exchange")
        second = run_agent("--once", files[0])
        assert second.returncode == 1 and "another agent" in second.stderr
        request(hosts[1].port, 20)
    finally:
        for agent in agents:
            agent.terminate()
        assert [agent.wait(10) for agent in agents] == [0, 0]
    output = (tmp_path / "said").read_text()
    assert output.count("synchronizes eventual rules") == 2 and output.count("stopped") == 2, output
    wait_until(lambda: "no agent runs" in alone.errors(), "the warning", 20)


@pytest.mark.parametrize("text,output", [
    ("rules: []\n", "neither a gateway"),
    ("store: http://x\nrules: []\n", "store"),
    ("gateway: { listen: 127.0.0.1:1, upstreams: ['http://127.0.0.1:2'] }\nrules: []\n", "there is no store"),
])
def test_weir_agent_reports_errors(tmp_path, text, output):
    file = tmp_path / "weir.yaml"
    file.write_text(text)
    done = run_agent(file)
    assert done.returncode == 1 and output in done.stderr, done.stderr


@pytest.mark.parametrize("more", ["", "admin: 127.0.0.1:1\n"])
def test_weir_agent_leaves_a_segment_that_it_cannot_read(redis_server, gateway, tmp_path, more):
    """nginx may have it mapped, as one of another version has: what it counts must not go on out of everybody's sight."""
    server = redis_server()
    host = gateway(rules(), http=f"weir_store {server.url()};")
    assert request(host.port, 4) == 4
    before = host.segment.stat().st_ino
    with open(host.segment, "r+b", buffering=0) as f:
        f.seek(8)  # the version
        version = f.read(4)
        f.seek(8)
        f.write((int.from_bytes(version, "little") + 1).to_bytes(4, "little"))
        file = agent_file(tmp_path, server, host)
        file.write_text(file.read_text() + more + (f"state: {host.folder}/state\n" if more else ""))
        done = run_agent(*(() if more else ("--once",)), file)
        f.seek(8)
        f.write(version)
    assert done.returncode == 1 and "made by another version of weir; 'weir segment convert' converts it" in done.stderr, done.stderr
    assert host.segment.stat().st_ino == before
    host.reload()
    assert left(host.port) == 996


def test_weir_agent_once_without_a_store_is_an_error(redis_server, gateway, tmp_path):
    server = redis_server()
    host = gateway(rules(), http=f"weir_store {server.url()};")
    assert request(host.port, 4) == 4
    server.kill()
    done = run_agent("--once", agent_file(tmp_path, server, host))
    assert done.returncode == 1 and re.search("ESTORE", done.stderr), done.stderr
    server.start()
    assert run_agent("--once", agent_file(tmp_path, server, host)).returncode == 0
    assert any(name == b"weir:e:a" for name in server.client().scan_iter("*"))
