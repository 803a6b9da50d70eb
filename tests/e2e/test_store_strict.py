"""Strict rules: several hosts, one limit, exactly; and a store that is away, slow or wrong takes nothing with it."""
import collections
import contextlib
import http.client
import json
import random
import re
import socket
import threading
import time

import h2.connection
import h2.events
import pytest

import rls
from clients import get, statuses, together
from gateway import free_port, wait_until
from redis_server import RedisServer
from resp import Client, RespGateway, fields
from served import Backend, Served, certificate

ALGORITHMS = {
    "token_bucket": "",
    "leaky_bucket": ", algorithm: leaky_bucket",
    "fixed_window": ", algorithm: fixed_window",
    "fixed_calendar": ", algorithm: fixed_window, window: 1d, timezone: Asia/Tokyo",
    "fixed_first": ", algorithm: fixed_window, align: first_request",
    "sliding_window_log": ", algorithm: sliding_window_log",
    "sliding_window_counter": ", algorithm: sliding_window_counter",
}


def strict(name="five", limit=5, more="", failure="local", window="1h"):
    window = "" if "window:" in more else f", window: {window}"
    return (f"  - {{ name: {name}, key: '${{header:x-key}}', limit: {limit}{window}, consistency: strict, "
            f"on_store_failure: {failure}{more} }}\n")


def rules(*lines):
    return "rules:\n" + "".join(lines or (strict(),))


@pytest.fixture
def redis_server():
    """Makes Redis servers; each is started, and removed at the end."""
    made = []

    def make(start=True, **more):
        one = RedisServer(**more)
        made.append(one)
        return one.start() if start else one
    yield make
    for one in made:
        one.remove()


@pytest.fixture
def hosts(gateway):
    """Gateways with segments of their own: as many hosts."""
    def make(store, count, text=None, settings="", deadline="3s", **more):
        url = store if isinstance(store, str) else store.url()
        http = f"weir_store {url} deadline={deadline} {settings};"  # long: this machine may be slow, Redis is not what is tested
        return [gateway(text or rules(), http=http, **more) for _ in range(count)]
    return make


def key(name):
    return {"headers": {"X-Key": name}}


def hammer(ports, keys, each, connections=12):
    """Every key is asked for `each` times, spread over the hosts at random: how often it passed."""
    jobs = [name for name in keys for _ in range(each)]
    random.shuffle(jobs)
    passed, others, lock = collections.Counter(), collections.Counter(), threading.Lock()

    def client():
        mine = {port: http.client.HTTPConnection("127.0.0.1", port, timeout=20) for port in ports}
        while True:
            with lock:
                if not jobs:
                    break
                name = jobs.pop()
            port = random.choice(ports)
            status = get(port, "/", connection=mine[port], **key(name)).status
            with lock:
                if status == 200:
                    passed[name] += 1
                elif status != 429:
                    others[status] += 1
        for each_one in mine.values():
            each_one.close()
    together([client] * connections)
    assert not others, others
    return passed


# ---- Many hosts, one limit ----

@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_three_hosts_share_one_limit_exactly(redis_server, hosts, algorithm):
    server = redis_server()
    three = hosts(server, 3, rules(strict(more=ALGORITHMS[algorithm])), workers=2)
    names = [f"k{i}" for i in range(200)]
    passed = hammer([host.port for host in three], names, 9)
    assert {passed[name] for name in names} == {5}, collections.Counter(passed.values())
    assert len(list(server.client().scan_iter("weir:five:*", count=1000))) == 200
    for host in three:
        assert host.status()["store"]["up"] and host.rule("five")["failures"] == 0


