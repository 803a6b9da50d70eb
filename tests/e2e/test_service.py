"""weir serve with a service: three protocols, one set of rules and counters, and who may use them."""
import contextlib
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import time

import grpc
import httpx
import pytest
import redis
from ports import free_port
import rls
from gateway import NGINX, wait_until
from served import Backend, Served, certificate

ROOT = pathlib.Path(__file__).parent.parent.parent
NODE_MODULES = ROOT / "build" / "node" / "node_modules"
CLIENTS = ROOT / "build" / "clients"

RULES = """
rules: @FOLDER@/rules
"""
OWN = """
rules:
  - { name: logins, match: { path: /login }, key: 'ip:${client_ip}', limit: 3, window: 1h, algorithm: fixed_window }
"""
DESCRIPTORS = """
domain: d
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 4 } }
"""
HEAD = """
segment: { path: @FOLDER@/segment, size: 16MiB }
workers: 2
metrics: 127.0.0.1:@METRICS@
service:
  grpc: 127.0.0.1:@GRPC@
  http: 127.0.0.1:@HTTP@
  resp: 127.0.0.1:@RESP@
"""


@pytest.fixture
def service():
    made = []

    def make(yaml=HEAD, before=None):
        ports = {name: free_port() for name in ("GRPC", "HTTP", "RESP")}
        for name, port in ports.items():
            yaml = yaml.replace(f"@{name}@", str(port))
        one = Served(yaml + RULES)
        made.append(one)
        (one.folder / "rules").mkdir()
        (one.folder / "rules" / "own.yaml").write_text(OWN)
        (one.folder / "rules" / "descriptors.yaml").write_text(DESCRIPTORS)
        if before:
            before(one)
        one.start()
        one.grpc, one.http, one.resp = ports["GRPC"], ports["HTTP"], ports["RESP"]
        return one

    yield make
    for one in made:
        one.remove()


def check(port, **more):
    body = {"attributes": {"path": "/login", "method": "POST", "ip": "203.0.113.9"}}
    return httpx.post(f"http://127.0.0.1:{port}/v1/check", json=body, timeout=10, **more)


