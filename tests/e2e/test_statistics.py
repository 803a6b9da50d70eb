"""Seeing what rules do: hot keys, weir top in a real terminal, the agent's history, weir advise, and what is made for
Prometheus and Grafana."""
import fcntl
import itertools
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from clients import get
from gateway import wait_until
from redis_server import RedisServer
from served import ENVIRONMENT, WEIR, Backend, Served
from test_metrics import parse

PACKAGING = pathlib.Path(__file__).parents[2] / "packaging"
YAML = """
segment: { path: @FOLDER@/segment, size: 4MiB }
workers: 1
hot_keys: %s
%s
gateway: { listen: 127.0.0.1:@PORT@, upstreams: ["@BACKEND@"] }
metrics: 127.0.0.1:@METRICS@
rules:
  - { name: api, key: "key:${header:x-key}", limit: 20, window: 1h%s }
  - { name: api, key: "key:${header:x-key}", limit: 5, window: 1h, shadow: true }
  - { name: quiet, match: { path: /quiet }, limit: 5, window: 1h }
"""


def counts_seconds(hot):
    """The header's sixth word: for how many seconds the weights stand."""
    return struct.unpack_from("QIIQQQ", hot.read_bytes()[:48])[5] > 0


@pytest.fixture
def host():
    """Makes a weir serve."""
    made, backend = [], Backend()

    def make(hot="2MiB", more="", rule=""):
        made.append(Served(YAML % (hot, more, rule), backend).start())
        # The agent drops what was noted before it came, as nobody knows how long that took.
        wait_until(lambda: counts_seconds(made[-1].folder / "segment.hot"), "the agent")
        return made[-1]
    yield make
    for one in made:
        one.remove()
    backend.stop()


@pytest.fixture
def store():
    server = RedisServer().start()
    yield server
    server.remove()


