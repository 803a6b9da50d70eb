"""RESP end to end: CL.THROTTLE, checks by rules, operators, and the clients that people use."""
import json
import os
import pathlib
import re
import socket
import subprocess
import time

import pytest
import redis

from clients import get, together
from gateway import is_alive, wait_until
from measured import measured
from resp import STREAM_MODULE, Broken, Client, RespGateway, fields

RULES = """
identity: { user_id: header:X-User, tier: header:X-Plan }
rules:
  - { name: api, match: { path: /api/* }, key: "user:${user_id}", limit: 5, window: 1h }
  - { name: login, match: { path: /login, method: POST }, key: "ip:${client_ip}", limit: 2, window: 1h }
  - { name: named, match: { path: /named }, key: "${account}", limit: 3, window: 1h, cost: { from: "header:X-Cost" } }
  - { name: paced, match: { path: /paced }, limit: 1, window: 1s, burst: 5, algorithm: leaky_bucket, on_limit: delay }
---
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 2 } }
"""
RULES, DESCRIPTORS = RULES.split("---\n")
NODE_MODULES = pathlib.Path(__file__).resolve().parents[2] / "build" / "node" / "node_modules"


@pytest.fixture
def server(gateway):
    """Makes gateways that speak RESP."""
    def make(rules=RULES, **more):
        one = gateway(rules, start=False, kind=RespGateway, **more)
        (one.folder / "rules" / "shop.yaml").write_text(DESCRIPTORS)
        return one.start()
    return make


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, check=False,
                          **more)
    return done.stdout + done.stderr


# ---- CL.THROTTLE ----

def told_since(began, reply, expected):
    """Whether it is that, or what is left of its times, the last two, so long after the beginning."""
    past = time.monotonic() - began
    return reply[:3] == expected[:3] and all(
        got == wanted or wanted > 0 and wanted - past <= got < wanted for got, wanted in zip(reply[3:], expected[3:]))


def test_throttle(server):
    s = server(resp_rules=False)
    with Client(s.resp) as c:
        assert c.do("CL.THROTTLE", "user123", 15, 30, 60) == [0, 16, 15, -1, 2]
        began = time.monotonic()
        for words, expected in (((), [0, 16, 15, -1, 120]), ((0,), [0, 16, 15, -1, 120]), ((-1,), [0, 16, 16, -1, 0]),
                                ((17,), [1, 16, 16, -1, 0]), ((16,), [0, 16, 0, -1, 1920]), ((), [1, 16, 0, 120, 1920])):
            reply = c.do("cl.throttle", "user124", 15, 30, 3600, *words)
            assert told_since(began, reply, expected), (words, reply)
        assert str(c.do("WEIR.CHECK", "path", "/")) == "ERR no rules are configured"


def test_throttle_errors_keep_the_connection(server):
    s = server()
    cases = {
        ("k", 15, 30): "ERR wrong number of arguments for 'cl.throttle' command",
        ("k", 15, 30, 60, 1, 1): "ERR wrong number of arguments for 'cl.throttle' command",
        ("k", "x", 30, 60): "ERR value is not an integer or out of range",
        ("k", 15, "1.5", 60): "ERR value is not an integer or out of range",
        ("k", 15, 30, 60, "9223372036854775808"): "ERR value is not an integer or out of range",
        ("k", 15, 0, 60): "ERR count and period cannot be zero",
        ("k", 15, 30, 0): "ERR count and period cannot be zero",
        ("k", -1, 30, 60): "ERR max_burst, count and period cannot be negative",
        ("k", 15, 2**32, 60): "(WEIR_ELIMIT)",
        ("k", 2**32, 30, 60): "(WEIR_EBURST)",
        ("k", 15, 30, 400 * 86400 + 1): "(WEIR_EWINDOW)",
        ("k", 1, 1, 400 * 86400): "(WEIR_EOVERFLOW)",
        ("", 15, 30, 60): "(WEIR_EKEYEMPTY)",
        ("k" * 65536, 15, 30, 60): "(WEIR_EKEYLONG)",
    }
    with Client(s.resp) as c:
        for words, expected in cases.items():
            reply = c.do("CL.THROTTLE", *words)
            assert isinstance(reply, Broken) and expected in str(reply), (words, reply)
        assert c.do("CL.THROTTLE", "k" * 65535, 15, 30, 60) == [0, 16, 15, -1, 2]