def test_three_protocols_share_the_counters(service):
    one = service()
    for what in ("grpc://127.0.0.1", "http://127.0.0.1", "redis://127.0.0.1", "2 rules"):
        one.wait_for_log(what)
    assert check(one.http).json()["remaining"] == 2
    with redis.Redis(port=one.resp, decode_responses=True) as client:
        assert client.ping()
        answer = client.execute_command("WEIR.CHECK", "path", "/login", "method", "POST", "ip", "203.0.113.9")
        assert dict(zip(answer[::2], answer[1::2]))["remaining"] == 1
        assert client.execute_command("CL.THROTTLE", "user123", 15, 30, 60) == [0, 16, 15, -1, 2]
    assert check(one.http).json()["allowed"]
    denied = check(one.http).json()
    assert not denied["allowed"] and denied["rule"] == "logins" and denied["key"] == "ip:203.0.113.9"

    with rls.client(one.grpc) as client:
        assert client.codes("user=a", count=3) == [rls.OK] * 3
    body = {"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "a"}]}]}
    assert [httpx.post(f"http://127.0.0.1:{one.http}/json", json=body).status_code for _ in range(2)] == [200, 429]
    assert httpx.get(f"http://127.0.0.1:{one.http}/healthcheck").text == "OK"

    auth = httpx.get(f"http://127.0.0.1:{one.http}/v1/auth", headers={
        "X-Forwarded-Method": "POST", "X-Forwarded-Uri": "/login", "X-Forwarded-For": "203.0.113.77"})
    assert auth.status_code == 200 and auth.headers["X-RateLimit-Limit"] == "3"
    metrics = httpx.get(f"http://127.0.0.1:{one.metrics}/metrics").text
    assert 'weir_decisions_total{rule="logins",decision="deny",shadow="false"} 1' in metrics


def test_drained_in_one_way_is_limited_in_all(service):
    backend = Backend()
    try:
        one = service(HEAD + f"""
gateway: {{ listen: 127.0.0.1:@PORT@, upstreams: ['{backend.url}'] }}
""")
        with redis.Redis(port=one.resp, decode_responses=True) as client:
            for _ in range(3):
                client.execute_command("WEIR.CHECK", "path", "/login", "ip", "127.0.0.1")
            for _ in range(4):
                client.execute_command("WEIR.CHECK", "DOMAIN", "d", "user", "c")
        assert one.get("/login").status == 429 and one.get("/other").status == 200
        with rls.client(one.grpc) as client:
            assert client.request("user=c").overall_code == rls.OVER
            assert client.request("user=d").overall_code == rls.OK
    finally:
        backend.stop()


def test_access(service):
    one = service(HEAD + """
  access:
    tokens: [token-of-clients]
    operator_tokens: [token-of-operators]
    password: password-of-clients
    operator_password: password-of-operators
""")
    assert check(one.http).status_code == 401
    assert check(one.http, headers={"Authorization": "Bearer wrong-token"}).status_code == 401
    assert check(one.http, headers={"Authorization": "Bearer token-of-clients"}).status_code == 200
    key = f"http://127.0.0.1:{one.http}/v1/keys/logins/ip%3A203.0.113.9"
    assert httpx.delete(key, headers={"Authorization": "Bearer token-of-clients"}).status_code == 403
    assert httpx.delete(key, headers={"Authorization": "Bearer token-of-operators"}).status_code in (200, 204)
    with redis.Redis(port=one.resp) as client, pytest.raises(redis.exceptions.AuthenticationError):
        client.ping()
    with redis.Redis(port=one.resp, password="password-of-clients") as client:
        assert client.ping()
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command("WEIR.RESET", "logins", "ip:203.0.113.9")
    with redis.Redis(port=one.resp, password="password-of-operators") as client:
        client.execute_command("WEIR.RESET", "logins", "ip:203.0.113.9")
    # Neither in what is said, nor for others to read.
    assert "token-of" not in one.log_text() and "password-of" not in one.log_text()


ASKED = {"X-Forwarded-Method": "POST", "X-Forwarded-Uri": "/login", "X-Forwarded-For": "203.0.113.9"}
TOKEN = "token-of-clients"
GUARDED = HEAD + f"""
  access:
    tokens: [{TOKEN}]
"""


def count_by(port, way, source=None, **headers):
    """A request to one of the endpoints that count, from 127.0.0.1 or another address of this host."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    # Wrong tokens are delayed by up to 7 s, on an idle machine.
    with httpx.Client(transport=httpx.HTTPTransport(local_address=source), timeout=30,
                      base_url=f"http://127.0.0.1:{port}") as client:
        if way.startswith("/v1/auth"):
            return client.get(way, headers={**ASKED, **headers})
        body = {"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "a"}]}]} if way == "/json" else {
            "attributes": {"path": "/login", "ip": "203.0.113.9"}}
        return client.post(way, json=body, headers=headers)


def test_tokens_guard_everything_that_counts(service):
    one = service(GUARDED)
    ways = "/json", "/v1/auth", "/v1/auth/403", "/v1/check", "/v1/refund", "/v1/reserve"
    for at, way in enumerate(ways):
        # Each from an address of its own: further guesses of one are delayed.
        refused = [count_by(one.http, way, f"127.0.{1 + at}.{1 + number}", **headers) for number, headers in enumerate((
            {}, {"X_Weir_Token": "wrong-token"}, {"Authorization": "Bearer wrong-token"},
            {"X_Weir_Token": "wrong-token", "Authorization": f"Bearer {TOKEN}"}))]
        assert [answer.status_code for answer in refused] == [401] * 4, way
        assert all(answer.headers["WWW-Authenticate"] and answer.json()["error"]["code"] == "unauthorized" for answer in refused)
    # Nothing of that was counted.
    assert count_by(one.http, "/v1/check", Authorization=f"Bearer {TOKEN}").json()["remaining"] == 2
    assert count_by(one.http, "/v1/check", X_Weir_Token=TOKEN).json()["remaining"] == 1
    assert count_by(one.http, "/json", Authorization=f"Bearer {TOKEN}").json()["statuses"][0]["limitRemaining"] == 3
    # In forward authentication Authorization is the client's: no token of the proxy, even if it is one.
    assert count_by(one.http, "/v1/auth", Authorization=f"Bearer {TOKEN}").status_code == 401
    sent = count_by(one.http, "/v1/auth", X_Weir_Token=TOKEN, Authorization="Bearer of-the-client")
    assert sent.status_code == 200 and sent.headers["X-RateLimit-Remaining"] == "0"
    assert count_by(one.http, "/v1/auth/403", X_Weir_Token=TOKEN).status_code == 403
    assert httpx.get(f"http://127.0.0.1:{one.http}/healthcheck").text == "OK"


def test_open_endpoints_are_named(service):
    one = service(GUARDED + """    operator_tokens: [token-of-operators]
    open: [auth, json]
""")
    assert [count_by(one.http, way).status_code for way in ("/v1/check", "/json", "/v1/auth")] == [401, 200, 200]
    assert count_by(one.http, "/json", X_Weir_Token="wrong-token").status_code == 401
    one.change("open: [auth, json]", "open: api")
    # All three: workers with the old file may still accept connections when the first with the new one does.
    wait_until(lambda: [count_by(one.http, way).status_code for way in ("/v1/check", "/json", "/v1/auth")] == [200, 401, 401],
               "the changed file")
    key = f"http://127.0.0.1:{one.http}/v1/keys/logins/ip%3A203.0.113.9"
    assert [httpx.delete(key, headers=headers).status_code for headers in (
        {}, {"X-Weir-Token": TOKEN}, {"X-Weir-Token": "token-of-operators"})] == [403, 403, 200]


def test_only_trusted_proxies_describe_requests(service):
    one = service(HEAD + """
  auth: { trusted_proxies: [127.0.0.2, 192.0.2.0/24] }
""")
    refused = count_by(one.http, "/v1/auth")
    assert refused.status_code == 403 and refused.json()["error"]["code"] == "untrusted_proxy", refused.text
    one.wait_for_log("forward auth refuses 127.0.0.1")
    assert count_by(one.http, "/v1/auth", source="127.0.0.2").headers["X-RateLimit-Remaining"] == "2"
    assert count_by(one.http, "/v1/check").status_code == 200  # that is for forward auth alone


def test_by_default_proxies_are_on_this_host_or_authenticate(service):
    """A peer with another address than a loopback one: this host's own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing
        mine = probe.getsockname()[0]
    if "mine" not in locals() or mine.startswith("127."):
        pytest.skip("this host has no address but loopback ones")
    plain = service(HEAD.replace("http: 127.0.0.1:", "http: 0.0.0.0:"))
    guarded = service(GUARDED.replace("http: 127.0.0.1:", "http: 0.0.0.0:"))
    answers = [httpx.get(f"http://{mine}:{port}/v1/auth", headers=headers) for port, headers in (
        (plain.http, ASKED), (guarded.http, ASKED), (guarded.http, {**ASKED, "X-Weir-Token": TOKEN}))]
    assert [answer.status_code for answer in answers] == [403, 401, 200]
    tls = service(HEAD.replace("http: 127.0.0.1:", "http: 0.0.0.0:") + """
  tls: { certificate: server.pem, key: server.key, client_ca: client.pem }
""", before=lambda one: [certificate(one.folder, name) for name in ("server", "client")])
    mutual = httpx.get(f"https://{mine}:{tls.http}/v1/auth", headers=ASKED, verify=False,
                       cert=(str(tls.folder / "client.pem"), str(tls.folder / "client.key")))
    assert mutual.status_code == 200


@pytest.mark.parametrize("family, ignored", [("original", "X-Forwarded"), ("forwarded", "X-Original")])
def test_forward_auth_has_one_family_of_headers(service, family, ignored):
    one = service(HEAD + f"""
  auth: {{ headers: {family} }}
""")
    named = "X-Original" if family == "original" else "X-Forwarded"
    sent = {f"{named}-Method": "POST", f"{named}-URI": "/login", "X-Forwarded-For": "203.0.113.9",
             f"{ignored}-Method": "GET", f"{ignored}-URI": "/other", f"{ignored}-Host": "other.example"}
    answers = [httpx.get(f"http://127.0.0.1:{one.http}/v1/auth", headers=sent) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    lost = httpx.get(f"http://127.0.0.1:{one.http}/v1/auth", headers={f"{ignored}-URI": "/other"})
    assert lost.status_code == 400 and f"{named}-Uri".lower() in lost.text.lower()


def test_certificates_of_clients(service):
    def make(one):
        for name in ("server", "client"):
            certificate(one.folder, name)

    one = service(HEAD + """
  tls: { certificate: server.pem, key: server.key, client_ca: client.pem }
""", before=make)
    folder = one.folder
    trusted = ssl.create_default_context(cafile=str(folder / "server.pem"))
    where = f"https://127.0.0.1:{one.http}/healthcheck"
    assert httpx.get(where, verify=trusted).status_code == 400  # no certificate was sent
    trusted.load_cert_chain(str(folder / "client.pem"), str(folder / "client.key"))
    assert httpx.get(where, verify=trusted).text == "OK"

    root, key, chain = ((folder / name).read_bytes() for name in ("server.pem", "client.key", "client.pem"))
    with rls.client(one.grpc, credentials=grpc.ssl_channel_credentials(root, key, chain)) as client:
        assert client.request("user=b").overall_code == rls.OK
    command = ["redis-cli", "-p", str(one.resp), "--tls", "--cacert", str(folder / "server.pem")]
    mine = ["--cert", str(folder / "client.pem"), "--key", str(folder / "client.key")]
    assert subprocess.run([*command, *mine, "PING"], capture_output=True, text=True, timeout=60).stdout == "PONG\n"
    assert "PONG" not in subprocess.run([*command, "PING"], capture_output=True, text=True, timeout=60).stdout


def test_beyond_this_machine_is_warned_of(service):
    one = service(HEAD.replace("grpc: 127.0.0.1:", "grpc: 0.0.0.0:"))
    one.wait_for_log("is open to every client that can reach it: gRPC has no tokens; set tls with client_ca")


def test_the_warning_names_what_is_open(service):
    one = service(GUARDED.replace("http: 127.0.0.1:", "http: 0.0.0.0:") + "    open: [json]\n")
    warning = f"0.0.0.0:{one.http}: /json is open to every client that can reach it"
    one.wait_for_log(warning)
    checked = one.run("--check")
    assert warning in checked.stderr + checked.stdout
    one.change("    open: [json]\n", "")
    checked = one.run("--check")
    assert "is open to" not in checked.stderr + checked.stdout
    one.change(f"    tokens: [{TOKEN}]\n", "    password: of-redis-clients\n")
    checked = one.run("--check")
    assert f"0.0.0.0:{one.http}: /v1/, /json is open" in checked.stderr + checked.stdout


# ---- examples/ ----

def play(port, *command, **more):
    return subprocess.run(command, env={**os.environ, "PORT": str(port), **more}, capture_output=True, text=True,
                          timeout=120, check=True).stdout.splitlines()


def throttled(port, *command, **more):
    """An example that asks four times. Its next is due two minutes after the first: what is left of them, however long it took.
    What it says besides."""
    begun = time.monotonic()
    *passed, denied = (output := play(port, *command, **more))[:4]
    took = time.monotonic() - begun
    assert passed == ["1: passes, 2 left", "2: passes, 1 left", "3: passes, 0 left"], output
    left = int(re.fullmatch(r"4: denied, come back in (\d+) s", denied)[1])
    assert 120 - took <= left <= 120, (left, took)
    return output[4:]


def test_clients_in_python_and_node(service):
    one = service()
    assert "'rule': 'logins'" in throttled(one.resp, "/usr/bin/python3", str(ROOT / "examples/clients/throttle.py"))[0]
    assert (NODE_MODULES / "ioredis").exists(), "./dev test installs it"
    assert throttled(one.resp, "node", str(ROOT / "examples/clients/throttle.js"), NODE_PATH=str(NODE_MODULES)) == []


def test_client_in_go(service):
    if not (CLIENTS / "throttle").exists():
        pytest.skip("the example is not built; tools/clients.sh go build/clients does, with go")
    assert throttled(service().resp, str(CLIENTS / "throttle")) == []


def test_client_in_java(service):
    if not (CLIENTS / "jars").exists():
        pytest.skip("there is no Jedis; tools/clients.sh java build/clients gets it, with mvn")
    assert throttled(service().resp, "java", "-cp", f"{CLIENTS}/jars/*", str(ROOT / "examples/clients/Throttle.java")) == []


@contextlib.contextmanager
def running(*command, port):
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            wait_until(lambda: process.poll() is not None or is_open(port), "an example to listen")
            assert process.poll() is None, process.stdout.read()
            yield
        finally:
            process.terminate()


def is_open(port):
    with contextlib.suppress(OSError, httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{port}/", timeout=2)
        return True
    return False


def example(folder, name, ports):
    """A copy of an example's folder with ports of this test's; and who passes after 100 ms passes, here, after 5 s."""
    copy = folder / pathlib.Path(name).name
    shutil.copytree(ROOT / "examples" / name, copy)
    for path in copy.iterdir():
        text = path.read_text()
        for old, new in ports.items():
            text = text.replace(f":{old}", f":{new}")
        path.write_text(text.replace("timeout = 100,", "timeout = 5000,"))
    return copy


@pytest.mark.parametrize("name", ["nginx", "haproxy"])
def test_forward_auth_of_other_gateways(service, name):
    """As their comments describe, whatever headers the client sends."""
    one, backend, port = service(HEAD + "  auth: { headers: forwarded }\n"), Backend(), free_port()
    forged = {f"X-{family}-{name}": value for family in ("Forwarded", "Original") for name, value in (
        ("Uri", "/other"), ("Method", "PUT"), ("Host", "other.example"), ("For", "192.0.2.1"))}
    copy = example(one.folder, name, {9000: backend.port, 8082: one.http, 8088: port, 8089: port})
    command = ([NGINX, "-p", str(copy), "-c", str(copy / "auth_request.conf"), "-e", "stderr", "-g",
                f"daemon off; pid {copy}/pid;"] if name == "nginx"
               else ["haproxy", "-C", str(copy), "-f", str(copy / "haproxy.cfg"), "-db"])
    try:
        with running(*command, port=port):
            time.sleep(0.1)
            answers = [httpx.post(f"http://127.0.0.1:{port}/login", headers=forged, timeout=10) for _ in range(5)]
            assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
            assert 0 < int(answers[4].headers["Retry-After"]) <= 3600
            assert httpx.get(f"http://127.0.0.1:{port}/other", timeout=10).status_code == 200
    finally:
        backend.stop()
