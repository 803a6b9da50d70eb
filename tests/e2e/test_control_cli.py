"""weir rules and weir token over HTTP: a real agent, concurrent changes, and services that are not the rules service.
tests/cli_control.sh has the rest, with a database of its own."""
import contextlib
import http.client
import http.server
import json
import pathlib
import shutil
import ssl
import subprocess
import tempfile
import threading

import pytest

from controlled import weir
from gateway import wait_until
from ports import free_port
from served import ENVIRONMENT, WEIR, certificate

ROOT = pathlib.Path(__file__).parent.parent.parent
SHOP = str(ROOT / "tests/rules/service/shop.yaml")


class Between:
    """Answers by `answer(method, path, headers, body)`: (status, headers, body), or None to close without a word."""

    def __init__(self, answer):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.requests.append((self.command, self.path))
                answer_is = answer(self.command, self.path, dict(self.headers), body)
                if answer_is is None:
                    self.close_connection = True
                    return
                status, headers, text = answer_is
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(text)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, *arguments):
                pass

        self.requests = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def between():
    made = []

    def make(answer):
        made.append(Between(answer))
        return made[-1]

    yield make
    for one in made:
        one.stop()


class Agent:
    """weir agent with a rules service over TLS."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.certificate, key = certificate(folder)
        self.file = folder / "weir.yaml"
        self.file.write_text(f"""
