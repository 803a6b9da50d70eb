"""The same questions to weir and to what it takes the place of: envoyproxy/ratelimit over gRPC, throttlecrab over RESP.

tools/peer.sh builds them into build/peers, where there are go and cargo: ./dev test the one, ./dev bench service both.
"""
import contextlib
import os
import random
import shutil
import socket
import subprocess
import time

import pytest

from gateway import wait_until
from ports import free_port
from resp import Client, RespGateway
from rls import LOCATIONS, OK, ROOT, client, descriptor, request, rls_pb2

PEERS = ROOT / "build" / "peers"
RULES = """
domain: d
descriptors:
  - { key: day, rate_limit: { unit: day, requests_per_unit: 12, name: by-day } }
  - { key: hour, rate_limit: { unit: hour, requests_per_unit: 25 } }
  - { key: month, rate_limit: { unit: month, requests_per_unit: 7 } }
  - { key: year, value: special, rate_limit: { unit: year, requests_per_unit: 3 } }
  - { key: year, rate_limit: { unit: year, requests_per_unit: 40 } }
  - { key: banned, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: instead, rate_limit: { unit: day, requests_per_unit: 9, replaces: [ { name: by-day } ] } }
  - { key: tried, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 5 } }
  - { key: start, value: abc*, rate_limit: { unit: day, requests_per_unit: 15 } }
  - { key: nothing }
  - key: nested
    rate_limit: { unit: day, requests_per_unit: 30 }
    descriptors:
      - { key: inner, value: a, rate_limit: { unit: hour, requests_per_unit: 6 } }
      - { key: inner, rate_limit: { unit: day, requests_per_unit: 10 } }
"""
SHAPES = [("day",), ("hour",), ("month",), ("year",), ("banned",), ("free",), ("instead",), ("tried",), ("start",),
          ("nothing",), ("nested",), ("nested", "inner"), ("unknown",), ("inner",), ("nested", "unknown")]
VALUES = ["a", "b", "special", "abc1", ""]


def program(name):
    path = PEERS / name
    if not path.exists():
        pytest.skip(f"{name} is not there; tools/peer.sh {name} build/peers builds it")
    return path


@contextlib.contextmanager
def running(*command, port, **environment):
    with subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, env={**os.environ, **environment}) as process:
        def listens():
            assert process.poll() is None, f"{command[0]} ended"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
            return False
        try:
            wait_until(listens, f"{command[0]} to listen")
            yield port
        finally:
            process.terminate()


# ---- envoyproxy/ratelimit ----

@contextlib.contextmanager
def ratelimit(folder):
    config = folder / "ratelimit" / "config"
    config.mkdir(parents=True)
    (config / "c.yaml").write_text(RULES)
    redis, grpc = free_port(), free_port()
    with running("redis-server", "--port", redis, "--save", "", "--appendonly", "no", "--dir", folder, port=redis), \
            running(program("ratelimit"), port=grpc, USE_STATSD="false", LOG_LEVEL="error", REDIS_SOCKET_TYPE="tcp",
                    REDIS_URL=f"127.0.0.1:{redis}", RUNTIME_ROOT=str(folder), RUNTIME_SUBDIRECTORY="ratelimit",
                    RUNTIME_WATCH_ROOT="false", HOST="127.0.0.1", PORT=str(free_port()), GRPC_HOST="127.0.0.1",
                    GRPC_PORT=str(grpc), DEBUG_HOST="127.0.0.1", DEBUG_PORT=str(free_port()),
                    LIMIT_RESPONSE_HEADERS_ENABLED="true"), client(grpc) as sent:
        wait_until(lambda: sent.request("nothing=x").overall_code == OK, "ratelimit to have its rules")
        yield sent


def random_descriptor(chance):
    shape, values, limit = chance.choice(SHAPES), VALUES, None
    if chance.random() < 0.1:
        # With values of their own, for there such a limit shares the counter of the rule that it replaces; of their unit's own,
        # for there windows that begin at the same second have one counter, as an hour and a day do until one in the morning.
        unit = chance.choice(["HOUR", "DAY", "MONTH", "YEAR"])
        limit = chance.randint(1, 12), rls_pb2.Unit.Value(unit)
        values = [f"own {unit}", f"own {unit} too"]
    # A look at a limit of 0 is told apart in docs/reference/grpc.md.
    hits = None if "banned" in shape or chance.random() < 0.6 else chance.choice([0, 0, 1, 2, 5, 20])
    return descriptor(*(f"{key}={chance.choice(values)}" for key in shape), hits=hits, limit=limit)


