"""The control plane as weir serve runs it: publishing to the workers, its options in weir.yaml, other hosts that take
their rules from it. src/control has its own tests, test_control_cli.py those of the commands, and test_control_faults.py
and test_control_postgres.py what goes wrong."""
import concurrent.futures
import contextlib
import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
import time

import pytest

from clients import get
from controlled import ADMIN, HEAD, RULES, both_workers, reloads, weir
from gateway import wait_until
from measured import Lateness, measured
from ports import free_port
from served import certificate
from test_control_cli import Between

# ---- Publishing ----

@measured
def test_publishing_reaches_every_worker_within_two_seconds(host):
    one = host().begin()
    took = []
    with Lateness() as machine:
        for limit in range(5, 10):
            before = both_workers(one)
            begin = time.monotonic()
            assert one.publish("five", limit) == 200
            after = {}
            while len(after) < 2 or any(after[worker] <= before[worker] for worker in before):
                assert time.monotonic() - begin < 5, (before, after)
                reloads(one, after)
            end = time.monotonic()
            took.append(end - begin - machine.still(begin, end))
    print(f"publish to both workers: {', '.join(f'{t:.2f}' for t in took)} s")
    assert max(took) < 2
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(lambda _: one.get("/five").status, range(12))) == [200] * 9 + [429] * 3


def test_imported_rules_are_published_and_a_restart_keeps_them(host):
    one = host().begin()
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    status, reply, _ = one.request("GET", "/v1/rules/two")
    assert (status, reply["stage"], reply["reason"]) == (200, "enforced", "imported")
    assert one.publish("two", 5) == 200
    one.wait_for_log("weir: revision 2 of the rules is active")
    assert one.log_text().count("revision 2") == 1, one.log_text()
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    one.start()
    one.wait_for_admin()
    assert "limit: 5" in one.published().replace('"', "")
    assert one.request_json("GET", "/v1/rules/two")["version"] == 2
    assert [one.get("/two").status for _ in range(4)] == [200, 200, 200, 429]  # two of five are counted
    assert "the rules that weir.yaml names are not read" in one.log_text().replace(str(one.file), "weir.yaml")


def test_rules_with_errors_are_not_imported(host):
    one = host(HEAD + ADMIN + "rules:\n  - { name: bad, limit: many, window: 1h }\n")
    done = one.run()
    assert done.returncode == 1 and "weir.yaml:8:" in done.stderr
    assert "weir.yaml:8:" in weir("rules", "import", "--file", "weir.yaml", cwd=one.folder, code=1).stderr


def test_keys_and_figures(host):
    one = host().begin()
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    stats = one.request("GET", "/v1/stats")
    assert stats[0] == 200 and stats[1]["rules"][0]["totals"]["denied"] == 1
    for path in ("/v1/stats/history?rule=two", "/v1/stats/hot?rule=two", "/v1/stats/hot?rule=two&near=1", "/v1/advice"):
        assert one.request("GET", path)[0] == 200, path
    times = stats[1]["check_seconds"]
    assert len(times["counts"]) == len(times["below_s"]) + 1 and times["below_s"] == sorted(times["below_s"])
    advice = one.request_json("GET", "/v1/advice")
    assert advice["needs"] == {"seconds": 600, "requests": 1000, "denied": 50, "hours": 168}
    assert advice["basis"]["rules"] == len(stats[1]["rules"]) and advice["basis"]["keys"] is stats[1]["hot"]
    assert one.request("GET", "/v1/stats/hot?rule=none")[0] == 404
    about = one.request_json("GET", "/v1/denials?about=two&seconds=60")
    assert [(entry["rule"], entry["count"], entry["reason"]) for entry in about["denials"]] == [("two", 1, "limit")]
    assert about["entries"] == 1 and one.request_json("GET", "/v1/denials?about=none")["denials"] == []
    assert one.request("GET", "/v1/denials?seconds=0")[0] == 400
    key = "/v1/keys/two/somebody"
    assert one.request("PUT", f"{key}/block", '{"for": "1m"}')[0] == 200
    assert one.request_json("GET", key)["reason"] == "blocked"
    assert one.request("DELETE", f"{key}/block")[0] == 200 and one.request_json("GET", key)["reason"] == "limit"
    assert one.request("DELETE", key)[0] == 200
    assert {"key_block", "key_unblock", "key_reset"} <= {entry["action"] for entry in one.request_json("GET", "/v1/audit")["items"]}


