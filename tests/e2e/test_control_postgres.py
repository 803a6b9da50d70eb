"""The control plane on a real PostgreSQL: published, restarted in mid-write, hanging, gone and back, restored, shared."""
import concurrent.futures
import contextlib
import json
import signal
import socket
import threading
import time

import pytest

from controlled import (ADMIN, HEAD, RULES, Host, killed_while_publishing, limit_of, published_is_complete, restored_from_an_old_copy,
                        rule, weir)
from gateway import wait_until
from postgres_server import MISSING, PostgresServer


@pytest.fixture(scope="module")
def server():
    made = PostgresServer()
    if made.code == MISSING:
        pytest.skip("PostgreSQL is not installed")
    assert made.code == 0
    yield made
    made.remove()


@pytest.fixture
def host(backend, server):
    """Makes hosts on a database of this test's own."""
    made, database = [], server.make()

    def make(rules=RULES, url=None):
        yaml = HEAD + ADMIN + f"rules_db: \"{url or server.url(database)}\"\n" + rules
        made.append(Host(yaml, backend))
        return made[-1]

    make.database = database
    yield make
    if not server.pid():
        server.start()
    server.signal(signal.SIGCONT)
    for one in made:
        one.remove()


class Cutter:
    """A relay to the server on a port of its own, which cuts as many connections that begin a transaction as `cuts` says."""

    def __init__(self, server):
        self.server, self.cuts = server, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                client, there = self.listener.accept()[0], socket.socket(socket.AF_UNIX)
                there.connect(str(self.server.folder / ".s.PGSQL.5432"))
                for pair in ((client, there), (there, client)):
                    threading.Thread(target=self.carry, args=pair, daemon=True).start()

    def carry(self, source, to):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.cuts and b"BEGIN\0" in data:
                    self.cuts -= 1
                    break
                to.sendall(data)
        for end in (source, to):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def decides(one):
    assert one.get("/two").status in (200, 429)


def test_imported_published_and_enforced(host, server):
    one = host().begin()
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    assert one.request("GET", "/v1/rules/two")[1]["reason"] == "imported"
    assert one.publish("five", 1) == 200
    wait_until(lambda: [one.get("/five").status for _ in range(4)] == [429] * 4, "the rule on both workers")
    assert server.sql("SELECT max(revision), count(*) FROM revisions", host.database) == "2|2"
    assert "five" in weir("rules", "list", "--db", server.url(host.database)).stdout
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    one.start()
    one.wait_for_admin()
    assert one.get("/five").status == 429 and one.request("GET", "/v1/rules/five")[1]["enforced_version"] == 1


def test_what_one_host_publishes_another_enforces(host):
    one = host().begin()
    two = host(rules="")
    two.start()
    assert two.get("/two").status == 200  # known from the first request on
    two.wait_for_admin()
    two.token = one.token
    assert [two.get("/two").status for _ in range(2)] == [200, 429]
    assert two.publish("here", 1) == 200
    wait_until(lambda: [one.get("/here").status for _ in range(3)][2] == 429, "what the other published")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # both at once: one after the other, and each is kept
        reply = list(pool.map(lambda at: [(at[0].publish(f"{at[1]}{n}", 1)) for n in range(8)], [(one, "a"), (two, "b")]))
    assert reply == [[200] * 8] * 2
    revisions = [item["revision"] for item in one.request("GET", "/v1/revisions")[1]["items"]]
    assert revisions == list(range(18, 0, -1))
    names = {item["name"] for item in one.request("GET", "/v1/rules?stage=enforced")[1]["items"]}
    assert names == {"two", "here"} | {f"{at}{n}" for at in "ab" for n in range(8)}
    for at in (one, two):
        wait_until(lambda: all(f"name: \"{name}\"" in at.published().replace('"name": ', "name: ") for name in names - {"two"}),
                   "all of them in force", 6)


def test_the_server_restarted_in_mid_write(host, server):
    one = host().begin()
    acknowledged, reply, ended = {}, [], threading.Event()

    def write(lane):
        for number in range(100000):
            if ended.is_set():
                return
            name = f"w{lane}x{number}"
            status, body, _ = one.request("POST", "/v1/rules", rule(name, 7))
            reply.append(status)
            assert status in (201, 503), body
            if status != 201:
                continue
            acknowledged[name] = "draft"
            status, body, _ = one.request("POST", f"/v1/rules/{name}/publish", '{"stage": "enforced"}')
            assert status in (200, 503), body
            if status == 200:
                acknowledged[name] = "enforced"

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        lanes = [pool.submit(write, lane) for lane in range(2)]
        for turn in range(4):
            time.sleep(0.4)
            (server.crash if turn % 2 else server.stop)()
            decides(one)
            server.start()
        time.sleep(1)
        ended.set()
        for lane in lanes:
            lane.result()
    assert reply.count(201) > 4 and reply.count(503) > 0, reply
    wait_until(lambda: one.request("GET", "/v1/rules")[0] == 200, "the database")
    kept = {item["name"]: item for item in one.request("GET", "/v1/rules?limit=10000")[1]["items"]}
    for name, stage in acknowledged.items():
        assert name in kept and (stage == "draft" or kept[name]["enforced_version"] == 1), (name, stage)
    published_is_complete(one)
    # Nothing half-published: what the documents say is what the newest revision says.
    assert server.sql("SELECT count(*) FROM documents WHERE enforced_version IS NOT NULL", host.database) == \
        server.sql("SELECT rules FROM revisions ORDER BY revision DESC LIMIT 1", host.database)


