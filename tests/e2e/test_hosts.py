"""Which hosts there are: weir serve and weir agent that share a real Redis, and those that take their rules from one of them."""
import json
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pytest

from clients import get
from controlled import Host
from gateway import wait_until
from redis_server import RedisServer
from served import ENVIRONMENT, WEIR, Backend
from stores import Cluster
from test_metrics import parse
from test_statistics import Terminal, weir

RULES = "rules:\n  - { name: api, match: { path: /api/* }, limit: 5, window: 1h }\n"
SERVE = """host: gate-1
segment: {{ path: @FOLDER@/segment, size: 1MiB }}
state: @FOLDER@/state
workers: 1
gateway: {{ listen: 127.0.0.1:@PORT@, upstreams: ["@BACKEND@"] }}
admin: {{ listen: "127.0.0.1:@ADMIN@", rules: database }}
metrics: 127.0.0.1:@METRICS@
load: {{ signals: {{ in_flight: 100 }} }}
{store}
{rules}"""


class Agent:
    """weir agent with a segment of its own."""

    def __init__(self, name, text):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-agent-test-"))
        self.folder.chmod(0o755)  # root hands its agent over to another user
        self.file, self.name = self.folder / "weir.yaml", name
        self.file.write_text(f"host: {name}\nsegment: {{ path: {self.folder}/segment, size: 1MiB }}\nstate: {self.folder}/state\n"
                             f"{text}")
        self.start()

    def start(self):
        with open(self.folder / "output", "ab") as output:
            self.process = subprocess.Popen([WEIR, "agent", self.file], env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                                            stdout=output, stderr=output)
        wait_until((self.folder / "segment").exists, "its segment")

    def end(self, number):
        self.process.send_signal(number)
        return self.process.wait(30)

    def remove(self):
        if self.process.poll() is None:
            self.end(signal.SIGTERM)
        output = (self.folder / "output").read_text()
        shutil.rmtree(self.folder, ignore_errors=True)
        assert "AddressSanitizer" not in output and "runtime error" not in output, output


@pytest.fixture
def made():
    """Whatever is added is removed at the end, the last first."""
    things = []
    yield lambda thing: things.append(thing) or thing
    for thing in reversed(things):
        (thing.stop if isinstance(thing, Backend) else thing.remove)()


def serve(made, store="", rules=RULES):
    backend = made(Backend())
    return made(Host(SERVE.format(store=store, rules=rules), backend)).begin()


def top(one):
    return json.loads(weir("top", "--once", "--json", "--interval", "100ms", one.file))


def states(reply):
    return {host["name"]: host["state"] for host in reply["hosts"]}


def becomes(look, expected, what):
    try:
        wait_until(lambda: states(look()) == expected, what, every=0.1)
    except AssertionError as error:
        raise AssertionError(f"{error}: {look()['hosts']}") from None


def silence(store, name):
    """As if the host had sent no heartbeat for ten more minutes, without waiting for them."""
    client = store.client()
    for field, value in client.hgetall("weir::hosts").items():
        at, _, text = value.partition(b" ")
        if json.loads(text)["name"] == name:
            client.hset("weir::hosts", field, str(int(at) - 600000).encode() + b" " + text)


