"""strict: exactly the limit for each of 1,000 keys, over three hosts with two workers each."""
import itertools
import time

import pytest

from faults import Keeper
from fleet import ALGORITHMS, Fleet, meanwhile, rule
from stores import Cluster, Server

pytestmark = pytest.mark.xdist_group("exact")  # one fleet for all

LIMIT, EACH, KEYS = 5, 8, 1000
# Nobody is in a hurry: it is the count that is looked at, on a machine that others use, too.
PATIENT = ("deadline: 10s",)
FORGETFUL = ("token", "log")
RULES = "".join(rule(name, LIMIT, "1d", "strict", algorithm, "closed") for name, algorithm in
                [*ALGORITHMS.items(), *((f"{name}-again", ALGORITHMS[name]) for name in FORGETFUL)])


@pytest.fixture(scope="module")
def keep():
    with Keeper() as keeper:
        yield keeper


@pytest.fixture(scope="module")
def server(keep):
    return keep(Server()).start()


@pytest.fixture(scope="module")
def fleet(keep, server):
    return keep.enter(Fleet(RULES, server.url, options=PATIENT))


@pytest.fixture(scope="module")
def cluster(keep):
    return keep(Cluster()).start()


@pytest.fixture(scope="module")
def spread_fleet(keep, cluster):
    return keep.enter(Fleet(RULES, cluster.url, options=PATIENT))


def exactly(load):
    for path in load.paths:
        assert load.statuses(path) == {200: LIMIT * KEYS, 429: (EACH - LIMIT) * KEYS}, path
        admitted = load.admitted(path)
        assert {admitted[key] for key in range(KEYS)} == {LIMIT}, path
    assert {record.host for record in load.records} == {0, 1, 2}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm(fleet, algorithm):
    exactly(fleet.load(algorithm, count=EACH * KEYS, keys=KEYS).run())


@pytest.mark.parametrize("algorithm", FORGETFUL)
def test_while_the_server_forgets_the_script(fleet, server, algorithm):
    def forget():
        server.forget_scripts()
        time.sleep(0.03)
    load = fleet.load(f"{algorithm}-again", count=EACH * KEYS, keys=KEYS)
    assert meanwhile(load, forget) > 2
    exactly(load)


def test_every_algorithm_while_slots_move(spread_fleet, cluster):
    masters = cluster.masters()
    ways = itertools.cycle(zip(masters, masters[1:] + masters[:1]))
    load = spread_fleet.load(*ALGORITHMS, count=EACH * KEYS * len(ALGORITHMS), rate=5000, keys=KEYS)
    assert meanwhile(load, lambda: cluster.reshard(*next(ways), 150)) >= 2
    exactly(load)