def test_two_served_hosts_share_one_limit(redis_server):
    server, backend = redis_server(), Backend()
    yaml = """
segment: { path: @FOLDER@/segment, size: 4MiB }
workers: 2
store: { url: "%s", prefix: shop, deadline: 500ms }
gateway: { listen: 127.0.0.1:@PORT@, upstreams: ["@BACKEND@"] }
metrics: 127.0.0.1:@METRICS@
%s""" % (server.url(), rules())
    two = [Served(yaml, backend).start() for _ in range(2)]
    try:
        assert f"shared with other hosts through {server.url()}" in two[0].said()
        seen = [two[i % 2].get("/", **key("a")).status for i in range(12)]
        assert seen == [200] * 5 + [429] * 7
        assert server.client().keys() == [b"shop:five:a"]
        metrics = get(two[0].metrics, "/metrics").body.decode()
        assert re.search(r"^weir_store_up 1$", metrics, re.M)
        assert int(re.search(r"^weir_store_questions_total (\d+)$", metrics, re.M)[1]) >= 3
        assert 'weir_store_failures_total{reason="slow"} 0' in metrics
    finally:
        for one in two:
            one.remove()
        backend.stop()


def test_denials_cost_the_store_nothing_after_the_first(redis_server, hosts):
    server = redis_server()
    one, = hosts(server, 1, workers=2)
    assert statuses(one.port, "/", 6, **key("a")) == [200] * 5 + [429]
    before = server.calls()
    assert set(statuses(one.port, "/", 100, **key("a"))) == {429}
    assert server.calls() == before
    assert statuses(one.port, "/", 1, **key("b")) == [200]
    assert server.calls() == before + 1


def test_several_rules_take_together_or_not_at_all(redis_server, hosts):
    text = rules(strict("wide", 10), strict("narrow", 3), "  - { name: here, key: '${header:x-key}', limit: 100, window: 1h }\n")
    server = redis_server()
    one, other = hosts(server, 2, text)
    assert [get(h.port, "/", **key("a")).status for h in (one, other, one, other, one)] == [200] * 3 + [429] * 2
    answer = get(one.port, "/", **key("a"))
    assert answer.status == 429 and 'by rule "narrow"' in one.errors()
    assert sum(host.rule("here")["allowed"] for host in (one, other)) == 3


def test_what_a_local_rule_denies_costs_the_store_nothing(redis_server, hosts):
    text = rules(strict("wide", 10), "  - { name: here, key: '${header:x-key}', limit: 2, window: 1h }\n")
    server = redis_server()
    one, = hosts(server, 1, text)
    assert statuses(one.port, "/", 2, **key("a")) == [200] * 2
    before = server.calls()
    assert set(statuses(one.port, "/", 20, **key("a"))) == {429}
    assert server.calls() == before


def test_clients_that_leave_take_nothing(redis_server, hosts):
    """Their question is on its way: what it takes is given back."""
    server = redis_server()
    one, = hosts(server, 1)
    assert get(one.port, "/", **key("warm")).status == 200
    server.pause()
    waiting = [http.client.HTTPConnection("127.0.0.1", one.port) for _ in range(5)]
    for c in waiting:
        c.request("GET", "/", headers={"X-Key": "a"})
    time.sleep(0.3)
    for c in waiting:
        c.close()
    time.sleep(0.3)
    server.resume()
    wait_until(lambda: one.status()["store"]["gave_back"] >= 5, "what they took to be back")
    assert statuses(one.port, "/", 6, **key("a")) == [200] * 5 + [429]


def test_error_pages_and_redirects_ask_once(redis_server, hosts):
    server = redis_server()
    one, = hosts(server, 1, server="location /fails { proxy_pass http://@BACKEND@; proxy_intercept_errors on; error_page 500 /page.txt; }"
                 "location = /page.txt { root @FOLDER@/html; }")
    assert statuses(one.port, "/fails", 6, **key("a")) == [500] * 5 + [429]
    assert one.status()["store"]["questions"] == 6


def test_the_phase_after_authentication(redis_server, hosts):
    server = redis_server()
    one, two = hosts(server, 2, server="weir_phase precontent;")
    assert [get(h.port, "/", **key("a")).status for h in (one, two) * 3] == [200] * 5 + [429]


def test_who_leaves_while_delayed_gives_its_place_back(redis_server, hosts):
    text = rules(strict("slow", 10, ", algorithm: leaky_bucket, on_limit: delay, burst: 5", window="10s"))
    one, two = hosts(redis_server(), 2, text)
    start = time.monotonic()
    assert get(one.port, "/", **key("a")).status == 200
    leaver = http.client.HTTPConnection("127.0.0.1", one.port)
    leaver.request("GET", "/", headers={"X-Key": "a"})
    time.sleep(0.2)
    leaver.close()
    time.sleep(0.2)
    assert get(two.port, "/", **key("a")).status == 200
    assert 0.8 < time.monotonic() - start < 1.7