def test_pipelines_keep_their_order(server):
    s = server()
    with Client(s.resp) as c:
        commands, expected = [], []
        for i in range(3000):
            commands.append(("CL.THROTTLE", f"key{i % 7}", 3000, 3000 + i % 100, 30 * 86400))
            expected.append(1)
            if i % 10 == 3:
                commands.append(("ECHO", i))
                expected.append(str(i).encode())
            if i % 50 == 7:
                commands.append(("CL.THROTTLE", "key", "bad", 1, 1))
                expected.append(Broken)
        left = {}
        for command, want, reply in zip(commands, expected, c.pipeline(commands)):
            if want == 1:
                left[command[1]] = left.get(command[1], 3001) - 1
                assert reply[:3] == [0, 3001, left[command[1]]], (command, reply)
            elif want is Broken:
                assert isinstance(reply, Broken)
            else:
                assert reply == want


def test_many_clients_never_get_more(server):
    s = server(workers=2)

    def client():
        with Client(s.resp) as c:
            return sum(reply[0] == 0 for reply in c.pipeline([("CL.THROTTLE", "all", 499, 10, 86400)] * 200))
    assert sum(together([client] * 8)) == 500


# ---- Rules ----

@measured
def test_check(server):
    s = server()
    with Client(s.resp) as c:
        request = ("path", "/api/x", "method", "GET", "header:X-User", "7")
        first = c.do("WEIR.CHECK", *request)
        assert [name.decode() for name in first[::2]] == ["decision", "rule", "key", "limit", "remaining", "reset_ms",
                                                          "retry_after_ms", "delay_ms"]
        assert fields(first) == {"decision": b"allow", "rule": b"api", "key": b"user:7", "limit": 5, "remaining": 4,
                                 "reset_ms": 720000, "retry_after_ms": 0, "delay_ms": 0}
        assert fields(c.do("WEIR.PEEK", *request))["remaining"] == 3
        assert fields(c.do("WEIR.CHECK", "DRY", *request))["remaining"] == 3
        assert fields(c.do("WEIR.CHECK", "cost", 4, *request))["remaining"] == 0
        denied = fields(c.do("WEIR.CHECK", *request))
        assert denied["decision"] == b"deny" and 600000 < denied["retry_after_ms"] <= 720000
        assert fields(c.do("WEIR.CHECK", "COST", -5, *request))["remaining"] == 5
        assert fields(c.do("WEIR.CHECK", "COST", 6, *request))["retry_after_ms"] == -1
        nothing = fields(c.do("WEIR.CHECK", "path", "/elsewhere"))
        assert nothing["decision"] == b"allow" and nothing["limit"] == -1 and nothing["rule"] == b""
        login = ("target", "/login?x=1", "method", "POST", "ip", "192.0.2.7")
        assert [fields(c.do("WEIR.CHECK", *login))["decision"] for _ in range(3)] == [b"allow", b"allow", b"deny"]
        named = ("path", "/named", "account", "a", "HEADER:x-cost", "2")
        assert fields(c.do("WEIR.CHECK", *named))["remaining"] == 1
        waits = [fields(c.do("WEIR.CHECK", "path", "/paced")) for _ in range(2)]
        assert waits[1]["decision"] == b"delay" and 500 < waits[1]["delay_ms"] <= 1000


