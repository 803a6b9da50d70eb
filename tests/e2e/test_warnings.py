"""warn_at and notify: one warning per key and window, in the log, the metrics, weir why and at a receiver that fails, hangs
and recovers."""
import base64
import hashlib
import hmac
import http.server
import json
import re
import ssl
import threading
import time

import pytest

from clients import get
from gateway import wait_until
from served import Backend, Served, certificate
from test_metrics import parse
from test_why import why

pytestmark = pytest.mark.xdist_group("warnings")  # they share a host
SECRET = b"0123456789abcdef0123456789abcdef"
YAML = """
host: gate-1
segment: { path: @FOLDER@/segment, size: 4MiB }
workers: 2
metrics: 127.0.0.1:@METRICS@
%s
gateway: { listen: 127.0.0.1:@PORT@, upstreams: ["@BACKEND@"] }
identity: { tier: header:X-Plan }
rules:
  - { name: api, match: { path: /api/* }, key: "user:${header:x-user}", limit: { free: 5, default: 10 }, window: 1h, algorithm: fixed_window, warn_at: 80%% }
  - { name: tried, match: { path: /tried }, key: "user:${header:x-user}", limit: 4, window: 1h, shadow: true, warn_at: 50%% }
  - { name: quiet, match: { path: /quiet }, key: "user:${header:x-user}", limit: 10, window: 1h }
"""


class Receiver:
    """A receiver of notifications: `behaviour` is a status, or "hang"."""

    def __init__(self, tls=None):
        outer = self
        self.messages, self.attempts, self.behaviour, self.go = [], [], 200, threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.attempts.append((time.monotonic(), self.headers["webhook-id"]))
                if outer.behaviour == "hang":
                    outer.go.wait(20)
                    return
                if outer.behaviour == 200:
                    outer.messages.append((self.path, self.headers, body))
                self.send_response(outer.behaviour)
                self.send_header("Content-Length", "0")
                if outer.behaviour == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *arguments: None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def warnings(self):
        return [each for _, _, body in self.messages for each in json.loads(body)["data"]["warnings"]]

    def remove(self):
        self.go.set()
        self.server.shutdown()
        self.server.server_close()


def signature(headers, body, key=SECRET):
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()