def test_delays_come_from_the_store_too(redis_server, hosts):
    text = rules(strict("slow", 10, ", algorithm: leaky_bucket, on_limit: delay, burst: 3, max_delay: 2s", window="1s"))
    one, = hosts(redis_server(), 1, text)
    start = time.monotonic()
    assert set(statuses(one.port, "/", 4, **key("a"))) <= {200, 429}
    assert time.monotonic() - start > 0.15


# ---- How to reach it ----

def test_a_password_tls_and_client_certificates(redis_server, hosts, tmp_path):
    tmp_path.chmod(0o755)
    own = certificate(tmp_path)
    server = redis_server(password="s3cret:pass/word", tls=own, ca=own[0])
    secret = tmp_path / "password"
    secret.write_text("s3cret:pass/word\n")
    more = f"ca={own[0]} certificate={own[0]} key={own[1]} password_file={secret}"
    one, two = hosts(server.url(host="localhost"), 2, settings=more)
    assert [get(h.port, "/", **key("a")).status for h in (one, two) * 3] == [200] * 5 + [429]
    shown = one.status()["store"]
    assert "s3cret" not in json.dumps(shown) and shown["up"]
    # by its address
    three, = hosts(server.url(), 1, settings=more)
    assert get(three.port, "/", **key("a")).status == 429


def test_certificates_that_are_not_good_are_not_talked_to(redis_server, hosts, tmp_path):
    tmp_path.chmod(0o755)
    server = redis_server(tls=certificate(tmp_path))
    other = certificate(tmp_path, "other")
    wrong, = hosts(server.url(), 1, settings=f"ca={other[0]}", text=rules(strict(failure="closed")), deadline="100ms")
    assert statuses(wrong.port, "/", 6, **key("a")) == [429] * 6
    wait_until(lambda: "is away" in wrong.errors(), "the news")
    assert "the certificate of 127.0.0.1 is not good" in wrong.errors()
    named, = hosts(server.url(), 1, settings=f"ca={server.tls[0]} server_name=elsewhere", text=rules(strict(failure="closed")), deadline="100ms")
    assert statuses(named.port, "/", 6, **key("a")) == [429] * 6
    wait_until(lambda: "the certificate is not for elsewhere" in named.errors(), "the news")
    loose, = hosts(server.url(), 1, settings="verify=off")
    assert get(loose.port, "/", **key("a")).status == 200 and loose.status()["store"]["up"]


def test_a_socket_and_names(redis_server, hosts):
    server = redis_server(socket=True)
    one, = hosts(f"redis+unix://{server.path}", 1)
    two, = hosts(server.url(host="localhost"), 1)
    three, = hosts(server.url() + "?prefix=other", 1)
    four, = hosts(server.url(), 1, settings="hash_keys=true")
    assert [get(h.port, "/", **key("a")).status for h in (one, two) * 3] == [200] * 5 + [429]
    assert get(three.port, "/", **key("a")).status == 200
    assert get(four.port, "/", **key("a")).status == 200
    names = {name.decode() for name in server.client().keys()}
    assert len(names) == 3 and names >= {"weir:five:a", "other:five:a"} and any(name.startswith("weir:five:~") for name in names)


def test_a_name_that_does_not_exist_holds_nobody_up(hosts):
    one, = hosts("redis://no-such-host.invalid:6379", 1, deadline="20ms")
    start = time.monotonic()
    assert statuses(one.port, "/", 6, **key("a")) == [200] * 5 + [429]
    assert time.monotonic() - start < 1
    wait_until(lambda: "is away" in one.errors(), "the news", 15)