def test_check_refuses_a_duplicate_name(server):
    """Rules would go by one value, and the server behind the caller perhaps by the other."""
    s = server()
    with Client(s.resp) as c:
        for name, again in (("header:X-User", "header:X-User"), ("header:X-User", "HEADER:x-user"), ("path", "path"),
                            ("account", "account")):
            for command in ("WEIR.CHECK", "WEIR.PEEK"):
                refused = str(c.do(command, "method", "GET", name, "/api/1", "ip", "192.0.2.1", again, "/api/2"))
                assert refused == f"ERR '{again}' is given twice"
        assert str(c.do("WEIR.CHECK", *["n" * 300, "v"] * 2)) == f"ERR '{'n' * 64}' is given twice"
        assert fields(c.do("WEIR.CHECK", "path", "/x", "account", "a", "Account", "b", "header:path", "c"))["decision"] == b"allow"
        assert fields(c.do("WEIR.CHECK", "DOMAIN", "shop", "user", "7", "user", "7"))["decision"] == b"allow"


def test_check_descriptors(server):
    s = server()
    with Client(s.resp) as c:
        request = ("DOMAIN", "shop", "user", "7")
        assert fields(c.do("WEIR.CHECK", *request))["remaining"] == 1
        assert fields(c.do("WEIR.PEEK", *request))["decision"] == b"allow"
        assert fields(c.do("WEIR.CHECK", "DOMAIN", "shop", "HITS", 2, "user", "7"))["decision"] == b"deny"
        assert fields(c.do("WEIR.CHECK", *request))["decision"] == b"allow"
        assert fields(c.do("WEIR.CHECK", *request))["decision"] == b"deny"
        assert fields(c.do("WEIR.CHECK", "DOMAIN", "nowhere", "user", "7"))["limit"] == -1


def test_check_bad_questions(server):
    s = server()
    cases = {("path",): "wrong number", ("path", "/", "odd"): "syntax error", ("COST", "x", "path", "/"): "not an integer",
             ("COST", 2**40, "path", "/"): "(WEIR_ECOST)", ("DOMAIN", "shop"): "syntax error",
             ("DOMAIN", "", "user", "7"): "(WEIR_EINVAL)", tuple(["a", "b"] * 65): "ERR more than 64 pairs"}
    with Client(s.resp) as c:
        for words, expected in cases.items():
            reply = c.do("WEIR.CHECK", *words)
            assert isinstance(reply, Broken) and expected in str(reply), (words, reply)
        assert c.do("PING") == "PONG"


