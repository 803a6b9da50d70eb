"""A weir serve that defers requests, and the contents of its queue."""
import contextlib
import http.client
import json
import socket
import sqlite3
import time

import pytest

from clients import Answer, get
from controlled import Host
from gateway import wait_until

HEAD = """gateway: { listen: "127.0.0.1:@PORT@", upstreams: ["@BACKEND@"] }
metrics: 127.0.0.1:@METRICS@
segment: { path: "@FOLDER@/segment", size: 1MiB }
state: "@FOLDER@/state"
workers: 2
access_log: { path: "@FOLDER@/access.log", format: json }
denied_log: "@FOLDER@/denied.log"
"""
RULES = """rules:
  - { name: kept, match: { path: /kept }, key: "user:${header:x-user}", on_missing_key: share, limit: 1, window: 1d,
      on_limit: queue }
  - { name: denied, match: { path: /denied }, limit: 1, window: 1d }
"""
QUEUE = "queue: { body: 10KiB }\n"
BOUND = 10 << 10


def wait_until_queue_answers(port):
    """The socket's file exists before the agent has set its mode and listens; an unknown ticket is a 404 only after that."""
    wait_until(lambda: get(port, "/.weir/tickets/" + "0" * 32).status == 404, "the queue")


class Queueing(Host):
    """A host whose agent serves the queue."""

    def __init__(self, yaml, backend):
        super().__init__(yaml, backend)
        self.socket = self.folder / "state" / "queue.sock"

    def start(self, **more):
        super().start(**more)
        self.wait_for_queue()
        return self

    def wait_for_queue(self):
        wait_until(self.agent_pid, "the agent")
        wait_until_queue_answers(self.port)

    def ticket(self, ticket, method="GET"):
        return get(self.port, f"/.weir/tickets/{ticket}", method=method)

    def request(self, path="/kept", method="POST", body=None, user=None, **headers):
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return get(self.port, path, method=method, body=body, headers={"X-User": user, **more} if user else more)

    def use_up(self, path="/kept", **more):
        """Uses up the limit by a request that passes."""
        assert self.request(path, **more).status == 200

    def defer(self, path="/kept", **more):
        """A request that is deferred: its ticket, and the reply."""
        answer = self.request(path, **more)
        assert answer.status == 202, (answer, self.log_text())
        return answer.headers["Location"].rpartition("/")[2], answer

    def queued(self):
        """Requests in the queue that are not finished, by ticket, in the order of acceptance."""
        with contextlib.closing(sqlite3.connect(self.folder / "state" / "queue.db", timeout=10)) as db:
            rows = db.execute(
                "SELECT request.ticket, rule.name, lane.key, cost, method, target, headers, body FROM request"
                " JOIN rule ON rule.id = request.rule JOIN lane ON lane.id = request.lane"
                " JOIN payload ON payload.sequence = request.sequence WHERE state <= 1 ORDER BY request.sequence").fetchall()
        names = ("rule", "key", "cost", "method", "target", "headers", "body")
        return {text(row[0]): dict(zip(names, map(bytes_of, row[1:]))) for row in rows}

    def headers_of(self, ticket):
        lines = self.queued()[ticket]["headers"].decode().splitlines()
        return [tuple(line.split(": ", 1)) for line in lines]

    def access(self):
        return [json.loads(line) for line in (self.folder / "access.log").read_text().splitlines()]

    def denied(self):
        return [json.loads(line) for line in (self.folder / "denied.log").read_text().splitlines()]


def bytes_of(value):
    return value.encode() if isinstance(value, str) else value


def text(ticket):
    """The ticket as a client gets it, independent of how it is stored."""
    value = bytes_of(ticket)
    return value.hex() if len(value) == 16 else value.decode()


def is_plain_denial(answer, rule="kept"):
    """True if it is the denial of a rule without a queue."""
    assert isinstance(answer, Answer)
    reply = json.loads(answer.body) if answer.body else {"error": "rate_limit_exceeded", "rule": rule}
    return (answer.status == 429 and reply["error"] == "rate_limit_exceeded" and reply["rule"] == rule and
            answer.headers["Retry-After"] is not None and answer.headers["X-RateLimit-Remaining"] == "0" and
            answer.headers["Content-Type"] == "application/json" and answer.headers["Cache-Control"] == "no-store" and
            answer.headers["Location"] is None)


@pytest.fixture
def host(backend):
    """Makes hosts, with the default rules unless others are given."""
    made = []

    def make(yaml=HEAD + QUEUE + RULES, start=True):
        made.append(Queueing(yaml, backend))
        return made[-1].start() if start else made[-1]

    yield make
    for one in made:
        one.remove()


def chunked(port, sizes, path="/kept", wait=0.0, head=""):
    """A request of unknown length: status and body of the reply."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: a\r\n{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        with contextlib.suppress(OSError):
            for size in sizes:
                s.sendall(b"%x\r\n" % size + b"c" * size + b"\r\n")
                time.sleep(wait)
            s.sendall(b"0\r\n\r\n")
        response = http.client.HTTPResponse(s)
        response.begin()
        return response.status, response.read()