def test_a_request_is_tried_and_takes_nothing(host):
    one = host().begin()
    viewer = weir("token", "create", "v", "--role", "viewer", "--file", "weir.yaml", cwd=one.folder).stdout.strip()

    def check(body, token=viewer):
        status, reply, _ = one.request("POST", "/v1/check", json.dumps(body) if isinstance(body, dict) else body, token=token)
        return status, reply

    tried = {"attributes": {"target": "/two?x=1", "method": "GET", "ip": "192.0.2.7"}}
    for _ in range(3):
        status, reply = check(tried)
        assert status == 200 and reply["allowed"] and reply["rule"] == "two" and reply["remaining"] == 1 and reply["status"] == 200
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    before = one.request_json("GET", "/v1/stats")["rules"][0]["totals"]
    status, reply = check(tried)
    assert (status, reply["decision"], reply["reason"], reply["status"]) == (200, "deny", "limit", 429)
    assert one.request_json("GET", "/v1/stats")["rules"][0]["totals"] == before
    assert check({"attributes": {"path": "/elsewhere"}})[1]["reason"] == "no_rule"
    for body, named in [('{"attributes":', "bad_json"), ("[]", "bad_json"), ({}, "attributes"), ({"dry_run": False, **tried}, "dry_run"),
                        ({"batch": [tried]}, "batch"), ({"key": "k", "limit": 1, "window": 1}, "key"),
                        ({"attributes": {"ip": "10.0.0.256"}}, "attributes.ip"), ({**tried, "cost": "x"}, "cost"),
                        ({"attributes": {"path": "/two", "headers": {"A": "1", "a": "2"}}}, "headers")]:
        status, reply = check(body)
        assert status == 400 and named in json.dumps(reply), (body, status, reply)
    assert check(tried, token="wrong")[0] == 401
    assert [entry["action"] for entry in one.request_json("GET", "/v1/audit")["items"] if "check" in entry["action"]] == []


def test_the_newest_of_many_denials(host):
    """A reply has at most 1000 of them, however many keys were denied."""
    one = host(HEAD + ADMIN + "rules:\n  - { name: dear, key: '${path}', cost: 2, limit: 1, window: 1h }\n").begin()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", one.port, timeout=10)) as connection:
        for i in range(1040):  # of which a few may not be recorded: they are all of one moment
            connection.request("GET", f"/{i}")
            reply = connection.getresponse()
            assert reply.read() is not None and reply.status == 429
    whole = json.loads(weir("why", "--json", cwd=one.folder).stdout)
    paths = [entry["path"] for entry in whole["denials"]]
    assert 1000 < len(paths) == whole["entries"] and whole["more"] == 0
    assert paths == sorted(paths, key=lambda path: -int(path[1:]))
    newest = one.request_json("GET", "/v1/denials")
    assert newest["entries"] == len(paths) and newest["more"] == len(paths) - 1000
    assert [entry["path"] for entry in newest["denials"]] == paths[:1000]
    few = one.request_json("GET", "/v1/denials?about=dear&limit=3")
    assert [entry["path"] for entry in few["denials"]] == paths[:3] and few["more"] == len(paths) - 3
    assert one.request_json("GET", f"/v1/denials?about={paths[7]}&limit=1")["more"] == 0
    assert [one.request("GET", f"/v1/denials?limit={wrong}")[0] for wrong in ("0", "1001", "all")] == [400] * 3
    text = weir("why", cwd=one.folder).stdout
    assert text.count(" denied ") == 20 and f"{len(paths) - 20} more; --json has all of them" in text


def test_keys_are_hashes_unless_for_operators(host):
    one = host(HEAD + ADMIN + "hot_keys: 2MiB\nrules:\n"
               "  - { name: two, match: { path: /two }, key: \"k:${header:X-Key}\", limit: 2, window: 1h }\n").begin()
    viewer = weir("token", "create", "v", "--role", "viewer", "--file", "weir.yaml", cwd=one.folder).stdout.strip()

    def hot(token):
        status, reply, _ = one.request("GET", "/v1/stats/hot?rule=two&by=denied", token=token)
        return reply["keys"] if status == 200 else []

    def sampled():
        for _ in range(40):
            one.get("/two", headers={"X-Key": "confidential"})
        return any(key["key"] == "k:confidential" for key in hot(one.token))

    wait_until(sampled, "the hot key")
    shown = hot(viewer)
    assert shown and all(key["hidden"] and re.fullmatch("~[0-9a-f]{16}", key["key"]) for key in shown)
    assert one.request("PUT", "/v1/keys/two/k:confidential/block", '{"for": "1m"}')[0] == 200
    audit = one.request("GET", "/v1/audit", token=viewer)[1]["items"]
    objects = [entry["object"] for entry in audit if entry["action"] == "key_block"]
    assert objects == ["two/" + shown[0]["key"]]  # one hash for one key
    assert "confidential" not in json.dumps(audit)
    assert "two/k:confidential" in [entry["object"] for entry in one.request_json("GET", "/v1/audit")["items"]]


