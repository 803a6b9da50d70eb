"""Strict rules: a store that is unavailable, slow or wrong does not affect the gateway."""
import collections
import contextlib
import http.client
import random
import socket
import threading
import time

import h2.connection
import h2.events
import pytest

from clients import end_sockets, get, statuses
from controlled import reloads
from gateway import wait_until
from measured import NOISE, Lateness, always, measured
from ports import free_port
from strict import hammer, key, rules, strict


# ---- A store that is away ----

POLICIES = {"open": [200] * 9, "closed": [503] * 9, "local": [200] * 5 + [429] * 4}


@pytest.mark.parametrize("failure", POLICIES)
def test_start_without_redis_and_its_coming(redis_server, hosts, failure):
    server = redis_server(start=False)
    one, = hosts(server, 1, rules(strict(failure=failure)), settings="retry_max=500ms")
    assert statuses(one.port, "/", 9, **key("a")) == POLICIES[failure]
    wait_until(lambda: "unavailable" in one.errors(), "the news")
    assert not one.status()["store"]["up"]
    server.start()
    wait_until(lambda: get(one.port, "/", **key("c")) and one.status()["store"]["up"], "the return")
    assert statuses(one.port, "/", 6, **key("b")) == [200] * 5 + [429]
    assert b"weir:five:b" in server.client().keys()
    assert one.errors().count(f"{server.url()} unavailable") == 1 and one.errors().count(f"{server.url()} available again") == 1


def lines(log, *words):
    return [line for line in log.splitlines() if all(word in line for word in words)]


HEARTBEAT = "heartbeat=200ms retry_min=20ms retry_max=100ms connect_timeout=200ms"


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_quiet_host_notices_that_the_store_is_unavailable(redis_server, hosts, fault):
    """No request is sent: heartbeats of both workers find out, and the log has each change once."""
    server = redis_server()
    one, = hosts(server, 1, workers=2, settings=HEARTBEAT, deadline="150ms",
                 server="location = /metrics { weir off; weir_metrics; access_log off; }")

    def is_up(value):
        return f"weir_store_up {value}\n" in get(one.port, "/metrics").body.decode()
    wait_until(lambda: server.client().info("clients")["connected_clients"] >= 3, "the workers' connections")
    assert is_up(1)
    getattr(server, fault)()
    wait_until(lambda: is_up(0) and one.status()["store"]["workers_without"] == 2, "both workers' news")
    (server.start if fault == "kill" else server.resume)()
    wait_until(lambda: is_up(1) and lines(one.errors(), "available again"), "the return")
    assert one.status()["store"]["requests"] == 0
    assert len(lines(one.errors(), "[error]", f"weir: store {server.url()} unavailable: ")) == 1, one.errors()
    assert len(lines(one.errors(), "[notice]", f"weir: store {server.url()} available again")) == 1, one.errors()
    assert statuses(one.port, "/", 6, **key("a")) == [200] * 5 + [429]


def test_the_log_of_weir_serve_has_each_change_once(redis_server, serve):
    """Two workers with an http and a stream block each: four clients of the store, and four readers of the rules."""
    server = redis_server()
    one = serve(f"""segment: {{ path: "@FOLDER@/segment", size: 4MiB }}
workers: 2
gateway: {{ listen: 127.0.0.1:@PORT@, upstreams: ["@BACKEND@"] }}
metrics: 127.0.0.1:@METRICS@
service: {{ resp: 127.0.0.1:{free_port()} }}
store: {{ url: "{server.url()}", heartbeat: 200ms, retry_min: 20ms, retry_max: 100ms }}
rules: "@FOLDER@/rules"
""", start=False)
    file = one.folder / "rules" / "rules.yaml"

    def change(text):
        beside = one.folder / "rules" / ".new"
        beside.write_text(text)
        beside.rename(file)
    file.parent.mkdir()
    change(rules())
    one.start()
    server.kill()
    one.wait_for_log("unavailable: ")
    server.start()
    one.wait_for_log("available again")

    def both_workers(result, times):
        seen = {}
        wait_until(lambda: sorted(reloads(one, seen, result).values()) == [times] * 2, f"{result} in both workers")
    change(rules(strict(), strict("six")))
    both_workers("ok", 1)
    change("rules: [{ name: five, limit: many }]")
    both_workers("failed", 1)
    change(rules())
    one.wait_for_log("good again")
    both_workers("ok", 2)
    log = one.log_text()
    for text in (f"weir: error: store {server.url()} unavailable: ", f"weir: store {server.url()} available again",
                 f'weir: rules "{one.folder}/rules" reloaded: 2 rules are active', "rules.yaml:1:",
                 f'weir: error: rules "{one.folder}/rules" not loaded; the previous rules stay active',
                 f'weir: rules "{one.folder}/rules" good again and reloaded: 1 rule is active'):
        assert log.count(text) == 1, (text, log)


