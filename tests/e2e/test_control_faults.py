"""The control plane when things go wrong: its database locked, gone, full, restored from an old copy, not there yet; its
agent killed; hostile clients. test_control_postgres.py has the same for PostgreSQL."""
import concurrent.futures
import contextlib
import http.client
import os
import pathlib
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time

import pytest

from clients import raw
from controlled import ADMIN, HEAD, RULES, killed_while_publishing, restored_from_an_old_copy, rule, weir
from gateway import wait_until


def test_the_database_locked(host):
    one = host().begin()
    with contextlib.closing(sqlite3.connect(one.folder / "state" / "rules.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        status, reply, _ = one.request("POST", "/v1/rules", rule("late", 1))
        assert status == 503 and reply["error"]["code"] == "database_busy", reply
        assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
        other.execute("ROLLBACK")
    assert one.publish("late", 1) == 200


def test_the_database_gone(host):
    one = host().begin()
    before = one.published()
    for file in (one.folder / "state").glob("rules.db*"):
        file.rename(one.folder / f"away-{file.name}")
    status, reply, _ = one.request("GET", "/v1/rules")
    assert status == 503, reply
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    first = one.kill_agent()
    one.wait_for_log("; restarting in")
    one.wait_for_new_agent(first)
    assert one.request_json("GET", "/healthz")["database"] is False
    assert one.published() == before and one.get("/two").status == 429
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    one.start()
    assert one.get("/two").status == 429 and one.published() == before
    one.wait_for_log("warning: rules service: the rules database: ")
    for file in one.folder.glob("away-*"):
        file.rename(one.folder / "state" / file.name[5:])
    wait_until(lambda: one.request("GET", "/v1/rules/two")[0] == 200, "the database again")
    one.wait_for_log("weir: rules service: the rules database is available again")
    assert one.log_text().count("warning: rules service: the rules database: ") == 1, one.log_text()


def give_to_agent(one, path):
    """As the log asks root to do: what root puts into the agent's folder while it runs is not handed over."""
    state = (one.folder / "state").stat()
    os.chown(path, state.st_uid, state.st_gid)
    return path


def test_the_database_restored_from_an_old_copy(host):
    """The published rules stay, and nothing is published over them by accident."""
    one = host().begin()
    file, copy = one.folder / "state" / "rules.db", one.folder / "copy.db"
    with contextlib.closing(sqlite3.connect(file)) as database, contextlib.closing(sqlite3.connect(copy)) as kept:
        database.backup(kept)
    assert one.publish("two", 3) == 200 and one.publish("late", 1) == 200
    for old in (one.folder / "state").glob("rules.db*"):
        old.unlink()
    give_to_agent(one, copy).rename(file)
    restored_from_an_old_copy(one)


@pytest.fixture
def small_disk():
    """A folder with room for a MiB, which workers of another user can read."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-small-"))
    folder.chmod(0o755)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "weir-test", folder], capture_output=True)
    if mounted.returncode:
        folder.rmdir()
        pytest.skip("no right to mount")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
    folder.rmdir()


def test_the_disk_is_full(host, small_disk):
    """Clear errors, nothing lost that was acknowledged, and all goes on when there is room."""
    one = host(HEAD.replace("@FOLDER@/state", f"{small_disk}/state") + ADMIN + RULES).begin()
    published = small_disk / "state" / "published.yaml"
    with contextlib.suppress(OSError), open(small_disk / "fill", "wb", buffering=0) as fill:
        while fill.write(b"x" * 4096):
            pass
    reply, kept = [], ["two"]
    for number in range(300):
        status, body, _ = one.request("POST", "/v1/rules", rule(f"n{number}", 1))
        reply.append(status)
        if status != 201:
            break
        kept.append(f"n{number}")
    assert reply[-1] == 503 and body["error"]["code"].startswith("database_"), (reply, body)
    before = published.read_text()
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    status, body, _ = one.request("POST", "/v1/rules/two/publish", '{"stage": "draft"}')
    assert status in (200, 503), body
    if status == 503:
        assert published.read_text() == before and one.get("/two").status == 429
    one.kill_agent()
    one.wait_for_log("; restarting in")
    assert one.get("/two").status in ((429,) if status == 503 else (200, 429))
    (small_disk / "fill").unlink()
    wait_until(lambda: one.request("GET", "/v1/rules")[0] == 200, "the agent with room")
    assert {item["name"] for item in one.request("GET", "/v1/rules?limit=1000")[1]["items"]} == set(kept)
    assert one.publish("after", 1) == 200
    wait_until(lambda: [one.get("/after").status for _ in range(2)][1] == 429, "what was published after")


def test_the_agent_killed_while_it_publishes(host):
    killed_while_publishing(host().begin())


def test_a_token_guessed_is_limited(host):
    one = host().begin()
    begun = time.monotonic()
    reply = [one.request("GET", "/v1/rules", token=f"weir_0_{n:040d}") for n in range(10)]
    taken = time.monotonic() - begun
    statuses = [status for status, _, _ in reply]
    back = taken // 10 + 1  # six a minute: so many tries more
    assert statuses[:5] == [401] * 5 and set(statuses[5:]) <= {401, 429}, statuses
    assert statuses.count(401) <= 5 + back
    late = [int(headers["Retry-After"]) for status, _, headers in reply if status == 429]
    assert all(1 <= wait <= 5 for wait in late) and max(late) > min(late), late
    assert taken > len(late) * 0.5  # the answers themselves are late, too: 0.25 s, 0.5 s, … 2 s
    assert all(headers["Connection"] == "close" for status, _, headers in reply if status == 429)
    # The right token comes from the same address: let in, and late only until its connection has shown it.
    for _ in range(3):
        assert one.request("GET", "/v1/rules")[0] == 200
    assert one.get("/").status == 200


def test_the_memory_of_bodies_is_bounded(host):
    """They are read before a token is checked, so clients without one could take all memory; short ones are always read."""
    one = host().begin()
    head = b"POST /v1/validate HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\nContent-Length: 1048576\r\n\r\n"

    def validate(text):
        return one.request("POST", "/v1/validate", text, Content_Type="application/yaml")[0]
    short, long = rule("short", 1), rule("long", 1) + " " * 1_000_000
    assert validate(short) == validate(long) == 200
    with contextlib.ExitStack() as stack:
        for i in range(165):  # an address may have 64
            c = stack.enter_context(socket.create_connection(("127.0.0.1", one.admin), 10, (f"127.0.0.{2 + i % 3}", 0)))
            c.sendall(head + b"x" * 1_000_000)
        wait_until(lambda: validate(long) == 503, "an answer that it is busy")
        assert validate(short) == 200 and one.request("GET", "/v1/rules")[0] == 200
    wait_until(lambda: validate(long) == 200, "room again")


def test_all_guesses_are_late(host):
    """However many connections and addresses there are: each check is put off, also of clients that would not wait."""
    one = host().begin()

    def took(address, token, times=1):
        connection = http.client.HTTPConnection("127.0.0.1", one.admin, timeout=20, source_address=(address, 0))
        for _ in range(times):  # the last one on a connection that has shown the token before
            begun = time.monotonic()
            connection.request("GET", "/v1/rules", headers={"Authorization": "Bearer " + token})
            answer = connection.getresponse()
            answer.read()
        connection.close()
        return answer.status, time.monotonic() - begun

    addresses = [f"127.0.0.{n}" for n in range(2, 6)]
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        for address in addresses:  # the first are answered at once; then the debt is as large as it gets
            assert {status for status, _ in pool.map(lambda n: took(address, f"weir_0_{n}"), range(40))} == {401, 429}
        late = list(pool.map(lambda n: took(addresses[n % 4], f"weir_0_{n}"), range(100)))
        assert {status for status, _ in late} == {429} and min(seconds for _, seconds in late) > 0.8, late
    for address in addresses:
        status, seconds = took(address, one.token)
        assert status == 200 and seconds > 0.7
    assert min(took(addresses[0], one.token, times=2)[1] for _ in range(3)) < 0.7
    assert took("127.0.0.7", one.token)[0] == 200


@pytest.mark.parametrize("line", [
    b"GET /v1/rules/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /assets/..%2f..%2fetc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /v1/rules HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET " + b"a" * 100000 + b" HTTP/1.1\r\n\r\n",
], ids=["path", "asset", "length", "tls", "long"])
def test_hostile_requests(host, line):
    one = host().begin()
    pid = one.wait_for_agent()
    with contextlib.suppress(OSError):
        answer = raw(one.admin, line, timeout=3)
        assert b"root:" not in answer and b" 200 " not in answer.split(b"\r\n")[0]
    assert one.request("POST", "/v1/rules", "x" * (3 << 20))[0] in (0, 413)
    assert one.request("GET", "/healthz")[0] == 200 and one.agent_pid() == pid


def test_rules_are_active_before_there_is_a_database(host):
    """Without the database the rules of the file decide until there are some in it, and they are imported only by the
    command."""
    one = host(HEAD + "admin: { listen: \"127.0.0.1:@ADMIN@\", rules: database, rules_db: \"sqlite:@FOLDER@/later/rules.db\" }\n" + RULES)
    (one.folder / "later").write_text("in the way")
    one.start()
    one.wait_for_log("are active until the rules service has some")
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    one.wait_for_admin()
    assert one.request_json("GET", "/healthz") == {"ok": True, "rules": "database", "revision": 0, "database": False, "database_restored": False,
                                             "written": True}
    # A start later it is still away, and what the file says by now is in force.
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    one.change("limit: 2", "limit: 4")
    one.start()
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]  # two of four were counted
    agent = one.wait_for_agent()
    (one.folder / "later").unlink()
    (one.folder / "made").mkdir()
    give_to_agent(one, one.folder / "made").rename(one.folder / "later")
    wait_until(lambda: one.request("GET", "/healthz")[1].get("database"), "the database")
    assert one.request_json("GET", "/healthz")["revision"] == 0
    weir("rules", "import", "--file", "weir.yaml", cwd=one.folder)
    one.wait_for_log("revision 1 of the rules is active")
    assert one.agent_pid() == agent
    one.token = weir("token", "create", "tests", "--role", "operator", "--file", "weir.yaml", cwd=one.folder).stdout.strip()
    reply = one.request("GET", "/v1/rules/two")[1]
    assert (reply["stage"], reply["reason"]) == ("enforced", "imported") and "limit: 4" in reply["text"]
    assert "published revision 1" in one.published()
    assert one.publish("two", 9) == 200
    wait_until(lambda: one.get("/two").status == 200, "what was published then")


def test_rules_that_cannot_be_stored_are_refused(host):
    """A name that the rules service reserves: reported before the start, not by requests that all pass."""
    one = host(HEAD + ADMIN + "rules:\n  - { name: published, limit: 2, window: 1h }\n")
    done = one.run()
    assert done.returncode == 1 and "the rules service's own" in done.stderr, done.stderr