def test_hosts_of_one_store(made):
    store = made(RedisServer()).start()
    with_store = f"store: {store.url()}\n"
    gate = serve(made, with_store)
    two, three = made(Agent("gate-2", with_store + RULES)), made(Agent("gate-3", with_store + RULES.replace("limit: 5", "limit: 6")))
    three_run = {"gate-1": "running", "gate-2": "running", "gate-3": "running"}
    for one in (gate, two, three):
        becomes(lambda one=one: top(one), three_run, "all that are there")
        reply = top(one)
        here, = [host for host in reply["hosts"] if host["here"]]
        assert reply["hosts"][0] == here and here["via"] == "here" and here["heard_s"] == 0
        assert reply["fleet"]["store"] == "up" and reply["fleet"]["agent"] and reply["fleet"]["silent"] == 0
        assert {host["store"] for host in reply["hosts"]} == {"up"} and {host["version"] for host in reply["hosts"]} == {reply["version"]}
    # One has other rules than most; that some are out of a database is no difference.
    reply = gate.request_json("GET", "/v1/hosts")
    assert {host["name"]: host["rules_differ"] for host in reply["hosts"]} == {"gate-1": False, "gate-2": False, "gate-3": True}
    wait_until(lambda: {host["name"]: host["level"] is None for host in top(two)["hosts"]} ==
               {"gate-1": False, "gate-2": True, "gate-3": True}, "the load level of the one that has it", every=0.1)
    # What a host decides is seen by the others.
    for _ in range(20):
        gate.get("/api/x")

    def seen():
        rates = next(host for host in top(two)["hosts"] if host["name"] == "gate-1")["rates"]
        return rates and rates["allowed"] > 0 and rates["denied"] > rates["allowed"] and rates["shed"] == 0
    wait_until(seen, "the rates of the other host", every=0.1)

    def hosts(state):
        samples, types = parse(get(gate.metrics, "/metrics").body.decode())
        return samples.get(("weir_hosts", (("state", state),)))
    wait_until(lambda: hosts("running") == 3 and hosts("silent") == 0, "the metric")

    # Who is killed is silent, and in the end gone; who ends is gone at once.
    three.end(signal.SIGKILL)
    becomes(lambda: gate.request_json("GET", "/v1/hosts"), {**three_run, "gate-3": "silent"}, "silence")
    becomes(lambda: top(two), {**three_run, "gate-3": "silent"}, "silence")
    assert top(three)["hosts"][0]["name"] == "gate-3"  # which looks at itself without an agent
    wait_until(lambda: hosts("running") == 2 and hosts("silent") == 1, "the metric")
    silence(store, "gate-3")
    becomes(lambda: top(two), {"gate-1": "running", "gate-2": "running"}, "that it is forgotten")
    assert two.end(signal.SIGTERM) == 0
    becomes(lambda: top(gate), {"gate-1": "running"}, "that it has left")

    # The store goes away: this host is still there, and says so.
    two.start()
    becomes(lambda: top(gate), {"gate-1": "running", "gate-2": "running"}, "its return")
    store.kill()
    wait_until(lambda: top(gate)["fleet"]["store"] == "unavailable" and top(two)["fleet"]["store"] == "unavailable", "that it is unavailable", every=0.1)
    reply = gate.request_json("GET", "/v1/hosts")
    assert reply["hosts"][0]["name"] == "gate-1" and reply["hosts"][0]["state"] == "running"
    assert reply["hosts"][0]["store"] == "unavailable" and reply["fleet"]["why"]
    becomes(lambda: top(gate), {"gate-1": "running", "gate-2": "silent"}, "that nobody is heard of")
    text = weir("top", "--once", "--interval", "100ms", gate.file)
    assert "DOWN" in text and "gate-1" in text and max(map(len, text.splitlines())) <= 80
    store.start()
    becomes(lambda: top(gate), {"gate-1": "running", "gate-2": "running"}, "all of it again")
    wait_until(lambda: top(gate)["fleet"]["store"] == "up", "the store")


def test_a_host_alone(made):
    """Without a store nothing is asked of anybody, and the host is there all the same, also without an agent."""
    gate = serve(made)
    wait_until(lambda: top(gate)["fleet"]["agent"], "the agent")
    reply = top(gate)
    assert reply["host"]["name"] == gate.request_json("GET", "/v1/stats")["host"]["name"] == "gate-1"
    assert states(reply) == {"gate-1": "running"} and reply["fleet"]["store"] == "none" and reply["hosts"][0]["store"] == "none"
    status, _, _ = gate.request("GET", "/v1/hosts", token="weir_0_guess")
    assert status == 401
    gate.signal(signal.SIGTERM)
    gate.end()
    reply = top(gate)
    assert states(reply) == {"gate-1": "running"} and not reply["hosts"][0]["rules_differ"]


