"""Every listener of a running weir serve, fuzzed. In ./dev test: 150 requests each, from one seed. ./dev fuzz: WEIR_FUZZ_SECONDS
each, from a seed that the output names (WEIR_FUZZ_SEED repeats it)."""
import contextlib
import json
import os
import random
import socket

import pytest

import listeners
import rls
from clients import get
from controlled import Host, weir
from ports import free_port
from redis_server import RedisServer
from served import Backend

SECONDS = float(os.environ.get("WEIR_FUZZ_SECONDS", 0)) or None
SEED = int(os.environ.get("WEIR_FUZZ_SEED", random.randrange(10**9) if SECONDS else 1))
STEPS, REFUSED_STEPS = (None, None) if SECONDS else (150, 20)  # checks of those without credentials are held back on purpose
CLIENT, OPERATOR, PASSWORD, OPERATOR_PASSWORD = "client-token", "operator-token", "redis-password", "redis-operator"
YAML = """gateway: { listen: "127.0.0.1:@PORT@", upstreams: ["@BACKEND@"] }
service:
  grpc: 127.0.0.1:@GRPC@
  http: 127.0.0.1:@HTTP@
  resp: 127.0.0.1:@RESP@
  access: { tokens: [client-token], operator_tokens: [operator-token], password: redis-password, operator_password: redis-operator }
admin: { listen: "127.0.0.1:@ADMIN@", rules: database }
metrics: 127.0.0.1:@METRICS@
segment: { path: "@FOLDER@/segment", size: 4MiB }
state: "@FOLDER@/state"
store: { url: "redis://127.0.0.1:@STORE@", deadline: 3s }
queue: on
load: on
hot_keys: 1MiB
workers: 2
rules:
  - { name: two, match: { path: /two }, key: "${header:X-API-Key}", limit: 100000, window: 1h }
  - { name: later, match: { path: /queue }, key: "u:${header:X-User-Id}", limit: 1, window: 1h, on_limit: queue }
  - { name: log, match: { path: "/api/*" }, key: "ip:${client_ip}", limit: 50, window: 1s, algorithm: sliding_window_log }
  - { name: flight, match: { path: /auth/login }, key: "ip:${client_ip}", limit: 5, algorithm: concurrency }
  - { name: regex, match: { path: { regex: "^/x(a|b)*$" } }, limit: 100, window: 1s }
  - { name: strict, match: { path: /strict }, key: "${header:X-API-Key}", limit: 50, window: 1s, consistency: strict }
  - { name: shared, match: { path: /shared }, key: "${query:user}", limit: 50, window: 1s, consistency: eventual }
"""
pytestmark = pytest.mark.xdist_group("fuzz_listeners")


class Fuzzed(Host):
    """A weir serve with every listener, and tokens of each role."""

    def __init__(self, backend, store):
        self.grpc, self.http, self.resp = free_port(), free_port(), free_port()
        text = YAML.replace("@STORE@", str(store.port))
        super().__init__(text.replace("@GRPC@", str(self.grpc)).replace("@HTTP@", str(self.http)).replace("@RESP@", str(self.resp)), backend)

    def begin(self):
        super().begin()
        self.tokens = {"operator": self.token, "nobody": "", "wrong": "wrong-token"}
        for role in ("viewer", "editor"):
            self.tokens[role] = weir("token", "create", f"a-{role}", "--role", role, "--file", "weir.yaml", cwd=self.folder).stdout.strip()
        self.processes = self.workers(), self.wait_for_agent()
        return self

    def is_whole(self):
        """No process died, no sanitizer complained, and each listener serves those who have the right credentials."""
        assert self.process.poll() is None, self.log_text()[-5000:]
        assert (self.workers(), self.wait_for_agent()) == self.processes, self.log_text()[-5000:]
        output = self.log_text()
        for word in ("AddressSanitizer", "runtime error", "exited on signal", "[alert]", "[emerg]"):
            assert word not in output, output[-5000:]
        assert get(self.port, "/plain").status == 200
        assert self.request("GET", "/v1/rules")[0] == 200
        answer = get(self.http, "/v1/check", "POST", {"Authorization": f"Bearer {CLIENT}", "Content-Type": "application/json"},
                     json.dumps({"attributes": {"path": "/plain"}}))
        assert answer.status == 200, answer
        with socket.create_connection(("127.0.0.1", self.resp), timeout=10) as s:
            s.sendall(f"AUTH {PASSWORD}\r\nPING\r\n".encode())
            got = b""
            while b"+PONG" not in got:
                more = s.recv(100)
                assert more, got
                got += more
        with contextlib.closing(rls.Client(self.grpc).channel) as channel:
            call = channel.unary_unary(rls.CHECK, rls.health_pb2.HealthCheckRequest.SerializeToString,
                                       rls.health_pb2.HealthCheckResponse.FromString)
            assert call(rls.health_pb2.HealthCheckRequest(), timeout=10).status == 1