def weir(*arguments, code=0):
    environment = {key: value for key, value in ENVIRONMENT.items() if key != "COLUMNS"}
    done = subprocess.run([WEIR, *map(str, arguments)], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout if code == 0 else done.stderr


def top(one, *more):
    return json.loads(weir("top", "--once", "--json", "--interval", "200ms", *more, one.file))


def request(one, key, count):
    for _ in range(count):
        assert get(one.port, "/", headers={"X-Key": key}).status in (200, 429)


def rule(seen, name, shadow=False):
    return next(one for one in seen["rules"] if (one["name"], one["shadow"]) == (name, shadow))


def test_hot_keys_and_one_look(host):
    one = host()
    request(one, "heavy", 800)
    request(one, "light", 10)
    seen = top(one)
    api = rule(seen, "api")
    assert (api["totals"]["allowed"], api["totals"]["denied"]) == (30, 780)
    assert rule(seen, "api", True)["totals"]["denied"] == 800
    assert api["hot"]["denied"][0]["key"] == "key:heavy" and api["hot"]["denied"][0]["count"] > 250
    assert api["hot"]["near"][0] == {"key": "key:heavy", "hidden": False, "cut": False, "used": 1.0}
    assert rule(seen, "quiet")["hot"]["denied"] == [] and seen["hot"] and seen["history"]
    text = weir("top", "--once", "--interval", "100ms", one.file)
    assert "key:heavy" in text and "api (shadow)" in text and max(map(len, text.splitlines())) <= 80
    (one.folder / "rules.yaml").write_text("rules: [{ name: api, key: x, limit: 1, window: 1s }]")
    by_segment = weir("top", "--once", "--interval", "100ms", "--rules", one.folder / "rules.yaml",
                      one.folder / "segment")
    assert "key:heavy" in by_segment
    assert re.search(r"^#[0-9a-f]{16} ", weir("top", "--once", "--interval", "100ms", one.folder / "segment"), re.M)
    assert "nothing to advise about 2 rules" in weir("advise", one.file)
    advice = json.loads(weir("advise", "--json", one.file))
    assert advice["advice"] == [] and set(advice) == {"advice", "basis", "needs"}


@pytest.mark.parametrize("how", ["hot", "denied_log"])
def test_keys_that_are_secret(host, how):
    one = host("{ size: 1MiB, hash_keys: true }") if how == "hot" else \
        host("1MiB", 'denied_log: { path: "@FOLDER@/denied", hash_keys: true }')
    request(one, "confidential", 300)
    hottest = rule(top(one), "api")["hot"]["denied"][0]
    assert hottest["hidden"] and re.fullmatch("~[0-9a-f]{16}", hottest["key"])
    assert b"confidential" not in (one.folder / "segment.hot").read_bytes()
    if how == "denied_log":  # one hash for one key, whichever place shows it; a restart does not change it
        def logged():
            lines = [json.loads(line) for line in (one.folder / "denied").read_text().splitlines()]
            return {line["key"] for line in lines}, {line["client"] for line in lines}, len(lines)
        wait_until(lambda: (one.folder / "denied").exists() and logged()[2] > 0, "the log of denied requests")
        one.signal(signal.SIGTERM)
        one.end()
        one.start()
        before = logged()
        request(one, "confidential", 5)
        keys, clients, _ = wait_until(lambda: logged()[2] > before[2] and logged(), "a line of the new workers")
        assert keys == {hottest["key"]} and len(clients) == 1 and re.fullmatch("~[0-9a-f]{16}", *clients)


def test_what_cannot_be_looked_at(host, tmp_path):
    assert "weir.yaml" in weir("top", "--once", tmp_path / "weir.yaml", code=1)
    (tmp_path / "weir.yaml").write_text("nonsense")
    weir("top", "--once", tmp_path / "weir.yaml", code=1)
    weir("advise", tmp_path / "weir.yaml", code=1)
    assert "no terminal" in weir("top", tmp_path / "weir.yaml", code=2)
    for wrong in (["--json"], ["--once", "--interval", "soon"], ["--once", "--keys", "0"], ["a", "b"], ["--nonsense"]):
        weir("top", *wrong, code=2)
    one = host()
    assert "rule" in weir("advise", "--rule", "gone", one.file, code=1)


class Terminal:
    """weir top in a terminal of its own. What it shows is kept as a screen of text would."""

    def __init__(self, *arguments, columns=80, rows=24):
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            os.execve(WEIR, [WEIR, "top", *map(str, arguments)], ENVIRONMENT)
        self.resize(columns, rows)
        self.output = b""
        self.code = None

    def resize(self, columns, rows):
        self.columns = columns
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds=0.0):
        while select.select([self.end], [], [], seconds)[0]:
            try:
                more = os.read(self.end, 65536)
            except OSError:
                return
            if not more:
                return
            self.output += more

    def picture(self):
        """The last whole picture, without escapes."""
        self.read(0.05)
        pictures = self.output.split(b"\x1b[H")
        whole = [one for one in pictures if b"q quit" in one]
        text = re.sub(rb"\x1b\[[0-9]+;1H", b"\n", whole[-1]) if whole else b""
        return re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]|\r", b"", text).decode()

    def shows(self, what, columns=1000):
        """In a picture that is no wider: one of before may still be on its way."""
        def seen():
            picture = self.picture()
            return what in picture and max(map(len, picture.splitlines())) <= columns
        wait_until(seen, f"'{what}' in {columns} columns")

    def type(self, text):
        self.output = b""
        os.write(self.end, text.encode())

    def wait(self):
        deadline = time.time() + 30
        while time.time() < deadline:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.read(0.05)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("weir top does not end")


def test_in_a_terminal(host):
    one = host()
    request(one, "heavy", 400)
    request(one, "\x9b2Jclear", 30)  # what some terminals take for the beginning of a command
    screen = Terminal("--interval", "100ms", one.file)
    screen.shows("key:heavy")
    assert b"\x9b" not in screen.output
    assert "ALLOW/s" in screen.picture() and "most denied" in screen.picture()
    lines = screen.picture().splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) <= 24
    screen.type("h")
    screen.shows("most admitted")
    screen.type("h")
    screen.shows("near their limit")
    screen.type("n")
    screen.shows("KEYS of api")
    screen.type("\x1b[B\x1b[B")
    screen.shows("KEYS of quiet")
    screen.type("k k k")
    screen.shows("KEYS of api")
    screen.type(" ")
    screen.shows("PAUSED")
    screen.resize(40, 12)
    screen.shows("KEYS of api", columns=40)
    screen.type("q")
    assert screen.wait() == 0 and screen.output.endswith(b"\x1b[?1049l")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_signals_restore_the_terminal(host, number):
    one = host()
    screen = Terminal(one.file)
    usual = termios.ICANON | termios.ECHO | termios.ISIG  # of a new terminal
    screen.shows("quiet")
    assert not termios.tcgetattr(screen.end)[3] & termios.ICANON
    os.kill(screen.pid, number)
    assert screen.wait() == 0 and screen.output.endswith(b"\x1b[?25h\x1b[?1049l")
    assert termios.tcgetattr(screen.end)[3] & usual == usual