@pytest.mark.parametrize("url, said", [
    ("redis://", "weir_store"),
    ("http://127.0.0.1", "weir_store"),
    ("redis://127.0.0.1:99999", "weir_store"),
    ("redis://127.0.0.1 deadline=soon", "deadline"),
    ("redis://127.0.0.1 nonsense=1", "nonsense"),
    ("redis://127.0.0.1 nonsense", "use name=value"),
    ("redis://127.0.0.1 consistency=often", "local, eventual, strict"),
    ("redis://127.0.0.1 password_file=/nowhere", "password_file"),
    ("rediss://127.0.0.1 ca=/nowhere.pem", "nowhere.pem"),
    ("redis://:s3cret@127.0.0.1:port", "weir_store"),
])
def test_what_is_wrong_is_told_with_its_place(gateway, url, said):
    one = gateway(rules(), http=f"weir_store {url};", start=False)
    good, words = one.test()
    assert not good and said in words and re.search(r"nginx\.conf:\d+", words), words
    assert "s3cret" not in words


@pytest.mark.parametrize("store, place", [
    ("store: http://x", "3:8"), ("store: { deadline: 1s }", "3:8"), ("store: { url: 'redis://x', deadline: soon }", "3:38"),
    ("store: { url: 'redis://x', dead: 1s }", "3:28"), ("store: { url: 'redis://x', consistency: often }", "3:41"),
    ("store: { url: 'redis://x', password: a, password_file: b }", "3:56"), ("store: [redis://x]", "3:8"),
])
def test_weir_yaml_tells_the_place(store, place):
    one = Served("gateway: { listen: 127.0.0.1:@PORT@, upstreams: ['http://127.0.0.1:1'] }\nrules: []\n" + store + "\n")
    try:
        done = one.run("--check")
        assert done.returncode == 1 and f"weir.yaml:{place}: error:" in done.stderr, done.stderr
    finally:
        one.remove()


# ---- A store that is away ----

POLICIES = {"open": [200] * 9, "closed": [429] * 9, "local": [200] * 5 + [429] * 4}


@pytest.mark.parametrize("failure", POLICIES)
def test_start_without_redis_and_its_coming(redis_server, hosts, failure):
    server = redis_server(start=False)
    one, = hosts(server, 1, rules(strict(failure=failure)), settings="retry_max=500ms", deadline="200ms")
    assert statuses(one.port, "/", 9, **key("a")) == POLICIES[failure]
    wait_until(lambda: "is away" in one.errors(), "the news")
    assert not one.status()["store"]["up"]
    server.start()
    wait_until(lambda: get(one.port, "/", **key("c")) and one.status()["store"]["up"], "the return", 2)
    assert statuses(one.port, "/", 6, **key("b")) == [200] * 5 + [429]
    assert b"weir:five:b" in server.client().keys()
    assert one.errors().count(f"{server.url()} is away") == 1 and one.errors().count(f"{server.url()} is back") == 1