def random_request(chance):
    """No descriptor occurs twice: lookups of the same call are distinguished there, too."""
    made = {str(each.entries): each for each in (random_descriptor(chance) for _ in range(chance.randint(1, 5)))}
    return request(*made.values(), hits=chance.choice([0, 0, 1, 1, 2, 4]),
                   domain="elsewhere" if chance.random() < 0.03 else "d")


def without_resets(answer):
    """All but the resets, and those."""
    resets = [status.duration_until_reset.seconds for status in answer.statuses]
    for status in answer.statuses:
        status.ClearField("duration_until_reset")
    headers = {header.key.lower(): header.value for header in answer.response_headers_to_add}
    resets.append(int(headers.pop("ratelimit-reset", 0)))
    answer.ClearField("response_headers_to_add")
    return (answer, headers), resets


def test_as_envoyproxy_ratelimit(gateway, tmp_path):
    program("ratelimit")
    if not shutil.which("redis-server"):
        pytest.skip("envoyproxy/ratelimit needs a redis-server")
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    one = gateway(RULES, server=LOCATIONS, listen="http2", http="weir_rls_headers on;")
    with ratelimit(tmp_path) as theirs, client(one.port) as ours:
        seen = set()
        for number in range(500):
            sent = random_request(chance)
            (expected, expected_resets), (got, got_resets) = (without_resets(who.should(sent, timeout=10)) for who in (theirs, ours))
            assert got == expected, f"seed {seed}, request {number}: {sent}"
            assert all(abs(a - b) <= 3 for a, b in zip(got_resets, expected_resets)), f"seed {seed}, request {number}"
            seen.add(got[0].overall_code)
        assert len(seen) == 2  # some passed, some did not


# ---- throttlecrab ----

@pytest.fixture
def throttlers(gateway):
    """A client of throttlecrab and one of weir."""
    port = free_port()
    one = gateway("rules: [ { name: none, match: { path: /x }, limit: 1, window: 1s } ]", kind=RespGateway, resp_rules=False)
    with running(program("throttlecrab"), "--redis", "--redis-host", "127.0.0.1", "--redis-port", port, "--log-level",
                 "error", port=port), Client(port) as theirs, Client(one.resp) as ours:
        yield theirs, ours


def test_as_throttlecrab(throttlers):
    """Differences by docs/reference/resp.md: another order, a burst that is the complete bucket, other roundings."""
    theirs, ours = throttlers
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    # Not of 1: a bucket of one unit never limits there.
    limits = [(chance.randint(2, 40), chance.randint(1, 30), 3600) for _ in range(20)]
    for number in range(1000):
        key = chance.randrange(len(limits))
        (bucket, count, period), quantity = limits[key], chance.choice([0, 1, 1, 1, 2, 3, 50])
        allowed, limit, remaining, _, retry = theirs.do("THROTTLE", f"k{key}", bucket, count, period, quantity)
        got = ours.do("CL.THROTTLE", f"k{key}", bucket - 1, count, period, quantity)
        assert got[:3] == [1 - allowed, limit, remaining], f"seed {seed}, call {number}"
        if got[0] and quantity <= bucket:
            assert abs(got[3] - retry) <= 2, f"seed {seed}, call {number}"  # up here, down there, and at another moment


def test_a_bucket_that_has_recovered_holds_no_more(throttlers):
    theirs, ours = throttlers
    burst, count = 5, 5  # a second for all of it
    for name, who, size in (("THROTTLE", theirs, burst), ("CL.THROTTLE", ours, burst - 1)):
        who.pipeline([(name, "k", size, count, 1)] * burst)
    time.sleep(1.3)
    passed = sum(reply[0] == 0 for reply in ours.pipeline([("CL.THROTTLE", "k", burst - 1, count, 1)] * 3 * burst))
    there = sum(reply[0] for reply in theirs.pipeline([("THROTTLE", "k", burst, count, 1)] * 3 * burst))
    assert passed == burst <= there