@pytest.fixture(scope="module")
def one():
    backend, store = Backend(), RedisServer().start()
    made = Fuzzed(backend, store)
    try:
        yield made.begin()
    finally:
        made.remove()
        backend.stop()
        store.remove()


def fuzz(one, target, steps=STEPS):
    print(f"WEIR_FUZZ_SEED={SEED}")
    done = listeners.run(target, SEED, SECONDS, steps, one.is_whole)
    print(f"{done} requests: {dict(target.statuses.most_common(12))}")
    return target.statuses


def share(statuses, *wanted):
    return sum(count for status, count in statuses.items() if status in wanted) / sum(statuses.values())


@pytest.mark.parametrize("role", ["viewer", "editor", "operator"])
def test_admin_with_a_role(one, role):
    token = one.tokens[role].encode()
    statuses = fuzz(one, listeners.Http(one.admin, listeners.admin_request(token), listeners.admin_greeting(token)))
    assert share(statuses, 401, 429) < 0.1, statuses  # it does not lock itself out
    assert share(statuses, 200, 201, 304) > 0.1, statuses  # and reaches more than the checks of bad input


@pytest.mark.parametrize("role", ["nobody", "wrong"])
def test_admin_without_a_role(one, role):
    statuses = fuzz(one, listeners.Http(one.admin, listeners.admin_request(one.tokens[role].encode())), REFUSED_STEPS)
    assert not {201, 204} & set(statuses), statuses


@pytest.mark.parametrize("token", [CLIENT, OPERATOR, ""])
def test_service_http(one, token):
    statuses = fuzz(one, listeners.Http(one.http, listeners.service_request(token.encode())), STEPS if token else REFUSED_STEPS)
    if token:
        assert share(statuses, 401, 429) < 0.1 and share(statuses, 200) > 0.05, statuses
    else:
        assert share(statuses, 401) > 0.3, statuses


@pytest.mark.parametrize("token", [CLIENT, ""])
def test_forward_auth(one, token):
    statuses = fuzz(one, listeners.Http(one.http, listeners.forward_auth_request(token.encode())), STEPS if token else REFUSED_STEPS)
    assert share(statuses, 401) < 0.1 if token else share(statuses, 401) > 0.3, statuses


@pytest.mark.parametrize("password", [PASSWORD, OPERATOR_PASSWORD, ""])
def test_resp(one, password):
    statuses = fuzz(one, listeners.Resp(one.resp, password.encode()), STEPS if password else REFUSED_STEPS)
    if password:
        assert share(statuses, b"*", b"+", b":", b"$") > 0.1, statuses
    else:
        assert share(statuses, b"-NOA") > 0.1, statuses


def test_grpc(one):
    assert share(fuzz(one, listeners.Grpc(one.grpc)), "answer") > 0.3


def test_gateway(one):
    assert share(fuzz(one, listeners.Http(one.port, listeners.gateway_request)), 200) > 0.1
