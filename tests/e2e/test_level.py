"""The load level of a real weir serve: what raises it, how soon, and what is left of it when a process dies."""
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from clients import get
from gateway import pause, wait_until
from measured import always, measured
from served import Backend, Served
from test_metrics import parse
from test_statistics import top, weir

YAML = """
segment: { path: @FOLDER@/segment, size: 1MiB }
workers: 1
load: %s
gateway: { listen: 127.0.0.1:@PORT@, upstreams: ["@BACKEND@"] }
metrics: 127.0.0.1:@METRICS@
rules:
  - { name: api, match: { path: /* }, limit: 1000000, window: 1s%s }
"""


@pytest.fixture
def host():
    """Makes a weir serve with a load level."""
    made, backend = [], Backend()

    def make(load, rule=""):
        made.append(Served(YAML % (load, rule), backend).start())
        wait_until(lambda: figures(made[-1])["known"] == 1, "the agent")
        return made[-1]
    yield make
    for one in made:
        one.remove()
    backend.stop()


def figures(one):
    """Of the metrics: level, throttle, known, in_flight; signals and shed by their names."""
    samples, _ = parse(get(one.metrics, "/metrics").body.decode())
    return {(labels[0][1] if labels else name.removeprefix("weir_load_")): value
            for (name, labels), value in samples.items() if name.startswith("weir_load_")}


def level(one):
    return figures(one)["level"]


class Load:
    """So many clients that ask for a path again and again."""

    def __init__(self, one, path, clients):
        self.one, self.path, self.going = one, path, True
        self.threads = [threading.Thread(target=self.request, daemon=True) for _ in range(clients)]

    def request(self):
        while self.going:
            with contextlib.suppress(OSError):
                self.one.get(self.path)

    def __enter__(self):
        self.begun = time.monotonic()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *unused):
        self.going = False
        for thread in self.threads:
            thread.join()


@measured
def test_requests_in_flight(host):
    one = host("{ signals: { in_flight: 8 } }")
    assert level(one) == 0
    with Load(one, "/slow/3", 8) as load:
        wait_until(lambda: level(one) >= 70, "a high level")
        assert time.monotonic() - load.begun < 1.5  # half a second of smoothing, and one or two of the machine's
        seen = figures(one)
        assert seen["in_flight"] >= 7 and seen["throttle"] <= 100
        load.going = False
    wait_until(lambda: level(one) == 0 and figures(one)["in_flight"] == 0, "no load")


@pytest.mark.alone
@measured
def test_a_slow_upstream(host):
    one = host("{ signals: { latency: 3, errors: on }, smooth: 200ms }")
    with Load(one, "/slow/0.01", 4):
        time.sleep(15)  # what it sees in the first ten seconds is the usual
        assert level(one) < 50
    with Load(one, "/slow/0.3", 8):
        wait_until(lambda: level(one) >= 90, "a high level")
        assert figures(one)["latency"] >= 90 and figures(one)["errors"] == 0
        wait_until(lambda: figures(one)["throttle"] < 80, "limits that shrink")
    with Load(one, "/slow/0.01", 4):
        wait_until(lambda: level(one) < 20, "a low level")
        wait_until(lambda: figures(one)["throttle"] == 100, "limits as they were", 60)


@pytest.mark.alone
@measured
def test_the_baseline_outlives_the_agent(host):
    """An agent that is killed during an overload: the next one does not take that for the baseline."""
    one = host("{ signals: { latency: 3 }, smooth: 200ms }")
    with Load(one, "/slow/0.01", 4):
        time.sleep(15)
    with Load(one, "/slow/0.3", 8):
        wait_until(lambda: level(one) >= 90, "a high level")
        one.wait_for_agent(one.kill_agent())
        time.sleep(3)
        assert level(one) >= 90


@pytest.mark.alone
@measured
def test_an_elastic_limit_is_withdrawn(host):
    """In a second, as tests/unit/overload/test_elastic.c shows; here on whatever machine this is."""
    one = host("{ signals: { in_flight: 8 } }", ", algorithm: fixed_window, elastic: { up_to: 200%, while: 70% }")

    def limit():
        return int(one.get("/").headers["X-RateLimit-Limit"])
    wait_until(lambda: limit() == 2000000, "room")
    with Load(one, "/slow/4", 8) as load:
        wait_until(lambda: limit() == 1000000, "the limit as it is written")
        assert time.monotonic() - load.begun < 3
        load.going = False
    wait_until(lambda: limit() == 2000000, "room again")


def test_an_upstream_that_fails(host):
    one = host("{ signals: { errors: 20% } }")
    one.backend.stop()
    with Load(one, "/", 2):
        wait_until(lambda: level(one) >= 90, "a high level")


