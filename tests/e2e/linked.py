"""Clients of a store by the library's blocking client, and the stores: fixtures for the tests of both."""
import json
import os
import shutil
import subprocess

import pytest

from building import ROOT, built
from gateway import wait_until
from measured import always
from stores import folder

WAY = ["SANITIZER=address"] if os.environ.get("WEIR_PRELOAD") else []
PROGRAM = ROOT / f"build/gcc{'-address' if WAY else ''}/tests/e2e/ask"


class StoreClient:
    """One process with a link of its own."""

    def __init__(self, url):
        environment = {name: value for name, value in os.environ.items() if name != "ASAN_OPTIONS"}
        self.process = subprocess.Popen([built(PROGRAM, *WAY), url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment)

    def send(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def receive(self):
        line = self.process.stdout.readline()
        assert line, f"ended with {self.process.wait(10)}"
        return json.loads(line)

    def do(self, *words):
        self.send(*words)
        return self.receive()

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(20) == 0


@pytest.fixture
def store_client():
    made = []

    def make(url):
        made.append(StoreClient(url))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture
def place():
    """A folder with a short path: a unix socket's has at most 107 bytes."""
    made = folder("weir-link-")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def store():
    made = []

    def make(kind, *arguments, **more):
        made.append(kind(*arguments, **more))
        return made[-1].start()

    yield make
    for one in made:
        one.remove()


PATIENT = "deadline=3s&connect_timeout=3s"


def patient(url, deadline=None):
    """The URL with a long deadline, for tests of the reply and not of its time, as the machine may be busy; or with another deadline."""
    return url + ("&" if "?" in url else "?") + (f"deadline={deadline}" if deadline else PATIENT)


def exact(client, limit=3, name="weir:t:k"):
    """The limit passes, and not one more. The first look may take longer than a deadline: everything is new."""
    wait_until(lambda: not client.do("take", limit, 0, name)["error"], "an answer")
    seen = [client.do("take", limit, 1, name) for _ in range(limit + 2)]
    assert [one["error"] for one in seen] == [""] * (limit + 2), seen
    always([one["passes"] for one in seen] == [True] * limit + [False] * 2, seen)