gateway: {{ listen: "127.0.0.1:{free_port()}", upstreams: ["http://127.0.0.1:1"] }}
admin: {{ listen: "127.0.0.1:{self.port}", tls: {{ certificate: {self.certificate}, key: {key} }} }}
state: {folder}/state
segment: {{ path: {folder}/segment }}
""")
        self.log = open(folder / "log", "w")
        self.process = subprocess.Popen([WEIR, "agent", str(self.file)], env=ENVIRONMENT, stderr=self.log)
        wait_until(lambda: self.request("GET", "/healthz")[0] == 200, "the rules service")

    def request(self, method, path, headers=(), body=None):
        context = ssl.create_default_context(cafile=self.certificate)
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=10)
        try:
            connection.request(method, path, body=body, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        except OSError:
            return 0, {}, b""
        finally:
            connection.close()

    def token(self, name, role):
        path = self.folder / f"{name}.token"
        path.write_text(weir("token", "create", name, "--role", role, "--file", str(self.file)).stdout)
        return path

    def stop(self):
        self.process.terminate()
        assert self.process.wait(20) == 0
        self.log.close()


@pytest.fixture
def agent():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-agent-test-"))
    folder.chmod(0o755)  # root's agent is another user
    one = Agent(folder)
    yield one
    one.stop()
    shutil.rmtree(folder)


def test_over_tls_by_role(agent):
    url = ["--url", f"https://127.0.0.1:{agent.port}"]
    trusted = [*url, "--ca", agent.certificate]
    viewer, editor, operator = (agent.token(role, role) for role in ("viewer", "editor", "operator"))
    assert "certificate" in weir("rules", "list", *url, "--token-file", str(viewer), code=1).stderr.lower()
    assert "give a token" in weir("rules", "list", *trusted, code=1).stderr
    assert "(401)" in weir("rules", "list", *trusted, env={"WEIR_TOKEN": "weir_0_guess"}, code=1).stderr
    assert weir("rules", "list", *trusted, "--token-file", str(viewer)).stdout == "no documents\n"
    assert "(403)" in weir("rules", "apply", SHOP, *trusted, "--token-file", str(viewer), code=1).stderr
    environment = {"WEIR_URL": f"https://127.0.0.1:{agent.port}", "WEIR_TOKEN": editor.read_text().strip()}
    done = weir("rules", "apply", SHOP, "--ca", agent.certificate, "--publish", "enforced", "--json", env=environment)
    assert json.loads(done.stdout)["revision"] == 1
    done = weir("rules", "apply", SHOP, "--ca", agent.certificate, "--publish", "enforced", env=environment)
    assert done.stdout == "0 created, 0 changed, 0 deleted, 3 unchanged\n"
    assert weir("rules", "history", "login", "--json", "--ca", agent.certificate, env=environment).stdout.count("editor")
    assert "(403)" in weir("token", "list", "--ca", agent.certificate, code=1, env=environment).stderr
    tokens = json.loads(weir("token", "list", "--json", *trusted, "--token-file", str(operator)).stdout)["items"]
    gone = next(token["id"] for token in tokens if token["name"] == "editor")
    weir("token", "revoke", gone, *trusted, "--token-file", str(operator))
    assert "(401)" in weir("rules", "list", "--ca", agent.certificate, code=1, env=environment).stderr


def test_rules_that_the_command_stores_are_published(agent):
    weir("rules", "apply", SHOP, "--publish", "enforced", "--file", str(agent.file))
    published = agent.folder / "state" / "published.yaml"
    wait_until(lambda: published.exists() and "login" in published.read_text(), "the published rules")


def test_two_concurrent_applies(agent, between, tmp_path):
    """A concurrent change between comparison and write stays, and is reported."""
    token = agent.token("me", "editor")
    trusted = ["--url", f"https://127.0.0.1:{agent.port}", "--ca", agent.certificate, "--token-file", str(token)]
    weir("rules", "apply", SHOP, *trusted)
    theirs = pathlib.Path(SHOP).read_text().replace("limit: 5\n", "limit: 7\n")
    (tmp_path / "theirs.yaml").write_text(theirs)
    (tmp_path / "ours.yaml").write_text(theirs.replace("limit: 7\n", "limit: 9\n").replace("limit: 100", "limit: 99"))
    changed = []

    def answer(method, path, headers, body):
        if method == "PUT" and path.endswith("/login") and not changed:
            changed.append(weir("rules", "apply", str(tmp_path / "theirs.yaml"), *trusted))
        headers = {name: value for name, value in headers.items() if name not in ("Host", "Content-Length")}
        status, answered, text = agent.request(method, path, headers, body)
        return status, {n: v for n, v in answered.items() if n in ("ETag", "Etag", "Content-Type")}, text

    relay = between(answer)
    done = weir("rules", "apply", str(tmp_path / "ours.yaml"), "--url", relay.url, "--token-file", str(token), code=1)
    assert "login: it was changed since" in done.stderr and "(412)" in done.stderr
    assert "1 changed" in done.stdout and "1 not done" in done.stdout
    assert "limit: 7\n" in weir("rules", "get", "login", *trusted).stdout
    assert "limit: 99\n" in weir("rules", "get", "user-api", *trusted).stdout


LIST = b'{"items": [], "next": null}'


@pytest.mark.parametrize("answer, output", [
    ((200, {}, b"<html>hello</html>"), "this is not a reply of a rules service"),
    ((200, {}, b"{"), "this is not a reply of a rules service"),
    ((200, {}, b'{"items": 7}'), "is this a rules service?"),
    ((204, {}, b""), "is this a rules service?"),
    ((302, {"Location": "http://127.0.0.1:1/"}, b""), "(302)"),
    ((500, {}, b"\x1b[31mno"), "(500)"),
    ((404, {}, b'{"error": {"message": "\\u001b[2Jgone"}}'), "gone (404)"),
    ((200, {"Content-Length": "1000"}, b"short"), "127.0.0.1"),
    (None, "127.0.0.1"),
])
def test_replies_of_another_service(between, answer, output):
    for command in (["rules", "list"], ["rules", "apply", SHOP], ["token", "create", "x", "--role", "viewer"]):
        one = between(lambda *sent: answer)
        if answer and answer[2] == b"short":
            one.server.RequestHandlerClass.protocol_version = "HTTP/1.0"  # the connection ends before the body does
        done = weir(*command, "--url", one.url, env={"WEIR_TOKEN": "secret"}, code=1)
        assert output in done.stderr, done.stderr
        assert "\x1b" not in done.stdout + done.stderr and "secret" not in done.stdout + done.stderr


@pytest.mark.parametrize("command, reply, code", [
    (["rules", "diff", "x"], {"unified": "--- a\n+++ b\n+\u001b[2Jx\ty\n"}, 0),
    (["rules", "get", "x", "--json"], {"text": "\u001b[2Jx"}, 0),
    (["token", "create", "x", "--role", "viewer"], {"token": "t", "id": "\u001b[2Jx"}, 0),
    (["queue", "stats"], {"rules": [{"rule": "\u001b[2Jx", "oldest_s": 1e300}]}, 0),
    (["rules", "validate", SHOP], {"error": {"message": "\u001b[2Jx", "errors": [
        {"message": "\u001b[2Jx", "line": 1 << 40, "column": 2147483647}]}}, 1),
])
def test_replies_do_not_move_the_cursor(between, command, reply, code):
    """Nor do numbers in them that are out of range do any harm."""
    one = between(lambda *sent: (422 if code else 200, {}, json.dumps(reply).encode()))
    done = weir(*command, "--url", one.url, code=code)
    assert "\x1b" not in done.stdout + done.stderr and "x" in done.stdout + done.stderr


def test_a_token_goes_to_one_host_only(between):
    seen = []
    other = between(lambda *sent: seen.append(sent) or (200, {}, LIST))
    first = between(lambda *sent: (307, {"Location": other.url + "/v1/rules"}, b""))
    weir("rules", "list", "--url", first.url, env={"WEIR_TOKEN": "secret"}, code=1)
    assert not seen


def test_a_list_without_end_has_one(between):
    one = between(lambda *sent: (200, {}, b'{"items": [], "next": "x"}'))
    assert "too many pages" in weir("rules", "list", "--url", one.url, code=1).stderr
    assert len(one.requests) == 200


def test_names_and_reasons_are_one_request(between):
    """Whatever is in them, they are a part of the path and one header."""
    seen = []

    def answer(method, path, headers, body):
        seen.append((method, path, headers))
        return (200, {}, LIST) if path.startswith("/v1/rules?") else (201, {"ETag": '"v1"'}, b'{"ok": true}')

    one = between(answer)
    weir("rules", "apply", SHOP, "--url", one.url, "--reason", "why\r\nX-Weir-Bad: 1")
    assert all("X-Weir-Bad" not in headers for _, _, headers in seen)
    assert any("X-Weir-Bad: 1" in headers.get("X-Weir-Reason", "") for _, _, headers in seen)
    weir("rules", "get", "../../x?y#z\r\nA: b", "--url", one.url)
    assert seen[-1][1] == "/v1/rules/..%2F..%2Fx%3Fy%23z%0D%0AA%3A%20b"


def test_tokens_that_are_none(between, tmp_path):
    one = between(lambda *sent: (200, {}, LIST))
    (tmp_path / "empty").write_text("\n")
    assert "no token" in weir("rules", "list", "--url", one.url, "--token-file", str(tmp_path / "empty"), code=1).stderr
    weir("rules", "list", "--url", one.url, "--token-file", str(tmp_path / "missing"), code=1)
    weir("rules", "list", "--url", one.url, env={"WEIR_TOKEN": "a\r\nb"}, code=1)
    assert not one.requests
    (tmp_path / "good").write_text("secret\n")
    weir("rules", "list", "--url", one.url + "/", "--token-file", str(tmp_path / "good"))
    assert one.requests == [("GET", "/v1/rules?limit=1000")]