@measured
def test_shedding_begins_with_the_lowest(host):
    one = host("{ signals: { in_flight: 4 }, shed_above: 90 }")
    with Load(one, "/slow/3", 8) as load:
        def sheds(who):
            wait_until(lambda: figures(one)[who] > 0, f"shedding of {who}")
            return time.monotonic() - load.begun
        assert sheds("low") < 3
        sheds("normal")
        seen = figures(one)
        always(seen["critical"] == 0, seen)
        assert seen["low"] == 100
        load.going = False
    wait_until(lambda: level(one) == 0, "no load")
    assert figures(one)["low"] > 0  # it comes back slowly


def test_a_burning_processor(host):
    one = host("on")
    burner = ["nice", "-n", "19", sys.executable, "-c", "while True: pass"]  # other tests hardly notice
    burning = [subprocess.Popen(burner) for _ in range(3 * (os.cpu_count() or 1))]
    try:
        wait_until(lambda: figures(one).get("cpu", 0) >= 80 and level(one) >= 60, "a high level")
    finally:
        for each in burning:
            each.kill()
            each.wait()


@measured
def test_a_silent_agent_publishes_no_level(host):
    one = host("{ signals: { in_flight: 2 } }")
    with Load(one, "/slow/2", 4):
        wait_until(lambda: level(one) >= 70, "a high level")
        agent = one.wait_for_agent()
        pause(agent)
        try:
            stopped = time.monotonic()
            wait_until(lambda: figures(one)["known"] == 0, "silence")
            assert 1 < time.monotonic() - stopped < 3
            seen = figures(one)
            assert seen["level"] == 0 and seen["throttle"] == 100 and seen["low"] == 0
            assert "the agent says nothing" in weir("top", "--once", one.file)
        finally:
            os.kill(agent, signal.SIGCONT)
        wait_until(lambda: level(one) >= 70, "the level again")
        os.kill(agent, signal.SIGKILL)
        one.wait_for_agent(agent)
        wait_until(lambda: level(one) >= 70, "its level")


def test_a_killed_worker_leaves_nothing_in_flight(host):
    one = host("{ signals: { in_flight: 8 } }")
    for _ in range(3):
        with Load(one, "/slow/4", 8) as load:
            wait_until(lambda: figures(one)["in_flight"] == 8, "requests in flight")
            load.going = False
            (worker,) = one.workers()
            os.kill(int(worker), signal.SIGKILL)
        wait_until(lambda: figures(one)["in_flight"] == 0 and level(one) == 0, "nothing in flight")


def test_clients_that_leave(host):
    one = host("{ signals: { in_flight: 8 } }")
    clients = []
    for _ in range(8):
        clients.append(socket.create_connection(("127.0.0.1", one.port)))
        clients[-1].sendall(b"GET /slow/60 HTTP/1.1\r\nHost: a\r\n\r\n")
    wait_until(lambda: figures(one)["in_flight"] == 8, "requests in flight")
    for client in clients:
        client.close()
    wait_until(lambda: figures(one)["in_flight"] == 0, "nothing in flight")


def test_a_reload_keeps_requests_in_flight(host):
    one = host("{ signals: { in_flight: 8 } }")
    with Load(one, "/slow/10", 4) as load:
        wait_until(lambda: figures(one)["in_flight"] == 4, "requests in flight")
        load.going = False
        one.change("in_flight: 8", "in_flight: 9")
        one.wait_for_log("reloaded", seconds=15)
        assert figures(one)["in_flight"] == 4  # with the worker that is to end
    wait_until(lambda: figures(one)["in_flight"] == 0, "nothing in flight")


def test_what_is_shown(host):
    one = host("{ signals: { in_flight: 2, cpu: on }, shed_above: 90 }")
    with Load(one, "/slow/2", 4):
        wait_until(lambda: level(one) >= 95, "a high level")

        def full():  # all four may be between two of their requests
            seen = top(one)["load"]
            return seen["known"] and seen["level"] >= 90 and seen["signals"]["in_flight"] == 100 and seen["in_flight"] >= 3 and seen
        seen = wait_until(full, "a full load")
        assert set(seen["signals"]) == {"in_flight", "cpu"}
        assert set(seen["shed"]) == {"critical", "high", "normal", "low"} and seen["shed"]["critical"] == 0

        def shown():
            (line,) = [line for line in weir("top", "--once", one.file).splitlines() if line.startswith("level ")]
            return "in_flight 100" in line and line
        line = wait_until(shown, "a line that says so")
        assert "in flight" in line and len(line) <= 80

        def reported():
            status = json.loads(get(one.metrics, "/weir/status").body)
            return status["load"]["known"] and status["load"]["signals"]["in_flight"] == 100
        wait_until(reported, "a status that says so")


def test_without_it_there_is_nothing(host):
    one = Served(YAML % ("off", ""), Backend()).start()
    try:
        assert figures(one) == {}
        assert not (one.folder / "segment.load").exists()
        assert top(one)["load"] is None
    finally:
        one.backend.stop()
        one.remove()