class Load:
    """
    Clients that ask again and again: when each request began, how long it took, and its status. Not as fast as they can: then
    they would wait for each other, and for a processor, not for the store.
    """

    PAUSE = 0.005

    def __init__(self, port, connections=8):
        self.port, self.ended, self.done = port, threading.Event(), []
        self.threads = [threading.Thread(target=self._ask) for _ in range(connections)]
        for thread in self.threads:
            thread.start()

    def _ask(self):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        while not self.ended.is_set():
            start = time.monotonic()
            status = get(self.port, "/", connection=c, **key(f"k{random.randrange(100000)}")).status
            self.done.append((start, time.monotonic() - start, status))
            time.sleep(self.PAUSE)
        c.close()

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def took(self, begin, end, machine):
        """Of requests that began between: in order of time. Without those of a machine that stood still, if others are left."""
        between = [(start, took) for start, took, _ in self.done if begin <= start < end]
        calm = [(start, took) for start, took in between if machine.calm(start, start + took)]
        return sorted(took for _, took in (calm if 10 * len(calm) >= len(between) else between))


@pytest.mark.alone
@pytest.mark.xdist_group("overload")  # not beside that, nor beside each other
@pytest.mark.parametrize("fault", ["kill", "pause"])
@measured
def test_faults_under_load(redis_server, hosts, fault):
    server = redis_server()
    one, = hosts(server, 1, rules(strict(limit=5)), workers=2, deadline="20ms")
    with Lateness() as machine:
        load = Load(one.port)
        try:
            time.sleep(1)
            begin, before = time.monotonic(), len(load.done)
            getattr(server, fault)()
            time.sleep(2)
            wait_until(lambda: len(load.done) > before + 500, "requests to judge by")
            end = time.monotonic()
            (server.start if fault == "kill" else server.resume)()
            answers = time.monotonic()
            wait_until(lambda: one.status()["store"]["up"], "the return")
            returned = time.monotonic()
        finally:
            load.end()
            seen = {status for _, _, status in load.done}
            always(seen <= {200, 429}, seen)
    back = returned - answers - machine.still(answers, returned)
    took = load.took(begin, end, machine)
    p99 = took[len(took) * 99 // 100]
    print(f"{fault}: {len(took)} requests, p99 {p99 * 1000:.1f} ms, slowest {took[-1] * 1000:.1f} ms, back after {back:.2f} s")
    assert p99 < 0.02 + NOISE, p99
    assert back < 2, back
    store = one.status()["store"]
    assert store["failures"] and store["breaker_opened"] >= 1
    assert store["slow"] < 200  # while it is known to be away nobody waits for it
    news = f"{server.url()} "
    assert 1 <= one.errors().count(news + "unavailable: ") <= 3 and 1 <= one.errors().count(news + "available again") <= 3
    assert "a request passes undecided" not in one.errors()


def test_script_flush_under_load(redis_server, hosts):
    server = redis_server()
    two = hosts(server, 2, workers=2)
    flushed = threading.Event()

    def flush():
        while not flushed.wait(0.05):
            server.client().script_flush()
    thread = threading.Thread(target=flush)
    thread.start()
    try:
        names = [f"k{i}" for i in range(200)]
        passed = hammer([host.port for host in two], names, 8)
    finally:
        flushed.set()
        thread.join()
    assert {passed[name] for name in names} == {5}
    assert sum(host.status()["store"]["script_loads"] for host in two) > 2


def test_reloads_and_the_end_of_workers_keep_connections_in_order(redis_server, hosts):
    server = redis_server()
    one, = hosts(server, 1, rules(strict(limit=1000)), workers=2)
    stop = threading.Event()
    seen = collections.Counter()

    def client():
        while not stop.is_set():
            seen[get(one.port, "/", **key("a")).status] += 1
    thread = threading.Thread(target=client)
    thread.start()
    for _ in range(3):
        one.reload()
        time.sleep(0.2)
    stop.set()
    thread.join()
    assert set(seen) <= {200, 429}
    before = one.status()["store"]["requests"]
    assert before > 0
    wait_until(lambda: server.client().info("clients")["connected_clients"] <= 4, "the old workers' connections to end")


def test_something_else_in_the_counters_place(redis_server, hosts):
    server = redis_server()
    server.client().lpush("weir:five:a", "x")
    one, = hosts(server, 1, rules(strict(failure="closed")))
    assert get(one.port, "/", **key("a")).status == 503
    assert get(one.port, "/", **key("b")).status == 200
    assert one.rule("five")["failures"] == 1 and one.status()["store"]["up"]


class Impostor:
    """A server that answers what it likes: `talk(connection)` for each."""

    def __init__(self, talk):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}"
        self.talk, self.open = talk, []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                c = self.listener.accept()[0]
                self.open.append(c)
                threading.Thread(target=self._run, args=(c,), daemon=True).start()

    def _run(self, c):
        with contextlib.suppress(OSError):
            self.talk(c)

    def stop(self):
        end_sockets(self.listener, *self.open)


