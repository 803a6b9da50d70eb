import pathlib
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import controlled  # noqa: E402
from clients import end_sockets  # noqa: E402
from flight import Slow  # noqa: E402
from gateway import Gateway  # noqa: E402
from measured import Again  # noqa: E402
from redis_server import RedisServer  # noqa: E402
from served import Backend, Served  # noqa: E402
from serving import HEAD, RULES  # noqa: E402
from strict import rules as strict_rules  # noqa: E402


HOUR = 3600
LEFT = 60  # seconds: longer than nearly every test, on a busy machine, too


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: bounds of time that hold when little else runs; after all others, in few lanes")
    config.addinivalue_line("markers", "xdist_group(name): tests that share what is costly to make run in one lane")


def pytest_collection_modifyitems(items):
    """Groups first: one lane has all of a group, and would have it alone at the end. Not those marked `alone`: their groups
    are the largest loads, which would begin together."""
    items.sort(key=lambda item: bool(item.get_closest_marker("alone") or not item.get_closest_marker("xdist_group")))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Fixed windows end with the hour by the clock, of whatever length they are: no test begins shortly before."""
    left = HOUR - time.time() % HOUR
    if left < LEFT:
        time.sleep(left)


def pytest_terminal_summary(terminalreporter):
    """A line for each test, as the other test programs of this project print them."""
    grouped = terminalreporter.config.getoption("dist", "no") == "loadgroup"  # then the group follows the name

    def name(report):
        return report.nodeid.rpartition("@")[0] if grouped and "xdist_group" in report.keywords else report.nodeid
    for word, outcomes in (("PASS", ("passed",)), ("FAIL", ("failed", "error"))):
        for outcome in outcomes:
            for report in terminalreporter.stats.get(outcome, ()):
                terminalreporter.write_line(f"{word} {name(report)}")
    for report in terminalreporter.stats.get("skipped", ()):
        terminalreporter.write_line(f"SKIP {name(report)}: {report.longrepr[2]}")
    for report in terminalreporter.stats.get("warnings", ()):
        if Again.__name__ in report.message:
            terminalreporter.write_line(f"AGAIN {report.message.partition(Again.__name__ + ':')[2].strip().splitlines()[0]}")


def complaints(gateway):
    """What no test may leave in the error log: crashes, sanitizer reports, broken promises of nginx's own."""
    bad = ("exited on signal", "[alert]", "[emerg]", "AddressSanitizer", "runtime error")
    return [line for line in gateway.errors().splitlines() if any(word in line for word in bad)]


@pytest.fixture
def gateway():
    """Makes gateways; each is started, and removed at the end. expected: words of alerts that the test provokes."""
    made = []

    def make(rules, start=True, expected=(), kind=Gateway, **more):
        one = kind(rules, **more)
        one.expected = expected
        made.append(one)
        return one.start() if start else one

    yield make
    try:
        for one in made:
            left = [line for line in complaints(one) if not any(word in line for word in one.expected)]
            one.stop()
            left = left or [line for line in complaints(one) if not any(word in line for word in one.expected)]
            assert not left, left
    finally:
        for one in made:
            one.remove()


@pytest.fixture
def slow():
    """An upstream whose replies wait until slow.go is set."""
    upstream = Slow()
    yield upstream
    upstream.go.set()
    end_sockets(upstream.listener)


@pytest.fixture
def redis_server():
    """Makes Redis servers; each is started, and removed at the end."""
    made = []

    def make(start=True, **more):
        one = RedisServer(**more)
        made.append(one)
        return one.start() if start else one
    yield make
    for one in made:
        one.remove()


@pytest.fixture
def hosts(gateway):
    """Gateways with segments of their own: as many hosts."""
    def make(store, count, text=None, settings="", deadline="3s", **more):
        url = store if isinstance(store, str) else store.url()
        http = f"weir_store {url} deadline={deadline} {settings};"  # long: this machine may be slow, Redis is not what is tested
        return [gateway(text or strict_rules(), http=http, **more) for _ in range(count)]
    return make


@pytest.fixture
def backend():
    made = Backend()
    yield made
    made.stop()


@pytest.fixture
def serve(backend):
    """Makes hosts: weir serve."""
    made = []

    def make(yaml=HEAD + RULES, start=True, **more):
        made.append(Served(yaml, backend))
        return made[-1].start(**more) if start else made[-1]

    yield make
    for one in made:
        one.remove()


@pytest.fixture
def host(backend):
    """Makes hosts with the control plane: weir serve, to be begun by the test."""
    made = []

    def make(yaml=controlled.HEAD + controlled.ADMIN + controlled.RULES):
        made.append(controlled.Host(yaml, backend))
        return made[-1]

    yield make
    for one in made:
        one.remove()