def test_one_counter_for_all_protocols(server):
    s = server()
    with Client(s.resp) as c:
        for _ in range(3):
            assert fields(c.do("WEIR.CHECK", "path", "/api/x", "header:x-user", "7"))["decision"] == b"allow"
    answers = [get(s.port, "/api/x", headers={"X-User": "7"}) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert get(s.port, "/api/x", headers={"X-User": "8"}).status == 200


def test_resp3(server):
    s = server()
    with Client(s.resp) as c:
        hello = c.do("HELLO", 3, "SETNAME", "me")
        assert hello["proto"] == 3 and hello["server"] == b"weir" and hello["modules"] == []
        assert c.do("CLIENT", "GETNAME") == b"me"
        answer = c.do("WEIR.CHECK", "path", "/api/x", "header:x-user", "7")
        assert isinstance(answer, dict) and answer["remaining"] == 4
        assert b"redis_version" in c.do("INFO") and c.do("CONFIG", "GET", "*") == {}
        assert c.do("RESET") == "RESET"
        assert c.do("CLIENT", "GETNAME") is None
        assert isinstance(c.do("HELLO"), list)


# ---- Operators, passwords ----

OPERATOR = "weir_resp_operator_password op-secret;"


def test_reset_and_block(server):
    s = server(stream=OPERATOR)
    request = ("WEIR.CHECK", "path", "/api/x", "header:x-user", "7")
    with Client(s.resp) as c, Client(s.resp) as other:
        for command in (("WEIR.RESET", "api", "user:7"), ("WEIR.BLOCK", "api", "user:7", 60)):
            assert str(c.do(*command)).startswith("NOPERM ")
        assert str(c.do("AUTH", "wrong")).startswith("WRONGPASS ")
        assert c.do("AUTH", "op-secret") == "OK"
        assert [fields(c.do(*request))["decision"] for _ in range(6)] == [b"allow"] * 5 + [b"deny"]
        assert c.do("WEIR.RESET", "api", "user:7") == "OK this host"
        assert fields(c.do(*request))["remaining"] == 4
        began = time.monotonic()
        assert c.do("WEIR.BLOCK", "api", "user:7", 60) == "OK this host"
        blocked = fields(other.do(*request))
        past_ms = 1000 * (time.monotonic() - began)
        assert blocked["decision"] == b"deny" and 60000 - past_ms <= blocked["retry_after_ms"] <= 60000
        assert get(s.port, "/api/x", headers={"X-User": "7"}).status == 403
        assert c.do("WEIR.BLOCK", "api", "user:7", 0) == "OK this host"
        assert fields(other.do(*request))["decision"] == b"allow"
        assert "(WEIR_ENORULE)" in str(c.do("WEIR.RESET", "nobody", "x"))
        assert "(WEIR_ENORULE)" in str(c.do("WEIR.RESET", "a" * 500, "x"))
        assert "(WEIR_ENORULE)" in str(c.do("WEIR.RESET", "api\0", "x"))
        assert "(WEIR_EKEYEMPTY)" in str(c.do("WEIR.RESET", "api", ""))
        assert "whole number" in str(c.do("WEIR.BLOCK", "api", "user:7", -1))
        assert str(other.do("WEIR.RESET", "api", "user:7")).startswith("NOPERM ")
        assert c.do("RESET") == "RESET"
        assert str(c.do("WEIR.RESET", "api", "user:7")).startswith("NOPERM ")


def test_reset_and_block_of_throttle(server):
    s = server(stream=OPERATOR, resp_rules=False)
    with Client(s.resp) as c:
        assert c.do("AUTH", "op-secret") == "OK"
        assert c.do("CL.THROTTLE", "k", 0, 1, 3600) == [0, 1, 0, -1, 3600]
        assert c.do("CL.THROTTLE", "k", 0, 1, 3600)[0] == 1
        assert c.do("WEIR.RESET", "CL.THROTTLE", "k") == "OK this host"
        assert c.do("CL.THROTTLE", "k", 0, 1, 3600)[0] == 0
        began = time.monotonic()
        assert c.do("WEIR.BLOCK", "cl.throttle", "k2", 100) == "OK this host"
        assert told_since(began, c.do("CL.THROTTLE", "k2", 5, 1, 3600), [1, 6, 6, 100, 0])


def test_stats(server):
    s = server()
    with Client(s.resp) as c:
        for _ in range(7):
            c.do("WEIR.CHECK", "path", "/api/x", "header:x-user", "7")
        rule = fields(c.do("WEIR.STATS", "api"))
        assert (rule["allowed"], rule["denied"]) == (5, 2)
        whole = fields(c.do("WEIR.STATS"))
        assert whole["allowed"] >= 5 and whole["rules"] == 5 and whole["bytes"] == 4 << 20
        assert "(WEIR_ENORULE)" in str(c.do("WEIR.STATS", "nobody"))


def test_passwords(server):
    s = server(stream="weir_resp_password secret; weir_resp_password alice wonder; "
                      "weir_resp_operator_password root toor;")
    with Client(s.resp) as c:
        for command in (("PING",), ("CL.THROTTLE", "k", 15, 30, 60), ("WEIR.STATS",), ("HELLO", 3), ("INFO",)):
            assert str(c.do(*command)).startswith("NOAUTH "), command
        def wrong(*words):  # on connections of their own, which all wait for their answer
            with Client(s.resp) as one:
                assert str(one.do(*words)).startswith("WRONGPASS "), words
                assert str(one.do("PING")).startswith("NOAUTH ")
        together([lambda words=words: wrong("AUTH", *words) for words in (
            ("",), ("secre",), ("secrets",), ("alice", "secret"), ("default", "wonder"), ("bob", "secret"))])
        assert str(c.do("HELLO", 3, "AUTH", "alice", "nope")).startswith("WRONGPASS ")
        assert c.do("AUTH", "alice", "wonder") == "OK"
        assert c.do("PING") == "PONG"
        assert str(c.do("WEIR.RESET", "api", "k")).startswith("NOPERM ")
        assert c.do("AUTH", "secret") == "OK"
        assert c.do("HELLO", 3, "AUTH", "root", "toor")["proto"] == 3
        assert c.do("WEIR.RESET", "api", "k") == "OK this host"
    with Client(s.resp) as c:  # who has not said who they are may send little
        assert "invalid bulk length" in str(c.do("PING", "x" * 20000))
        assert c.is_closed()


def test_guessing_takes_its_time(server):
    """Pipelined guesses wait as well, and the connection ends after five; a right password never waits."""
    s = server(stream="weir_resp_password secret;", server="location = /metrics { weir off; weir_metrics; }", workers=1)
    began = time.monotonic()
    with Client(s.resp) as guesser, Client(s.resp) as other:
        guesser.send(b"".join(b"*2\r\n$4\r\nAUTH\r\n$6\r\n%06d\r\n" % guess for guess in range(1000)) +
                     b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n")
        assert str(guesser.reply()).startswith("WRONGPASS ") and time.monotonic() - began >= 0.095
        waited = time.monotonic()
        assert other.do("AUTH", "secret") == "OK" and other.do("PING") == "PONG"  # from the same address, in the same worker
        assert time.monotonic() - waited < 0.1 or time.monotonic() - began > 1
        for at_least in (0.3, 0.7, 1.5, 3.1):  # 0.1 s, and twice as long each time
            assert str(guesser.reply()).startswith("WRONGPASS ") and time.monotonic() - began >= at_least - 0.005
        assert guesser.is_closed()
    with Client(s.resp) as c:
        began = time.monotonic()
        assert str(c.do("HELLO", 3, "AUTH", "default", "nope")).startswith("WRONGPASS ")
        assert time.monotonic() - began >= 3.19  # another connection of the same address
        assert c.do("AUTH", "secret") == "OK"
    assert re.search(r"^weir_auth_failures_total 6$", get(s.port, "/metrics").body.decode(), re.M)


@measured
def test_abandoned_login_attempts_reveal_nothing(server):
    """A connection for each guess, closed after 20 ms without an answer: the check itself must come later than that."""
    s = server(stream="weir_resp_password secret;", server="location = /metrics { weir off; weir_metrics; }", workers=1)

    def checked():
        return int(re.search(r"^weir_auth_failures_total (\d+)$", get(s.port, "/metrics").body.decode(), re.M)[1])

    def guess_on(connection, word=b"nope"):
        connection.sendall(b"*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n" % (len(word), word))
        connection.settimeout(0.02)
        try:
            return connection.recv(100)
        except TimeoutError:
            return None

    def guess(count):
        for _ in range(count):
            with socket.create_connection(("127.0.0.1", s.resp), timeout=10) as one:
                guess_on(one)
    with Client(s.resp) as early:
        assert early.do("AUTH", "secret") == "OK"
        together([lambda: guess(50) for _ in range(8)])
        assert 6 <= checked() <= 12  # of 400: five, and those whose check came within 20 ms
        began = time.monotonic()
        assert early.do("AUTH", "secret") == "OK"  # it had the right one before
        assert time.monotonic() - began < 0.2
        with socket.create_connection(("127.0.0.1", s.resp), timeout=10) as late:
            assert guess_on(late, b"secret") is None  # nothing tells it from a wrong one
            late.settimeout(10)
            assert late.recv(100) == b"+OK\r\n"
            assert time.monotonic() - began < 4  # at most 2 s, on a busy machine
    held = [socket.create_connection(("127.0.0.1", s.resp), timeout=10) for _ in range(64)]
    for each in held:
        each.sendall(b"AUTH nope\r\n")
    time.sleep(0.1)
    with Client(s.resp) as beyond:
        beyond.send(b"AUTH secret\r\n")
        assert beyond.is_closed()
    for each in held:
        each.close()
    time.sleep(0.1)
    with Client(s.resp) as c:  # those that left have given back their places
        assert c.do("HELLO", 3, "AUTH", "default", "secret")["proto"] == 3
    assert checked() <= 12 and "alert" not in s.errors()


def test_a_held_check_ends_with_its_worker(server):
    s = server(stream="weir_resp_password secret; weir_resp_timeout 500ms;")
    together([lambda: Client(s.resp).do("AUTH", "nope") for _ in range(10)])
    with Client(s.resp) as held:
        held.send(b"PING\r\nAUTH secret\r\nPING\r\n")
        assert str(held.reply()).startswith("NOAUTH ")
        before = s.workers()
        s.reload()
        assert [held.reply(), held.reply()] == ["OK", "PONG"]
    wait_until(lambda: not any(is_alive(worker) for worker in before), "the end of the worker before")
    assert "alert" not in s.errors()


def test_a_guesser_that_leaves(server):
    """While its answer is held back, or when the worker ends."""
    s = server(stream="weir_resp_password secret;")
    for _ in range(20):
        with Client(s.resp) as c:
            c.send(b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n" * 3)
    with Client(s.resp) as held, Client(s.resp) as c:
        held.send(b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n")
        assert c.do("AUTH", "secret") == "OK"
        before = s.workers()
        s.reload()
        assert str(held.reply()).startswith("WRONGPASS ")
    wait_until(lambda: not any(is_alive(worker) for worker in before), "the end of the worker before")
    assert "alert" not in s.errors()


# ---- The clients that people use ----

def test_redis_cli(server):
    s = server()
    assert run("redis-cli", "-p", s.resp, "CL.THROTTLE", "user123", 15, 30, 60) == "0\n16\n15\n-1\n2\n"
    assert "1# \"decision\" => \"allow\"" in run("redis-cli", "--no-raw", "-3", "-p", s.resp, "WEIR.CHECK", "path",
                                               "/api/x", "header:x-user", "7").replace("\\", "")
    typed = run("redis-cli", "-p", s.resp, input="PING\nSELECT 0\nSELECT 1\nNOSUCH x\nCLIENT ID\nQUIT\n")
    assert typed.startswith("PONG\nOK\nERR DB index is out of range\n\nERR unknown command 'NOSUCH'\n"), typed


def test_redis_benchmark(server):
    s = server()
    for depth in (1, 64):
        output = run("redis-benchmark", "-p", s.resp, "-n", 20000, "-c", 20, "-P", depth, "-q", "-r", 1000, "CL.THROTTLE",
                   "key:__rand_int__", 15, 30, 60)
        assert "requests per second" in output and "rror" not in output.replace("Could not fetch server CONFIG", ""), output
    with Client(s.resp) as c:
        stats = fields(c.do("WEIR.STATS"))
        assert stats["allowed"] + stats["denied"] >= 40000 and stats["errors"] == 0


def test_redis_py(server):
    s = server(stream="weir_resp_password alice wonder;")
    client = redis.Redis(port=s.resp, username="alice", password="wonder", client_name="py", db=0)
    assert client.ping() and client.client_getname() == "py"
    assert client.execute_command("CL.THROTTLE", "user123", 15, 30, 60) == [0, 16, 15, -1, 2]
    pipe = client.pipeline(transaction=False)
    for _ in range(1000):
        pipe.execute_command("CL.THROTTLE", "many", 499, 10, 86400)
    assert sum(reply[0] == 0 for reply in pipe.execute()) == 500
    with pytest.raises(redis.ResponseError, match="unknown command 'GET'"):
        client.get("x")
    assert client.info()["redis_mode"] == "standalone"
    with pytest.raises((redis.ResponseError, redis.AuthenticationError), match="WRONGPASS|invalid username-password pair"):
        redis.Redis(port=s.resp, username="alice", password="wrong").ping()


def test_ioredis(server):
    assert (NODE_MODULES / "ioredis").exists(), "./dev test installs it"
    s = server()
    script = f"""
        const Redis = require("ioredis");
        (async () => {{
            const r = new Redis({{port: {s.resp}, connectionName: "io"}});
            const one = await r.call("CL.THROTTLE", "user123", 15, 30, 3600);
            const p = r.pipeline();
            for (let i = 0; i < 20; i++) p.call("CL.THROTTLE", "user123", 15, 30, 3600);
            const many = (await p.exec()).map(([error, reply]) => reply[0]);
            console.log(JSON.stringify([one, many, await r.client("GETNAME")]));
            r.disconnect();
        }})();"""
    output = run("node", "-e", script, env={**os.environ, "NODE_PATH": str(NODE_MODULES)})
    assert output == '[[0,16,15,-1,120],[' + ",".join(["0"] * 15 + ["1"] * 5) + '],"io"]\n'


@pytest.mark.parametrize("version", [2, 3])
def test_node_redis(server, version):
    assert (NODE_MODULES / "redis").exists(), "./dev test installs it"
    s = server(stream="weir_resp_password alice wonder;")
    script = f"""
        const {{ createClient }} = require("redis");
        (async () => {{
            const r = createClient({{RESP: {version}, name: "node", username: "alice", password: "wonder",
                                     socket: {{host: "127.0.0.1", port: {s.resp}}}}});
            r.on("error", (error) => {{ console.log(String(error)); process.exit(1); }});
            await r.connect();
            const throttle = () => r.sendCommand(["CL.THROTTLE", "user123", "15", "30", "3600"]);
            const one = await throttle();
            const many = (await Promise.all(Array.from({{length: 20}}, throttle))).map((reply) => reply[0]);
            const checked = await r.sendCommand(["WEIR.CHECK", "path", "/api/x", "header:X-User", "42"]);
            const pairs = Array.isArray(checked) ? checked : Object.entries(checked).flat();
            const refused = await r.sendCommand(["GET", "x"]).catch((error) => error.message);
            console.log(JSON.stringify([one, many, await r.clientGetName(), pairs.slice(0, 8), refused]));
            r.destroy();
        }})();"""
    output = run("node", "-e", script, env={**os.environ, "NODE_PATH": str(NODE_MODULES)})
    one, many, name, pairs, refused = json.loads(output)
    assert one == [0, 16, 15, -1, 120] and many == [0] * 15 + [1] * 5 and name == "node"
    assert pairs == ["decision", "allow", "rule", "api", "key", "user:42", "limit", 5]
    assert refused == "ERR unknown command 'GET'"


def test_commands_that_clients_send(server):
    s = server()
    with Client(s.resp) as c:
        count = c.do("COMMAND", "COUNT")
        known = c.do("COMMAND")
        assert len(known) == count and all(len(each) == 10 for each in known)
        assert b"cl.throttle" in [each[0] for each in known]
        assert c.do("COMMAND", "DOCS") == []
        info = c.do("COMMAND", "INFO", "cl.throttle", "nope")
        assert info[0][1:6] == [-5, ["fast"], 1, 1, 1] and info[1] is None
        assert len(c.do("COMMAND", "INFO", *["ping"] * 256)) == 256
        assert isinstance(c.do("COMMAND", "INFO", *["ping"] * 1000), Broken)
        assert c.do("CLIENT", "SETINFO", "LIB-NAME", "x") == "OK"
        assert c.do("CLIENT", "NO-EVICT", "ON") == "OK"
        assert c.do("CLIENT", "ID") > 0
        assert isinstance(c.do("CLIENT", "SETNAME", "a b"), Broken)
        assert isinstance(c.do("CLIENT", "KILL"), Broken)
        assert c.do("ECHO", b"\x00\r\n\xff") == b"\x00\r\n\xff"
        assert c.do("ECHO", "x" * 65536) == b"x" * 65536
        assert isinstance(c.do("ECHO", "x" * 65537), Broken)
        c.send(b'PING\r\nECHO "a b"\n\r\nCL.THROTTLE inline 15 30 60\r\n')
        assert [c.reply() for _ in range(3)] == ["PONG", b"a b", [0, 16, 15, -1, 2]]
        assert c.do("QUIT") == "OK"
        assert c.is_closed()


# ---- nginx ----

def test_reload_closes_idle_connections_and_keeps_counters(server):
    s = server()
    with Client(s.resp) as idle, Client(s.resp) as busy:
        assert idle.do("CL.THROTTLE", "k", 1, 1, 3600)[2] == 1
        busy.send(b"*1\r\n$4\r\nPI")
        old = s.workers()
        s.reload()
        assert idle.is_closed()
        busy.send(b"NG\r\n")
        assert busy.reply() == "PONG"
        assert busy.is_closed()
        wait_until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in old), "the old workers' end")
    with Client(s.resp) as c:
        assert c.do("CL.THROTTLE", "k", 1, 1, 3600)[2] == 0


def test_rules_reload(server):
    s = server()
    with Client(s.resp) as c:
        request = ("WEIR.PEEK", "path", "/api/x", "header:x-user", "7")
        assert fields(c.do(*request))["limit"] == 5
        s.write_rules(RULES.replace("limit: 5,", "limit: 50,"))
        wait_until(lambda: fields(c.do(*request))["limit"] == 50, "the new rules")


@pytest.mark.parametrize("stream, outside, output", [
    ("weir_resp;", "", '"weir_resp" directive is duplicate'),
    ("weir_resp_password '';", "", "empty password"),
    ("weir_resp_timeout soon;", "", "invalid value"),
    ("", "weir_segment /dev/shm/x 1m;", '"weir_segment" directive is duplicate'),
    ("", "weir_resp;", '"weir_resp" directive is not allowed here'),
])
def test_configurations_that_are_refused(gateway, stream, outside, output):
    one = gateway(RULES, start=False, kind=RespGateway, stream=stream, outside=outside)
    good, reported = one.test()
    assert not good and output in reported, reported


def test_the_documentation(gateway):
    text = (pathlib.Path(__file__).parents[2] / "docs" / "reference" / "resp.md").read_text()
    (example,) = re.findall(r"```nginx\n(.*?)```", text, re.S)
    one = gateway(RULES, start=False, kind=RespGateway)
    for path, own in (("/usr/lib/nginx/modules/ngx_stream_weir_module.so", str(STREAM_MODULE)),
                      ("/dev/shm/weir ", f"{one.segment} "), ("/etc/weir/rules.d", f"{one.folder}/rules"),
                      ("127.0.0.1:6380", f"127.0.0.1:{one.resp}")):
        assert path in example
        example = example.replace(path, own)
    one.config.write_text(f"pid {one.folder}/nginx.pid; error_log {one.folder}/error.log;\n{example}")
    one.start()
    assert "\n0\n16\n15\n-1\n2\n" in "\n" + run("redis-cli", "-p", one.resp, "-a", "s3cret", "--no-auth-warning",
                                               "CL.THROTTLE", "user123", 15, 30, 60)
    assert run("redis-cli", "-p", one.resp, "--user", "admin", "--pass", "0per4tor", "--no-auth-warning", "WEIR.BLOCK",
               "api", "user:42", 3600) == "OK this host\n"
    with Client(one.resp) as c:
        assert c.do("AUTH", "s3cret") == "OK"
        for command in c.do("COMMAND"):
            assert command[0].decode().upper() in text, command


def test_a_segment_is_needed(gateway):
    one = gateway(RULES, start=False, kind=RespGateway)
    head, stream = one.config.read_text().split("\nstream {")
    one.config.write_text(head + "\nstream {" + "\n".join(stream.splitlines()[2:]))
    good, reported = one.test()
    assert not good and '"weir_segment" is missing in stream' in reported, reported
