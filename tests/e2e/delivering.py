"""An upstream that records deliveries and replies as configured, and a weir serve with a queue before it."""
import collections
import contextlib
import http.server
import json
import socket
import threading
import time

from controlled import weir
from gateway import wait_until
from ports import free_port

Delivery = collections.namedtuple("Delivery", "at method target headers body")

QUEUE = """
segment: { path: @FOLDER@/segment, size: 4MiB }
state: @FOLDER@/state
workers: 2
gateway: { listen: 127.0.0.1:@PORT@, upstreams: [@BACKEND@], health: { max_fails: 1000000 } }
metrics: 127.0.0.1:@METRICS@
queue: { retries: @RETRIES@ }
rules:
  - { name: api, match: { path: /api/* }, key: "user:${header:X-User}", limit: @LIMIT@, window: 1s, burst: 1, on_limit: queue }
  - { name: other, match: { path: /other }, limit: 1, window: 1s, on_limit: queue }
  - { name: few, match: { path: /few }, algorithm: concurrency, limit: 1, lease: 20s, on_limit: queue }
"""


def yaml(limit=50, retries=8, rules=""):
    return (QUEUE + rules).replace("@LIMIT@", str(limit)).replace("@RETRIES@", str(retries))


class Upstream:
    """`answer`: a status, or a function of a delivery that returns one; None: no reply. `slow`: seconds that a delivery of the
    queue takes, or a function of it that waits."""

    def __init__(self):
        outer = self
        self.answer, self.lock, self.seen, self.slow, self.busy, self.most = 200, threading.Lock(), [], 0, 0, 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if not outer.server:  # stopped: closes connections that are still open, too
                    self.close_connection = True
                    return
                one = Delivery(time.time(), self.command, self.path, self.headers, body)
                with outer.lock:
                    outer.seen.append(one)
                    outer.busy += 1
                    outer.most = max(outer.most, outer.busy)
                if self.headers.get("X-Weir-Attempt") or self.path == "/few":
                    outer.slow(one) if callable(outer.slow) else time.sleep(outer.slow)
                status = outer.answer(one) if callable(outer.answer) else outer.answer
                with outer.lock:
                    outer.busy -= 1
                if status is None:
                    self.close_connection = True
                    return
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Length", "2")
                    if 300 <= status < 400:
                        self.send_header("Location", "/api/elsewhere")
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(b"ok")

            do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = do_GET

            def log_message(self, *arguments):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 256
            allow_reuse_address = True
            daemon_threads = True

        self.port = free_port()  # still free after a restart: the system assigns it to no client
        self.make = lambda: Server(("127.0.0.1", self.port), Handler)
        self.begin()
        self.url = f"http://127.0.0.1:{self.port}"

    def begin(self):
        self.server = self.make()
        self.server.handle_error = lambda *arguments: None
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self):
        server, self.server = self.server, None
        if server:
            server.shutdown()
            server.server_close()

    def deferred(self):
        """Deliveries of the queue."""
        with self.lock:
            return [one for one in self.seen if one.headers.get("Idempotency-Key")]


def ready(served):
    """Waits until the agent accepts requests."""
    path = str(served.folder / "state/queue.sock")

    def answers():
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(path) == 0
    wait_until(answers, "the agent's socket")
    return served


def queue(served, *arguments, code=0):
    """weir queue … with the file: its JSON."""
    done = weir("queue", *arguments, "--json", "--file", "weir.yaml", cwd=served.folder, code=code)
    return json.loads(done.stdout) if done.stdout else done


def items(served, *arguments):
    return queue(served, "list", "--limit", "1000", *arguments)["items"]


def defer(served, user="7", path="/api/x", method="POST", count=1, tries=400, **more):
    """Sends requests until `count` of them were deferred; returns their tickets in order."""
    tickets = []
    headers = {"X-User": user, **more.pop("headers", {})}
    for i in range(tries):
        body = more.get("body") or f"{user} {len(tickets)}"
        answer = served.get(path, method=method, headers=headers, body=body)
        assert answer.status in (200, 202), answer
        if answer.status == 202:
            tickets.append(json.loads(answer.body)["ticket"])
        if len(tickets) == count:
            return tickets
    raise AssertionError("too few were deferred")