# ---- What weir.yaml says ----

@pytest.mark.parametrize("more, file, output", [
    ("service: { http: 127.0.0.1:@METRICS@0, access: { tokens: [secret-token] } }", "weir.yaml", "it has secrets: "),
    ("store: { url: 'redis://127.0.0.1:1', password: secret }", "weir.yaml", "it has secrets: "),
    ("store: 'redis://:secret@127.0.0.1:1'", "weir.yaml", "it has secrets: "),
    ("store: { url: 'redis://127.0.0.1:1', password_file: '@FOLDER@/password' }", "password", "password_file "),
], ids=["tokens", "password", "url", "password_file"])
def test_secrets_that_others_can_read_are_warned_of(host, more, file, output):
    one = host(HEAD + more.replace("@METRICS@0", str(free_port())) + "\n" + RULES)
    secret = one.folder / file
    if file != "weir.yaml":
        secret.write_text("secret\n")
    for mode, warned in ((0o644, True), (0o640, False), (0o600, False)):
        secret.chmod(mode)
        done = one.run("--check")
        reply = [line for line in done.stderr.splitlines() if "every user of this host may read it" in line]
        assert bool(reply) == warned and done.returncode == 0, done.stderr
        assert not reply or output in reply[0] and "(mode 0644)" in reply[0]
        assert ": secret" not in done.stderr


def test_nothing_secret_is_readable_by_others(host):
    one = host().begin()
    for name in ("rules.db", "rules.db-wal", "rules.db-shm"):
        path = one.folder / "state" / name
        assert not path.exists() or path.stat().st_mode & 0o077 == 0, name



OLD, NEW = ["-tls1", "-tls1_1"], ["-tls1_2", "-tls1_3"]


def handshake(port, version):
    """With this version of TLS only. By openssl, as Python's own library may refuse old versions by itself."""
    done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", version, "-cipher", "ALL:@SECLEVEL=0"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
    return "Cipher is (NONE)" not in done.stdout and "Cipher is " in done.stdout


def test_tls(host):
    one = host(HEAD + "admin: { listen: \"127.0.0.1:@ADMIN@\", rules: database, tls: { certificate: server.pem, key: server.key } }\n" + RULES)
    pem, _ = certificate(one.folder)
    one.context = ssl.create_default_context(cafile=pem)
    one.begin()
    assert one.publish("three", 3) == 200
    status, reply, headers = one.request("POST", "/v1/session", json.dumps({"token": one.token}))
    assert status in (200, 201) and all(word in headers["Set-Cookie"] for word in ("Secure", "HttpOnly", "SameSite=Strict"))
    with pytest.raises((OSError, http.client.HTTPException)):
        get(one.admin, "/healthz")
    assert [handshake(one.admin, version) for version in OLD + NEW] == [False] * len(OLD) + [True] * len(NEW)
    url = ["--url", f"https://127.0.0.1:{one.admin}", "--ca", pem]
    assert "three" in weir("rules", "list", *url, env={"WEIR_TOKEN": one.token}).stdout
    assert "tests" in weir("token", "list", *url, env={"WEIR_TOKEN": one.token}).stdout
    certificate(one.folder)
    one.context = ssl.create_default_context(cafile=pem)
    wait_until(lambda: one.request("GET", "/healthz")[0] == 200, "the renewed certificate")


@pytest.mark.parametrize("admin, code, output", [
    ("{ listen: \"127.0.0.1:@ADMIN@\", tls: { certificate: none.pem, key: none.key } }", 1, "the certificate"),
    ("{ listen: \"127.0.0.1:@ADMIN@\", tls: { certificate: a, key: b, client_ca: c } }", 1, "no client_ca here"),
    ("{ listen: 0.0.0.0:@ADMIN@ }", 0, "tokens cross the network"),
    ("{ tls: { certificate: a, key: b } }", 1, "has no listen"),
    ("{ listen: \"127.0.0.1:@ADMIN@\", rules_db: rules.db }", 1, "rules_db is sqlite:"),
], ids=["certificate", "client_ca", "plain", "listen", "rules_db"])
def test_the_file_is_checked_first(host, admin, code, output):
    done = host(HEAD + f"admin: {admin}\n" + RULES).run("--check")
    assert done.returncode == code and output in done.stderr, done.stderr