class Load:
    """Clients that ask all the time: when each request began, how long it took, and its status."""

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
        c.close()

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def took(self, begin, end):
        """Of requests that began between: in order of time."""
        return sorted(took for start, took, _ in self.done if begin <= start < end)


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_faults_under_load(redis_server, hosts, fault):
    server = redis_server()
    one, = hosts(server, 1, rules(strict(limit=5)), workers=2, deadline="20ms")
    load = Load(one.port)
    try:
        time.sleep(1)
        begin = time.monotonic()
        getattr(server, fault)()
        time.sleep(2)
        end = time.monotonic()
        (server.start if fault == "kill" else server.resume)()
        answers = time.monotonic()
        wait_until(lambda: one.status()["store"]["up"], "the return", 2)
        back = time.monotonic() - answers
    finally:
        load.end()
    took = load.took(begin, end)
    p99 = took[len(took) * 99 // 100]
    print(f"{fault}: {len(took)} requests, p99 {p99 * 1000:.1f} ms, slowest {took[-1] * 1000:.1f} ms, back after {back:.2f} s")
    assert {status for _, _, status in load.done} <= {200, 429}
    assert p99 < 0.05, p99  # the deadline of 20 ms, and what this machine and these clients add
    store = one.status()["store"]
    assert store["failures"] and store["breaker_opened"] >= 1
    assert store["slow"] < 200  # while it is known to be away nobody waits for it
    news = f"{server.url()} is "
    assert 1 <= one.errors().count(news + "away") <= 3 and 1 <= one.errors().count(news + "back") <= 3
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
    before = one.status()["store"]["questions"]
    assert before > 0
    wait_until(lambda: server.client().info("clients")["connected_clients"] <= 4, "the old workers' connections to end")


def test_something_else_in_the_counters_place(redis_server, hosts):
    server = redis_server()
    server.client().lpush("weir:five:a", "x")
    one, = hosts(server, 1, rules(strict(failure="closed")))
    assert get(one.port, "/", **key("a")).status == 429
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
        self.listener.close()
        for c in self.open:
            c.close()


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
def test_impostors(hosts, kind, talk):
    """Whatever answers: it counts as absence, and requests go on."""
    server = Impostor(talk)
    try:
        one, = hosts(server.url, 1, rules(strict(failure="open")), settings="connect_timeout=200ms", deadline="20ms")
        times = []
        for i in range(60):
            start = time.monotonic()
            assert get(one.port, "/", **key(f"k{i}")).status == 200
            times.append(time.monotonic() - start)
        assert sorted(times)[50] < 0.1, sorted(times)
        wait_until(lambda: get(one.port, "/", **key("k")) and not one.status()["store"]["up"], "the news")
        assert one.rule("five")["failures"] >= 60
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


# ---- The other doors ----

DOORS = """
    location /v1/ { weir off; weir_api; weir_api_operator on; }
    location = /v1/auth { weir off; weir_auth; }
    location /asks { auth_request /sub; proxy_pass http://@BACKEND@; weir off; }
    location = /sub { internal; weir_auth; weir_auth_status 403; }
"""


def post(port, path, body):
    answer = get(port, path, method="POST", body=json.dumps(body))
    return answer.status, json.loads(answer.body)


def test_forward_auth(redis_server, hosts):
    server = redis_server()
    one, two = hosts(server, 2, server=DOORS)
    asked = {"headers": {"X-Key": "a", "X-Forwarded-Uri": "/x"}}
    assert [get(h.port, "/v1/auth", **asked).status for h in (one, two) * 3] == [200] * 5 + [429]
    assert get(one.port, "/", **key("a")).status == 429
    # nginx's own auth_request asks with a subrequest.
    asked = {"headers": {"X-Key": "b", "X-Original-URI": "/x"}}
    assert [get(h.port, "/asks", **asked).status for h in (one, two) * 3] == [200] * 5 + [403]


def test_the_api(redis_server, hosts):
    server = redis_server()
    one, two = hosts(server, 2, server=DOORS)
    item = {"attributes": {"headers": {"x-key": "a"}, "path": "/x"}}
    assert [post(h.port, "/v1/check", item)[1]["allowed"] for h in (one, two) * 3] == [True] * 5 + [False]
    # A batch asks once for all of its items.
    names = [f"b{i % 50}" for i in range(500)]
    before = server.calls()
    status, body = post(one.port, "/v1/check", {"batch": [{"attributes": {"headers": {"x-key": n}, "path": "/x"}} for n in names]})
    assert status == 200 and server.calls() - before <= 10
    allowed = collections.Counter(n for n, result in zip(names, body["results"]) if result["allowed"])
    assert set(allowed.values()) == {5} and len(allowed) == 50
    # Giving back, on the other host.
    assert post(two.port, "/v1/refund", {**item, "cost": 2})[0] == 200
    other = {"attributes": {"headers": {"x-key": "c"}, "path": "/x"}}
    assert post(one.port, "/v1/check", {**other, "cost": 5})[1]["allowed"]
    assert post(one.port, "/v1/refund", {**other, "cost": 3})[0] == 200
    assert [post(two.port, "/v1/check", other)[1]["allowed"] for _ in range(4)] == [True] * 3 + [False]


def test_reservations(redis_server, hosts):
    one, two = hosts(redis_server(), 2, server=DOORS)
    item = {"attributes": {"headers": {"x-key": "a"}, "path": "/x"}, "cost": 4}
    status, made = post(one.port, "/v1/reserve", item)
    assert status == 200 and made["allowed"] and made["ticket"]
    assert not post(two.port, "/v1/reserve", item)[1]["allowed"]


def test_reservations_are_settled_in_the_store(redis_server, hosts):
    server = redis_server()
    one, two = hosts(server, 2, server=DOORS)

    def item(name, **more):
        return {"attributes": {"headers": {"x-key": name}, "path": "/x"}, **more}

    def left(name):
        return post(two.port, "/v1/check", item(name, dry_run=True))[1]["remaining"] + 1  # what a look would leave, and itself

    for settle, cost, remains in (("commit", {"cost": 1}, 4), ("cancel", {}, 5), ("commit", {"cost": 5}, 0)):
        name = f"{settle}{remains}"
        ticket = post(one.port, "/v1/reserve", item(name, cost=4))[1]["ticket"]
        status, body = post(one.port, f"/v1/{settle}", {"ticket": ticket, **cost})
        assert status == 200 and body["rules"][0]["remaining"] == remains, body
        assert remains == 0 or left(name) == remains
        # A second time it changes nothing.
        assert post(one.port, f"/v1/{settle}", {"ticket": ticket, **cost})[0] == 409
        assert remains == 0 or left(name) == remains
    # What nobody settles comes back.
    assert post(one.port, "/v1/reserve", item("late", cost=4, expires_s=1))[1]["ticket"]
    assert left("late") == 1
    wait_until(lambda: left("late") == 5, "the estimate's return", 5)


@pytest.mark.parametrize("algorithm", ["token_bucket", "fixed_window", "fixed_first", "sliding_window_log"])
def test_what_has_come_back_by_itself_is_not_given_back_once_more(redis_server, hosts, algorithm):
    one, = hosts(redis_server(), 1, rules(strict(limit=10, window="1s", more=ALGORITHMS[algorithm])), server=DOORS,
                 deadline="200ms")
    item = {"attributes": {"headers": {"x-key": "a"}, "path": "/x"}, "cost": 10}
    ticket = post(one.port, "/v1/reserve", item)[1]["ticket"]
    passed, cancelled, began = 0, False, None
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        allowed = post(one.port, "/v1/check", item)[1]["allowed"]
        if allowed and not cancelled:  # the estimate is back, and used by another
            assert post(one.port, "/v1/cancel", {"ticket": ticket})[0] == 200
            cancelled, began = True, time.monotonic()
        elif allowed:
            passed += 1
        if cancelled and time.monotonic() - began > 0.5:
            break
    assert cancelled and passed == 0


def test_operators_see_and_reset_what_all_hosts_took(redis_server, hosts):
    server = redis_server()
    one, two = hosts(server, 2, server=DOORS, settings="breaker_failures=1")
    assert statuses(one.port, "/", 3, **key("a")) == [200] * 3
    state = json.loads(get(two.port, "/v1/keys/five/a").body)
    assert state["remaining"] == 2 and state["limit"] == 5, state
    assert statuses(two.port, "/", 3, **key("a")) == [200] * 2 + [429]
    assert get(two.port, "/v1/keys/five/a", method="DELETE").status == 200
    assert statuses(two.port, "/", 1, **key("a")) == [200]
    assert json.loads(get(one.port, "/v1/keys/five/a").body)["remaining"] == 4
    server.kill()
    assert get(one.port, "/v1/keys/five/a").status == 503
    assert get(one.port, "/v1/keys/five/a", method="DELETE").status == 503


def test_resp_reset(redis_server, gateway):
    server = redis_server()
    store = f"weir_store {server.url()} deadline=1s;"
    one = gateway(rules(), kind=RespGateway, http=store, outside=store, stream="weir_resp_operator_password s3cret;")
    with Client(one.resp) as c:
        assert c.do("AUTH", "s3cret") == "OK"
        check = ("WEIR.CHECK", "COST", "5", "header:x-key", "a")
        replies = c.pipeline([check, check, ("WEIR.RESET", "five", "a"), check, ("WEIR.RESET", "cl.throttle", "x"), ("WEIR.RESET", "no", "x")])
        assert [fields(replies[i])["decision"] for i in (0, 1, 3)] == [b"allow", b"deny", b"allow"]
        assert replies[2] == "OK" and replies[4] == "OK" and "ENORULE" in str(replies[5])


def test_grpc_and_json(redis_server, hosts):
    text = "domain: d\ndescriptors:\n  - { key: five, rate_limit: { unit: day, requests_per_unit: 5 } }\n"
    server = redis_server()
    one, two = hosts(server, 2, text, server=rls.LOCATIONS, listen="http2", settings="consistency=strict")
    with rls.client(one.port) as a, rls.client(two.port) as b:
        codes = [each.ask("five=x").overall_code for each in (a, b) * 4]
    assert codes == [rls.OK] * 5 + [rls.OVER] * 3
    three, = hosts(server, 1, text, server=rls.LOCATIONS, settings="consistency=strict")
    body = {"domain": "d", "descriptors": [{"entries": [{"key": "five", "value": "x"}]}]}
    assert post(three.port, "/json", body)[0] == 429
    body["descriptors"][0]["entries"][0]["value"] = "y"
    assert [post(three.port, "/json", body)[0] for _ in range(6)] == [200] * 5 + [429]


def test_grpc_calls_at_once(redis_server, hosts):
    text = "domain: d\ndescriptors:\n  - { key: five, rate_limit: { unit: day, requests_per_unit: 5 } }\n"
    server = redis_server()
    one, = hosts(server, 1, text, server=rls.LOCATIONS, listen="http2", settings="consistency=strict")
    with rls.client(one.port) as c:
        c.ask("five=warm")
        before = server.calls()
        calls = [c.should.future(rls.request(f"five=k{i % 100}"), timeout=10) for i in range(1000)]
        codes = collections.Counter(call.result().overall_code for call in calls)
    assert codes[rls.OK] == 500 and codes[rls.OVER] == 500
    assert server.calls() - before < 450  # they share commands: 500 pass, and each of them asks


def test_resp_pipelines_keep_their_order(redis_server, gateway):
    server = redis_server()
    store = f"weir_store {server.url()} deadline=1s;"
    one, two = (gateway(rules(), kind=RespGateway, http=store, outside=store) for _ in range(2))
    check = ("WEIR.CHECK", "header:x-key", "a")
    with Client(one.resp) as a, Client(two.resp) as b:
        assert [fields(c.do(*check))["decision"] for c in (a, b) * 3] == [b"allow"] * 5 + [b"deny"]
        before = server.calls()
        replies = a.pipeline([("PING",), ("WEIR.CHECK", "header:x-key", "b"), ("CL.THROTTLE", "t", "1", "1", "60"),
                              ("WEIR.CHECK", "odd"), ("WEIR.CHECK", "COST", "3", "header:x-key", "b"),
                              ("WEIR.PEEK", "header:x-key", "b"), ("ECHO", "x"), ("WEIR.CHECK", "COST", "2", "header:x-key", "b")])
        assert replies[0] == "PONG" and replies[2][0] == 0 and replies[6] == b"x"
        assert "pairs" in str(replies[3]) or "arguments" in str(replies[3])
        told = [fields(replies[i]) for i in (1, 4, 5, 7)]
        assert [each["decision"] for each in told] == [b"allow", b"allow", b"allow", b"deny"]
        assert [each["remaining"] for each in told] == [4, 1, 0, 1]  # a look says what would be left
        assert server.calls() - before == 2
        a.send(b'WEIR.CHECK header:x-key "c c"\r\nPING\r\n')
        assert fields(a.reply())["decision"] == b"allow" and a.reply() == "PONG"
        many = a.pipeline([("WEIR.CHECK", "header:x-key", f"m{i % 100}") for i in range(1000)])
        passed = collections.Counter(i % 100 for i, reply in enumerate(many) if fields(reply)["decision"] == b"allow")
        assert set(passed.values()) == {5} and len(passed) == 100
    assert b"weir:five:c%20c" in server.client().keys()


def test_without_strict_rules_nothing_is_asked(redis_server, hosts):
    server = redis_server()
    one, = hosts(server, 1, "rules:\n  - { name: five, key: '${header:x-key}', limit: 5, window: 1h }\n")
    assert statuses(one.port, "/", 6, **key("a")) == [200] * 5 + [429]
    assert one.status()["store"]["questions"] == 0
    plain, = hosts(f"redis://127.0.0.1:{free_port()}", 1, rules(strict()), settings="consistency=strict")
    assert statuses(plain.port, "/", 6, **key("a")) == [200] * 5 + [429]