def test_the_agent_writes_a_history(host, store):
    one = host(more=f'store: {{ url: "{store.url()}", sync_interval: 50ms }}', rule=", consistency: eventual")
    keys = itertools.count()

    def written():  # what comes before the agent looks for the first time is in no second of its
        request(one, f"k{next(keys)}", 50)
        seen = top(one)
        rates = rule(seen, "api")["rates"]["10s"]
        return rates and seen["history"] and rates["allowed"] >= 2 and rates["denied"] >= 2 and seen
    seen = wait_until(written, "the seconds in which something was asked for")
    assert seen["store"]["state"] == "up" and seen["store"]["agent"]
    text = weir("top", "--once", one.file)
    assert "store    up, agent running" in text


# ---- Prometheus and Grafana ----

def named():
    """Every metric that the board and the alert rules name."""
    board = json.loads((PACKAGING / "grafana" / "weir.json").read_text())
    text = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    text += [variable["definition"] for variable in board["templating"]["list"] if "definition" in variable]
    text.append((PACKAGING / "prometheus" / "weir.rules.yml").read_text())
    return set(re.findall(r"\bweir_[a-z_]+\b", "\n".join(text)))


def test_every_metric_that_is_named_exists(host, store):
    one = host(more=f'store: "{store.url()}"\nload: on\nqueue: on\nstate: "@FOLDER@/state"',
               rule=", consistency: eventual, on_limit: queue")

    def deferred():
        return 202 in [get(one.port, "/", headers={"X-Key": "a"}).status for _ in range(30)]
    wait_until(deferred, "something in the queue")

    def exist():
        samples, _ = parse(get(one.metrics, "/metrics").body.decode())
        names = {name for name, _ in samples}
        return named() <= names or not print(named() - names)
    assert len(named()) > 20
    wait_until(exist, "every metric")


def test_figures_of_keys_are_metrics(host):
    one = host()
    labels = (("rule", "api"), ("shadow", "false"))

    def noted():  # one in 16 is
        request(one, "a", 100)
        request(one, "b", 100)
        samples, _ = parse(get(one.metrics, "/metrics").body.decode())
        return samples.get(("weir_rule_keys_near_limit", labels)) == 2 and samples
    samples = wait_until(noted, "both keys near their limit")
    assert samples["weir_rule_limit", labels] == 20 and samples["weir_rule_window_seconds", labels] == 3600
    assert samples["weir_rule_keys_near_limit", labels] == 2
    assert 1 <= samples["weir_rule_keys", labels] <= 2  # about: of two keys in one part of 256 it knows one
    assert samples["weir_rule_peak_usage_ratio", labels] == 1


def test_the_board_is_complete():
    board = json.loads((PACKAGING / "grafana" / "weir.json").read_text())
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) > 10
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24 and panel["targets"] and panel["title"]


def promtool(*arguments):
    done = subprocess.run(["promtool", *arguments], cwd=PACKAGING / "prometheus", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_rules():
    promtool("check", "rules", "weir.rules.yml")
    promtool("test", "rules", "weir.rules.test.yml")


def test_promtool_takes_every_query_of_the_board(tmp_path):
    board = json.loads((PACKAGING / "grafana" / "weir.json").read_text())
    rules = [{"record": f"board:{panel['id']}:{target['refId']}",
              "expr": target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*").replace("$rule", ".*")}
             for panel in board["panels"] for target in panel["targets"]]
    (tmp_path / "board.yml").write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    promtool("check", "rules", str(tmp_path / "board.yml"))


def test_promtool_takes_the_metrics(host):
    one = host()
    request(one, "a", 3)
    text = get(one.metrics, "/metrics").body
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