def ask(one, path, user, count=1, **headers):
    headers = {"X-User": user, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return [get(one.port, path, headers=headers).status for _ in range(count)]


def warnings(one, *arguments):
    done = why(one, "--json", *arguments)
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    return json.loads(done.stdout)["warnings"]


def metric(one, name, **labels):
    return parse(get(one.metrics, "/metrics").body.decode())[0].get((name, tuple(sorted(labels.items()))))


def counted(one, rule, shadow="false"):
    return metric(one, "weir_warnings_total", rule=rule, shadow=shadow)


@pytest.fixture
def made():
    things = []
    yield lambda thing: things.append(thing) or thing
    for thing in reversed(things):
        (thing.stop if isinstance(thing, Backend) else thing.remove)()


def served(made, head="", secret=SECRET, start=True):
    one = made(Served(YAML % head, made(Backend())))
    (one.folder / "secret").write_bytes(secret + b"\n")
    (one.folder / "secret").chmod(0o600)
    return one.start() if start else one


def test_log_metrics_why_and_receiver(made):
    receiver = made(Receiver())
    one = served(made, "notify: { url: '%s/hook?token=t0p', secret_file: secret }" % receiver.url)
    # The agent has begun to read, so that the first warning is not older than that.
    wait_until(lambda: metric(one, "weir_notify_pending") == 0, "the notifier")
    assert ask(one, "/api/x", "42", 12) == [200] * 10 + [429] * 2
    assert ask(one, "/api/x", "43", 4, X_Plan="free") == [200] * 4
    assert ask(one, "/tried", "44", 6) == [200] * 6
    ask(one, "/quiet", "45", 12)
    wait_until(lambda: len(receiver.warnings()) >= 3, "three warnings")
    by_key = {each["key"]: each for each in receiver.warnings()}
    assert len(receiver.warnings()) == 3 and set(by_key) == {"user:42", "user:43", "user:44"}
    first = by_key["user:42"]
    assert first["rule"] == "api" and first["used"] == 8 and first["capacity"] == first["limit"] == 10
    assert first["window"] == 3600 and first["warn_at"] == 80 and not first["shadow"] and first["path"] == "/api/x"
    assert by_key["user:43"]["tier"] == "free" and by_key["user:43"]["used"] == 4
    assert by_key["user:44"]["shadow"] and by_key["user:44"]["used"] == 2
    for path, headers, body in receiver.messages:
        message = json.loads(body)
        assert path == "/hook?token=t0p" and headers["webhook-signature"] == signature(headers, body)
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60 and headers["Content-Type"] == "application/json"
        assert message["type"] == "limit.warnings" and message["data"]["host"] == "gate-1" and message["data"]["missed"] == 0
    assert counted(one, "api") == 2 and counted(one, "tried", "true") == 1 and counted(one, "quiet") == 0
    one.wait_for_log("warning: rule api: user:42 has used 8 of 10, warn_at is 80%")
    one.wait_for_log("warning: rule tried (shadow): user:44 has used 2 of 4, warn_at is 50%")
    assert one.log_text().count("has used") == 3
    entry, = warnings(one, "user:42")
    assert entry["reason"] == "warning" and entry["used"] == 8 and entry["count"] == 1
    denied = json.loads(why(one, "--json", "user:42").stdout)["denials"]
    assert len(denied) == 1 and denied[0]["reason"] == "limit" and denied[0]["count"] == 2
    text = why(one, "user:43").stdout
    assert re.match(r"rule api warned of user:43 at \S+Z, \d+ s ago:\n  4 of 5 were used; the limit is 5 in 1h, and warn_at is 80%\n",
                    text) and "would pass" not in text
    assert "rule tried (shadow) warned of user:44" in why(one, "tried").stdout
    assert not warnings(one, "quiet")
    # Nothing secret is in the log or in a command line.
    assert SECRET.decode() not in one.log_text() and "t0p" not in one.log_text()


def test_a_receiver_that_fails_hangs_and_recovers(made):
    receiver = made(Receiver())
    receiver.behaviour = 302
    one = served(made, "notify: { url: '%s', secret_file: secret }" % receiver.url,
                 secret=b"whsec_" + base64.b64encode(SECRET))
    wait_until(lambda: metric(one, "weir_notify_pending") == 0, "the notifier")
    ask(one, "/api/x", "1", 8)
    one.wait_for_log(f"notify {receiver.url}: the reply is 302; retrying in ")
    receiver.behaviour = 503
    one.wait_for_log(f"notify {receiver.url}: the reply is 503; retrying in ")
    (first, identity), (second, again) = receiver.attempts
    assert identity == again and second - first > 0.9 and metric(one, "weir_notify_pending") == 1
    receiver.behaviour = "hang"
    wait_until(lambda: len(receiver.attempts) > 2, "an attempt that hangs")
    began = time.monotonic()
    assert ask(one, "/api/x", "2", 10) == [200] * 10 and time.monotonic() - began < 5  # no decision waits for it
    one.wait_for_log("retrying in", times=3)  # after the deadline of the attempt
    # The agent is killed: the next one goes on where it ended.
    pid = one.kill_agent(0)
    one.wait_for_agent(0, pid)
    receiver.behaviour = 200
    wait_until(lambda: len(receiver.warnings()) == 2, "both warnings", 60)
    assert [each["key"] for each in receiver.warnings()] == ["user:1", "user:2"]
    for _, headers, body in receiver.messages:
        assert headers["webhook-signature"] == signature(headers, body)
    wait_until(lambda: metric(one, "weir_notify_pending") == 0, "that none is pending")
    # A message that is refused for good is dropped, and the next one is sent.
    receiver.behaviour = 422
    ask(one, "/api/x", "3", 8)
    one.wait_for_log("refused with 422; 1 warning is dropped")
    receiver.behaviour = 200
    ask(one, "/api/x", "4", 8)
    wait_until(lambda: len(receiver.warnings()) == 3, "the next one")
    assert receiver.warnings()[-1]["key"] == "user:4"
    # weir serve ends although the receiver hangs.
    receiver.behaviour = "hang"
    attempts = len(receiver.attempts)
    ask(one, "/api/x", "5", 8)
    wait_until(lambda: len(receiver.attempts) > attempts, "an attempt that hangs")
    began = time.monotonic()
    one.signal(15)
    assert one.end() == 0 and time.monotonic() - began < 10
    assert one.log_text().count("killed") == 1  # by this test


def test_https_is_verified(made):
    one = served(made, start=False)
    paths = certificate(one.folder)
    receiver = made(Receiver(paths))
    one.write(YAML % f"notify: {receiver.url}/")
    one.start()
    wait_until(lambda: metric(one, "weir_notify_pending") == 0, "the notifier")
    ask(one, "/api/x", "1", 8)
    one.wait_for_log(f"notify {receiver.url}: ")
    assert "certificate" in one.log_text() and not receiver.messages
    one.change(f"notify: {receiver.url}/", "notify: { url: '%s/', ca: server.pem }" % receiver.url)
    wait_until(lambda: len(receiver.warnings()) == 1, "the warning")
    assert receiver.messages[0][1]["webhook-signature"] is None  # there is no secret


def test_check_names_what_is_wrong(made):
    one = served(made, start=False)
    for notify, words in (("{ url: 'https://a.example', secret_file: nowhere }", "nowhere cannot be read"),
                          ("{ url: 'https://a.example', ca: nowhere }", "the CA file"),
                          ("{ url: 'https://a.example', secrt_file: a }", "secret_file"),
                          ("ftp://a.example", "notify is a URL")):
        one.write(YAML % f"notify: {notify}")
        done = one.run("--check")
        assert done.returncode != 0 and words in done.stderr, done.stderr
    one.write(YAML % "notify: http://user:s3cret@hooks.example/T0KEN")
    done = one.run("--check")
    assert "http://hooks.example: warnings cross the network unencrypted; use https://" in done.stderr
    assert "s3cret" not in done.stderr + done.stdout
    (one.folder / "secret").chmod(0o644)
    one.write(YAML % "notify: { url: 'https://a.example', secret_file: secret }")
    assert "every user of this host may read it" in one.run("--check").stderr


def test_nginx_alone_logs_each_warning_once(gateway):
    rules = ("rules: [{ name: one, key: 'user:${header:x-user}', limit: 10, window: 1h, warn_at: 80% }, "
             "{ name: other, limit: 1000, window: 1h }]")
    g = gateway(rules, workers=4)
    for user in range(30):
        for _ in range(10):
            assert get(g.port, "/", headers={"X-User": str(user)}).status == 200
    wait_until(lambda: g.errors().count("warn_at is 80%") >= 30, "thirty lines")
    lines = re.findall(r"\[warn\].*weir: rule one: (user:\d+) has used 8 of 10, warn_at is 80%", g.errors())
    assert sorted(lines) == sorted(f"user:{user}" for user in range(30))


def test_of_hosts_with_a_store_one_warns(hosts, redis_server):
    text = ("rules:\n"
            "  - { name: exact, match: { path: /exact }, key: 'user:${header:x-user}', limit: 20, window: 1h, warn_at: 50%%, consistency: strict, algorithm: %s }\n")
    for algorithm in ("fixed_window", "token_bucket", "sliding_window_log"):
        server = redis_server()
        both = hosts(server, 2, text=text % algorithm)
        for user in range(5):
            for i in range(16):
                assert get(both[i % 2].port, "/exact", headers={"X-User": str(user)}).status == 200
        wait_until(lambda: sum(g.errors().count("warn_at is 50%") for g in both) >= 5, "five lines")
        time.sleep(0.6)  # two polls more
        lines = [line for g in both for line in re.findall(r"weir: rule exact: (user:\d) has used 10 of 20", g.errors())]
        assert sorted(lines) == [f"user:{user}" for user in range(5)], algorithm