# ---- Another host ----

def follower(host, url, token, more=""):
    one = host(HEAD + f"rules: {{ url: \"{url}\", token_file: \"@FOLDER@/token\", poll: 200ms{more} }}\n")
    (one.folder / "token").write_text(token + "\n")
    return one


def test_another_host_takes_its_rules_from_here_and_runs_without(host):
    first = host().begin()
    viewer = weir("token", "create", "other", "--role", "viewer", "--url", f"http://127.0.0.1:{first.admin}",
                  env={"WEIR_TOKEN": first.token}).stdout.strip()
    second = follower(host, f"http://127.0.0.1:{first.admin}/v1/rules/published", viewer).start()
    assert [second.get("/two").status for _ in range(3)] == [200, 200, 429]
    begin = time.monotonic()
    assert first.publish("ten", 1) == 200
    wait_until(lambda: second.get("/ten").status == 429, "what the first published on the second")
    print(f"published there, enforced here: {time.monotonic() - begin:.2f} s")
    first.signal(signal.SIGTERM)
    assert first.end() == 0
    second.wait_for_log("those on disk stay active")
    assert second.get("/ten").status == 429
    second.signal(signal.SIGTERM)
    assert second.end() == 0
    second.start()
    assert second.get("/ten").status == 429 and second.get("/two").status == 429
    first.start()
    first.wait_for_admin()
    assert first.publish("again", 1) == 200
    wait_until(lambda: second.get("/again").status == 429, "rules after the rules service is back", 40)


def test_the_first_start_without_the_rules_service(host):
    one = follower(host, f"http://127.0.0.1:{free_port()}/v1/rules/published", "x").start()
    one.wait_for_log("all requests pass until there are some")
    assert one.get("/two").status == 200


@pytest.fixture
def origin():
    """A rules service whose reply the test sets: `now` is (status, headers, body)."""
    made = Between(lambda method, path, headers, body: made.tell(headers))
    made.now, made.tags = (200, {"ETag": '"1"'}, RULES.encode()), []

    def tell(headers):
        made.tags.append(headers.get("If-None-Match"))
        if made.now[0] == 200 and headers.get("If-None-Match") == made.now[1].get("ETag"):
            return 304, {}, b""
        return made.now
    made.tell = tell
    yield made
    made.stop()


def test_polling_sends_the_entity_tag(host, origin):
    one = follower(host, f"{origin.url}/rules", "secret").start()
    wait_until(lambda: len(origin.tags) >= 6, "some questions")
    assert origin.tags[-1] == '"1"' and origin.tags.count(None) <= 2  # before the start, and the agent's first
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("bad", [
    (200, {"ETag": '"2"'}, b"rules: [ { name: two, limit: many } ]"),
    (200, {"ETag": '"2"'}, b"<html>log in</html>"),
    (200, {"ETag": '"2"'}, b""),
    (200, {"ETag": '"2"'}, b"\x00\xff" * 1000),
    (500, {}, b"broken"),
    (401, {}, b"{}"),
    (302, {"Location": "http://127.0.0.1:1/"}, b""),
])
def test_what_is_no_good_is_refused(host, origin, bad):
    one = follower(host, f"{origin.url}/rules".replace("://", "://me:hunter2@"), "hunter2").start()
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    kept = (one.folder / "state" / "retrieved.yaml").read_text()
    origin.now = bad
    one.wait_for_log("those on disk stay active")
    assert (one.folder / "state" / "retrieved.yaml").read_text() == kept
    assert one.get("/two").status == 429 and "hunter2" not in one.log_text()
    origin.now = (200, {"ETag": '"3"'}, RULES.replace("two", "new").encode())
    wait_until(lambda: [one.get("/new").status for _ in range(3)][2] == 429, "good rules after bad ones")


def test_the_rules_of_a_service_are_logged_once(host, origin):
    """Not at each poll, though they are bad or the service has no tags; and good news is no warning."""
    origin.now = (200, {}, RULES.encode())
    origin.tell = lambda headers: origin.tags.append(None) or origin.now  # without tags, it is never 304
    one = follower(host, f"{origin.url}/rules", "secret").start()

    def polls(count):
        seen = len(origin.tags)
        wait_until(lambda: len(origin.tags) >= seen + count, "some polls")
    polls(3)
    origin.now = (200, {}, b"rules: [ { name: two, limit: many, window: 1h } ]")
    one.wait_for_log("those on disk stay active")
    polls(2)
    origin.now = (200, {}, RULES.replace("two", "new").encode())
    one.wait_for_log("is active", 2)
    origin.now = (500, {}, b"")
    one.wait_for_log("the reply is 500; those on disk stay active")
    origin.now = (200, {}, RULES.replace("two", "new").encode())
    one.wait_for_log("available again")
    polls(2)
    log = one.log_text()
    active = f"weir: 1 rule of {origin.url}/rules, revision without a tag, is active"
    assert log.count(active) == 2 and log.count('not "many"') == 1, log
    assert log.count(f"weir: rules of {origin.url}/rules: available again") == 1, log
    assert log.count("weir: warning: rules of") == 2, log