def test_the_server_stops_and_restarts(host, server):
    one = host().begin()
    assert one.publish("one", 1) == 200
    wait_until(lambda: one.get("/one").status == 429, "what was published")
    server.crash()
    status, reply, headers = one.request("POST", "/v1/rules", rule("late", 1))
    assert status == 503 and reply["error"]["code"] == "database_gone" and headers["Retry-After"], reply
    decides(one)
    wait_until(lambda: not one.request_json("GET", "/healthz")["database"], "that it is known")
    one.wait_for_new_agent(one.kill_agent())
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    one.start()
    assert one.get("/one").status == 429 and one.request("GET", "/v1/rules")[0] in (0, 503)
    server.start()
    wait_until(lambda: one.request("GET", "/v1/rules/one")[0] == 200, "the database again, without a restart")
    assert one.publish("late", 1) == 200
    wait_until(lambda: one.get("/late").status == 429, "what was published then")


def test_a_connection_breaks_when_a_transaction_begins(host, server):
    """The transaction begins on a new connection. If that one breaks, too, nothing is written outside of a transaction."""
    cutter = Cutter(server)
    with contextlib.closing(cutter.listener):
        one = host(url=f"postgresql://weir@127.0.0.1:{cutter.port}/{host.database}").begin()
        cutter.cuts = 1
        assert one.request("POST", "/v1/rules", rule("again", 1))[0] == 201
        assert cutter.cuts == 0
        cutter.cuts = 2
        status, reply, _ = one.request("POST", "/v1/rules", rule("late", 1))
        assert status == 503 and reply["error"]["code"] == "database_gone", reply
        assert cutter.cuts == 0
        assert server.sql("SELECT name FROM documents ORDER BY name", host.database).split() == ["again", "two"]
        wait_until(lambda: one.request("POST", "/v1/rules", rule("late", 1))[0] == 201, "a transaction again")


def test_the_agent_killed_while_it_publishes(host):
    killed_while_publishing(host().begin())


def test_the_first_start_without_the_server(host, server):
    server.stop()
    one = host()
    one.start()
    one.wait_for_log("are active until the rules service has some")
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    agent = one.wait_for_agent()
    server.start()
    one.wait_for_log("the rules database is available again", seconds=15)
    assert server.sql("SELECT count(*) FROM revisions", host.database) == "0"  # nothing is imported unasked
    weir("rules", "import", "--reason", "first", "--file", "weir.yaml", cwd=one.folder)
    one.wait_for_log("revision 1 of the rules is active", seconds=15)
    assert one.agent_pid() == agent and one.get("/two").status == 429
    assert server.sql("SELECT reason, rules FROM revisions", host.database) == "first|1"
    assert "published revision 1" in one.published()


def test_the_server_hangs(host, server):
    """It accepts connections and never replies. Requests that do not need it do not wait."""
    one = host().begin()
    took = []

    def request(path):
        begin = time.monotonic()
        status, reply, headers = one.request("GET", path)
        took.append(time.monotonic() - begin)
        return status, reply, headers.get("Retry-After")

    server.signal(signal.SIGSTOP)
    try:
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            waiting = [pool.submit(request, "/v1/rules") for _ in range(20)]
            others = []
            for _ in range(20):
                begin = time.monotonic()
                assert one.request("GET", "/healthz")[0] == 200 and one.request("GET", "/v1/openapi.json")[0] == 200
                others.append(time.monotonic() - begin)
                time.sleep(0.05)
            assert sorted(others)[15] < 1, others  # a busy machine stands still at times; who waits for the database always would
            for one_of_them in waiting:
                status, reply, again = one_of_them.result()
                assert status == 503 and reply["error"]["code"] in ("busy", "database_gone") and again == "1", reply
        assert max(took) < 25, took
        wait_until(lambda: not one.request_json("GET", "/healthz")["database"], "that it is known")
        del took[:]
        for _ in range(6):  # from now on most of them need not wait at all
            assert request("/v1/rules")[0] == 503
        assert sorted(took)[2] < 1, took
        decides(one)
        assert one.get("/two").status in (200, 429)
    finally:
        server.signal(signal.SIGCONT)
    wait_until(lambda: one.request("GET", "/v1/rules")[0] == 200, "the database again")

    def published():
        with contextlib.suppress(AssertionError):  # 503 is a good answer while it has much to make up for
            return one.publish("after", 1) == 200
    wait_until(published, "a publication again")


def test_the_database_restored_from_an_old_copy(host, server):
    one = host().begin()
    copy = server.dump(host.database)
    assert one.publish("two", 3) == 200 and one.publish("late", 1) == 200
    server.restore(host.database, copy)
    restored_from_an_old_copy(one)


def test_many_rules_are_one_publication(host, server):
    """All or nothing, as one revision; and weir rules apply does it so."""
    one = host().begin()
    file = one.folder / "many.yaml"
    rules = "".join(f"  - {{ name: m{n}, match: {{ path: /m{n} }}, limit: 1, window: 1h }}\n" for n in range(100))
    file.write_text("identity: { user: header:X-User }\nrules:\n" + rules)
    url = ["--url", f"http://127.0.0.1:{one.admin}", "--token-file", str(one.folder / "token")]
    (one.folder / "token").write_text(one.token)
    reply = json.loads(weir("rules", "apply", "--json", "--publish", "enforced", "--prune", *url, str(file)).stdout)
    assert reply["ok"] and reply["revision"] == 2, reply
    assert server.sql("SELECT count(*), max(rules) FROM revisions", host.database) == "2|100"
    wait_until(lambda: [one.get("/m99").status for _ in range(3)][2] == 429, "the last of them")
    assert one.get("/two").status == 200 and one.request("GET", "/v1/rules/two")[0] == 404
    assert limit_of(one, "m5") == 1