def drip(c):
    for byte in b"+OK\r\n" * 1000:
        c.send(bytes([byte]))
        time.sleep(0.2)


def each_time(answer):
    def talk(c):
        while c.recv(65536):
            c.sendall(answer)
    return talk


def repeat(answer):
    def talk(c):
        while True:
            c.sendall(answer)
    return talk


@pytest.mark.parametrize("kind, talk", tuple({
    "silence": lambda c: time.sleep(30),
    "closes": lambda c: c.close(),
    "one byte at a time": drip,
    "HTTP": each_time(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "garbage": repeat(b"\x00\xff\x80" * 1000),
    "LOADING": each_time(b"-LOADING Redis is loading the dataset in memory\r\n"),
    "numbers": each_time(b":1\r\n"),
    "endless array": each_time(b"*1000000000\r\n"),
    "endless text": repeat(b"$536870911\r\n" + b"x" * 60000),
}.items()))
@measured
def test_impostors(hosts, kind, talk):
    """Whatever answers: it counts as absence, and requests go on."""
    server = Impostor(talk)
    try:
        one, = hosts(server.url, 1, rules(strict(failure="open")), settings="connect_timeout=200ms", deadline="20ms")
        times = []
        for i in range(60):
            start = time.monotonic()
            status = get(one.port, "/", **key(f"k{i}")).status
            always(status == 200, status)
            times.append(time.monotonic() - start)
        assert sorted(times)[50] < 0.1, sorted(times)
        wait_until(lambda: get(one.port, "/", **key("k")) and not one.status()["store"]["up"], "the news")
        assert one.rule("five")["failures"] >= 60
    finally:
        server.stop()


@pytest.mark.parametrize("reason, talk", (
    ("disk", each_time(b"-MISCONF Redis is configured to save RDB snapshots\r\n")),
    ("clients", lambda c: c.sendall(b"-ERR max number of clients reached\r\n")),
))
def test_what_the_operator_can_mend_has_a_name(hosts, reason, talk):
    server = Impostor(talk)
    try:
        one, = hosts(server.url, 1, rules(strict(failure="open")), settings="connect_timeout=2s", deadline="500ms")
        name = f"WEIR_ESTORE{reason.upper()}"
        wait_until(lambda: get(one.port, "/", **key("k")) and one.status()["store"].get("why") == name, "the news")
        assert one.status()["store"]["failures"][reason] > 0
    finally:
        server.stop()


def test_http2_streams_that_are_reset(redis_server, hosts):
    """Their questions are on their way; the connection and the worker go on."""
    server = redis_server()
    one, = hosts(server, 1, listen="http2")
    server.pause()
    with socket.create_connection(("127.0.0.1", one.port), timeout=10) as s:
        c = h2.connection.H2Connection()
        c.initiate_connection()
        head = [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "x"), ("x-key", "a")]
        ids = [1 + 2 * i for i in range(20)]
        for i in ids:
            c.send_headers(i, head, end_stream=True)
        s.sendall(c.data_to_send())
        time.sleep(0.3)
        for i in ids[:15]:
            c.reset_stream(i)
        s.sendall(c.data_to_send())
        time.sleep(0.3)
        server.resume()
        answered = {}
        while len(answered) < 5:
            for event in c.receive_data(s.recv(65536)):
                if isinstance(event, h2.events.ResponseReceived):
                    answered[event.stream_id] = dict(event.headers)[b":status"]
    assert set(answered) == set(ids[15:])
    passed = list(answered.values()).count(b"200")
    # All twenty were asked for; those that were reset gave back what they took.
    wait_until(lambda: server.client().exists("weir:five:a") == (passed > 0), "what is left")
