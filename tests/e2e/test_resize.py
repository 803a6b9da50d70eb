"""weir segment resize, while nginx, weir serve and other programs decide: no counter is lost, no unit is granted twice."""
import collections
import fcntl
import http.client
import json
import random
import re
import signal
import subprocess
import threading
import time

from clients import get
from controlled import weir
from gateway import wait_until
from served import ENVIRONMENT, WEIR

LIMIT, KEYS = 60, 12
RULES = "".join(f"""  - name: {name}
    match: {{ path: /{name} }}
    key: key:${{header:x-key}}
    limit: {LIMIT}
    window: 1d
    algorithm: {algorithm}
""" for name, algorithm in (("bucket", "token_bucket"), ("window", "fixed_window"), ("log", "sliding_window_log")))
NAMES = ("bucket", "window", "log")


class Takers:
    """Clients that send requests of all keys until each was denied several times; counts those that passed."""

    def __init__(self, port):
        self.port, self.passed, self.failures = port, collections.Counter(), []
        self.stop, self.lock = threading.Event(), threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(seed,)) for seed in range(4)]

    def take(self, connection, what):
        answer = get(self.port, "/" + what[0], headers={"X-Key": str(what[1])}, connection=connection)
        if answer.status not in (200, 429):
            self.failures.append(answer.status)
        with self.lock:
            self.passed[what] += answer.status == 200

    def run(self, seed):
        chance, connection = random.Random(seed), None
        while not self.stop.is_set():
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
                self.take(connection, (chance.choice(NAMES), chance.randrange(KEYS)))
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                connection = None  # a worker that ends may close it before it has read the request

    def __enter__(self):
        for each in self.threads:
            each.start()
        wait_until(lambda: sum(self.passed.values()) > 50, "the first requests")
        return self

    def __exit__(self, *error):
        self.stop.set()
        for each in self.threads:
            each.join()

    def check(self, others=0):
        """Uses up what is left: each key has granted exactly its limit."""
        assert not self.failures, collections.Counter(self.failures)
        for name in NAMES:
            for key in range(KEYS):
                before = -1
                while self.passed[name, key] != before:
                    before = self.passed[name, key]
                    self.take(None, (name, key))
        expected = {(name, key): LIMIT - (others if name == "bucket" else 0) for name in NAMES for key in range(KEYS)}
        assert dict(self.passed) == expected


def resize(segment, size, **more):
    return weir("segment", "resize", size, str(segment), **more)


def up_and_down(segment, first, other=lambda: None):
    """All possible sizes, there and back, and some commands that are killed in the middle."""
    for step, times in enumerate((2, 16, 1, 4, 8, 2, 1)):
        resize(segment, f"{first * times}KiB")
        with subprocess.Popen([WEIR, "segment", "resize", f"{first * (3 - step % 2 * 2) + first}KiB", str(segment)],
                              env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as killed:
            time.sleep(0.002 * step)
            killed.send_signal(signal.SIGKILL)
        other()
    resize(segment, f"{first}KiB")


def state_of(segment):
    return json.loads(weir("dump", "--json", str(segment)).stdout)


def test_nginx_decides_while_the_segment_is_resized(gateway):
    g = gateway("rules:\n" + RULES, workers=2, size="1m")
    with Takers(g.port) as takers:
        up_and_down(g.segment, 1024, g.reload)
    takers.check()
    resize(g.segment, "4MiB")
    takers.check()
    state = state_of(g.segment)
    assert state["sound"] and state["evicted_live"] == 0 and state["bytes"] == 4 << 20
    assert get(g.port, "/weir/status").status == 200
    g.reload()
    assert "keeps its size of 4194304 bytes, not 1048576; \"weir segment resize\" changes it" in g.errors()
    takers.check()


def test_weir_serve_and_other_programs(serve):
    one = serve("""gateway: { listen: 127.0.0.1:@PORT@, upstreams: ["@BACKEND@"] }
metrics: 127.0.0.1:@METRICS@
segment: { path: "@FOLDER@/segment", size: 1MiB }
workers: 2
hot_keys: {}
rules:
""" + RULES)
    segment, passed = one.folder / "segment", collections.Counter()

    def another_program():
        for key in range(KEYS):
            done = weir("check", "--segment", "weir.yaml", "--take", "--exit-code", "-H", f"X-Key: {key}", "GET", "/bucket",
                        cwd=one.folder, code=None)
            passed.update({key: done.returncode == 0})

    another_program()
    with Takers(one.port) as takers:
        up_and_down(segment, 1024)
        one.signal(signal.SIGHUP)
        one.wait_for_log("reloaded weir.yaml")
        resize(segment, "2MiB")
    assert set(passed.values()) == {1}
    takers.check(others=1)
    another_program()
    assert set(passed.values()) == {1}  # none is left
    metrics = get(one.metrics, "/metrics").body.decode()
    assert f"weir_segment_bytes {2 << 20}" in metrics
    segment_json = json.loads(weir("top", "--once", "--json", "weir.yaml", cwd=one.folder).stdout)["segment"]
    assert segment_json["bytes"] == 2 << 20 and segment_json["evicted_live"] == 0
    assert "key:3" in weir("why", "key:3", cwd=one.folder).stdout  # denials are recorded beside it as before
    weir("key", "block", "key:3", "--rule", "window", "--for", "1h", cwd=one.folder)
    assert re.fullmatch(r"\S+/segment: 8MiB, was 2MiB; all [1-9]\d* keys keep their counters\. All processes use it already\.\nA new .*\n",
                        weir("segment", "resize", "8MiB", cwd=one.folder).stdout)
    assert "blocked" in weir("key", "show", "key:3", cwd=one.folder).stdout


def test_what_is_refused(serve):
    one = serve("""gateway: { listen: 127.0.0.1:@PORT@, upstreams: ["@BACKEND@"] }
segment: { path: "@FOLDER@/segment", size: 1MiB }
rules:
""" + RULES)
    done = weir("segment", "resize", "3MiB", cwd=one.folder, code=1)
    assert "3MiB is not possible: it can have 1, 2, 4, 8 or 16 times the 1MiB it was made with; nearest is 4MiB" in done.stderr
    assert "has 1MiB already" in weir("segment", "resize", "1MiB", cwd=one.folder).stdout
    assert "is not a size such as 128MiB" in weir("segment", "resize", "large", cwd=one.folder, code=2).stderr
    assert "to which size?" in weir("segment", "resize", cwd=one.folder, code=2).stderr
    assert "which segment?" in weir("segment", "resize", "2MiB", cwd="/", code=1).stderr
    assert "WEIR_ENOENT" in weir("segment", "resize", "2MiB", "/dev/shm/no-such-segment", code=1).stderr
    with open(one.folder / "segment", "rb") as locked:  # as another command has it
        fcntl.flock(locked, fcntl.LOCK_EX)
        assert "WEIR_ERESIZING" in weir("segment", "resize", "2MiB", cwd=one.folder, code=1).stderr
    done = weir("segment", "resize", "--json", "2MiB", cwd=one.folder)
    assert json.loads(done.stdout)["size"] == 2 << 20