# ---- Changes of weir.yaml ----

def test_a_changed_file_begins_the_agent_anew(host):
    one = host().begin()
    before = one.wait_for_agent()
    assert one.publish("three", 3) == 200
    one.change("workers: 2", "workers: 1")
    one.wait_for_new_agent(before)
    assert one.request("GET", "/v1/rules/three")[0] == 200  # the token and the rules are the database's

    def answers():  # of old workers and the new one, which looks at the rules when it begins
        return {(a.status, a.headers["X-RateLimit-Limit"]) for a in (one.get("/three") for _ in range(10))}
    wait_until(lambda: answers() == {(429, "3")}, "the rule in the new worker")


def test_rules_in_the_file_are_not_read_again(host):
    one = host().begin()
    before = one.wait_for_agent()
    one.change("limit: 2", "limit: 7")
    one.wait_for_log("names are not read")
    one.wait_for_new_agent(before)
    assert one.request_json("GET", "/v1/rules/two")["version"] == 1
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]


def test_the_port_is_taken(host):
    """The gateway does not wait for the rules service."""
    one = host()
    with contextlib.closing(socket.create_server(("127.0.0.1", one.admin))):
        one.start()
        one.wait_for_log("cannot listen on")
        assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    one.wait_for_admin()


def test_idle_clients_do_not_delay_others(host):
    """Connections have threads of their own: idle ones and halves of requests hold up neither others nor the end."""
    one = host().begin()
    with contextlib.ExitStack() as stack:
        for number in range(40):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", one.admin), timeout=10))
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + (b"\r\n" if number % 2 else b""))
            assert not number % 2 or b" 200 " in client.recv(4096)
        begin = time.monotonic()
        with Lateness() as machine:
            assert one.request("GET", "/v1/rules")[0] == 200 and one.request("HEAD", "/healthz")[0] == 200
            one.signal(signal.SIGTERM)
            assert one.end() == 0
        assert time.monotonic() - begin < 10 + machine.lost()


def test_check_changes_nothing(host):
    one = host()
    done = one.run("--check")
    assert done.returncode == 0, done.stderr
    assert not (one.folder / "state").exists()


EVENTUAL = """store: { url: "%s", sync_interval: 50ms }
rules:
  - { name: e, key: "${header:x-key}", limit: 50, window: 1h, consistency: eventual }
"""


def test_a_taken_port_stops_no_exchange(host, redis_server):
    server = redis_server()
    one = host(HEAD + ADMIN + EVENTUAL % server.url())
    with contextlib.closing(socket.create_server(("127.0.0.1", one.admin))):
        one.start()
        one.wait_for_log("retrying in 5 s")
        get(one.port, "/", headers={"x-key": "a"})
        wait_until(lambda: server.client().get("weir:e:a") is not None, "the exchange goes on")
    one.wait_for_admin()
    one.wait_for_log("listening on")


def test_a_reset_under_an_eventual_rule_reaches_the_other_hosts(host, redis_server):
    server = redis_server()
    one = host(HEAD + ADMIN + EVENTUAL % server.url()).begin()
    other = host(HEAD + EVENTUAL % server.url())
    other.start()

    def left(at):
        """Asking takes one: seldom enough that this alone makes no difference."""
        return int(get(at.port, "/", headers={"x-key": "a"}).headers["X-RateLimit-Remaining"])
    for _ in range(40):
        get(one.port, "/", headers={"x-key": "a"})
    wait_until(lambda: left(other) < 15, "the other host hears of it", seconds=15, every=0.5)

    assert one.request("DELETE", "/v1/keys/e/a")[0] in (200, 204)
    wait_until(lambda: left(other) > 15, "and of the reset", seconds=15, every=0.5)
    time.sleep(1)
    assert left(one) > 15  # nobody brought it back


def test_once_needs_a_store(host):
    one = host(HEAD + ADMIN + RULES)
    done = weir("agent", "--once", str(one.file), code=1)
    assert "names no store" in done.stderr