def test_hosts_that_follow_the_rules(made):
    gate = serve(made)
    token = gate.token
    follower = made(Agent("edge-1", f"gateway: {{ listen: 127.0.0.1:1, upstreams: ['http://127.0.0.1:1'] }}\n"
                                    f"rules: {{ url: 'http://127.0.0.1:{gate.admin}/v1/rules/published', token: '{token}', poll: 200ms }}\n"))

    def followed():
        reply = gate.request_json("GET", "/v1/hosts")
        return states(reply) == {"gate-1": "running", "edge-1": "running"} and not reply["fleet"]["rules_differ"] and reply
    reply = wait_until(followed, "the follower, with the same rules", every=0.1)
    assert reply["hosts"][1]["via"] == "rules" and reply["hosts"][1]["rules"] == reply["hosts"][0]["rules"]
    assert states(top(gate)) == {"gate-1": "running", "edge-1": "running"}
    # What nobody may say is not listened to, and what is no such text neither.
    record = json.dumps({"id": "00000000000000aa", "name": "liar"})
    assert gate.request("GET", "/v1/rules/published", token="weir_0_guess", X_Weir_Host=record)[0] == 401
    for odd in ("nonsense", "{" * 900, json.dumps({"id": "aa"})):
        assert gate.request("GET", "/v1/rules/published", X_Weir_Host=odd)[0] == 200
    # New rules: for a moment the follower has others.
    assert gate.publish("more", 7) == 200
    wait_until(followed, "the new rules there", every=0.1)
    follower.end(signal.SIGKILL)
    becomes(lambda: gate.request_json("GET", "/v1/hosts"), {"gate-1": "running", "edge-1": "silent"}, "silence, and no liar")


def test_hosts_of_a_cluster(made):
    """And of one prefix: others in the same store are none of theirs."""
    cluster = made(Cluster(replicas=0)).start()

    def agent(name, prefix):
        return made(Agent(name, f"store: {{ url: '{cluster.url}', prefix: {prefix} }}\n" + RULES))
    one, _, other = agent("one", "a"), agent("two", "a"), agent("other", "b")
    becomes(lambda: top(one), {"one": "running", "two": "running"}, "both of them")
    wait_until(lambda: top(other)["fleet"]["store"] == "up", "the store", every=0.1)
    assert states(top(other)) == {"other": "running"}


def test_in_a_terminal(made):
    store = made(RedisServer()).start()
    agent = made(Agent("gate-1", f"store: {store.url()}\n" + RULES))
    wait_until(lambda: store.client().hlen("weir::hosts") == 1, "the host in the store")
    at = (store.client().time()[0] + 100) * 1000  # to come: it is not silent as long as this takes
    for number, name in enumerate(["zulu\x1b[2J\x9b", "alpha"]):
        text = json.dumps({"id": f"{number:016x}", "name": name, "version": "\x1b]0;x\x07",
                           "rates": {"allowed": 9, "denied": number}})
        store.client().hset("weir::hosts", f"{number:016x}", f"{at} {text}")
    wait_until(lambda: len(top(agent)["hosts"]) == 3, "all of them", every=0.1)
    screen = Terminal("--interval", "100ms", agent.file)
    screen.shows("hosts    3 running")
    screen.type("o")
    screen.shows("alpha")
    assert "RULE " not in screen.picture() and "SEEN" in screen.picture() and "gate-1 *" in screen.picture()
    order = [word for line in screen.picture().splitlines() for word in ("alpha", "gate-1 *", "zulu") if line.startswith(word)]
    assert order == ["alpha", "gate-1 *", "zulu"], screen.picture()  # by what they deny, then by name
    lines = screen.picture().splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) <= 24
    screen.type("jjjkkk")
    screen.type("ntl")
    screen.shows("SEEN")
    assert b"\x1b]0" not in screen.output and b"\x9b" not in screen.output and b"\x07" not in screen.output
    screen.resize(40, 12)
    screen.shows("alpha", columns=40)
    screen.type("o")
    screen.shows("RULE ")
    screen.type("q")
    assert screen.wait() == 0
