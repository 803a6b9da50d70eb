"""A debt from a time without the store is repaid: what was used beyond the limit, and no more."""
import concurrent.futures
import time

import pytest

from fleet import Fleet, rule
from measured import measured
from relay import Relay
from stores import Server

pytestmark = [pytest.mark.alone, pytest.mark.xdist_group("repay")]

LIMIT, AWAY = 100, 4.0
BELOW, ABOVE = 80, 300
BUCKET = "algorithm: token_bucket"


def suffer(fault, server, relay):
    """Begins, lasts for AWAY seconds and ends."""
    begin, end = {
        "refuse": (lambda: relay.be("refuse"), relay.be),
        "stop": (server.pause, server.resume),
        "silent": (lambda: relay.be("silent"), relay.be),  # what is on its way stays there, and arrives in the end
        "slow": (lambda: relay.be(delay=0.4), relay.be),
    }[fault]
    begin()
    time.sleep(AWAY)
    end()


def denied_after(fault, rate, more=BUCKET, after=5.0):
    """For how long nothing passed from the fault on, how many were denied, and how much passed in all, of the limit."""
    server = Server().start()
    relay = Relay(server.port)
    try:
        with Fleet(rule("eventual", LIMIT, "1s", "eventual", more), f"redis://127.0.0.1:{relay.port}", workers=1) as fleet:
            with fleet.load("eventual", seconds=2 + AWAY + after, rate=rate, keys=1) as load:
                time.sleep(2)
                begun = time.monotonic()
                suffer(fault, server, relay)
        passed = [record.begun for record in load.records if record.status == 200]
        moments = [begun, *(at for at in passed if at > begun), load.records[-1].begun]
        gap = max(later - sooner for sooner, later in zip(moments, moments[1:]))
        denied = sum(record.status == 429 for record in load.records)
        return gap, denied, len(passed) / (LIMIT * (load.records[-1].begun - load.records[0].begun) + LIMIT)
    finally:
        relay.remove()
        server.remove()


CASES = [(fault, BELOW, BUCKET) for fault in ("refuse", "stop", "silent", "slow")]
CASES += [("stop", BELOW, f"{BUCKET}, burst: 20"), ("stop", BELOW, "algorithm: fixed_window"),
          ("stop", BELOW, "algorithm: sliding_window_log"), ("stop", BELOW, "algorithm: sliding_window_counter"),
          ("refuse", ABOVE, BUCKET, 3 * AWAY), ("stop", ABOVE, BUCKET, 3 * AWAY)]


@pytest.fixture(scope="module")
def outcomes():
    """By case: what came of it. Several at once; a second try is by itself."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        begun = {case: pool.submit(denied_after, *case) for case in CASES}

        def reply(case):
            first = begun.pop(case, None)
            return first.result() if first else denied_after(*case)
        yield reply


@pytest.mark.parametrize("case", [case for case in CASES if case[1] == BELOW], ids=lambda case: f"{case[0]}, {case[2]}")
@measured
def test_clients_below_the_limit_owe_nothing(outcomes, case):
    gap, denied, _ = outcomes(case)
    assert gap < 0.5
    assert denied < 10


@pytest.mark.parametrize("case", [case for case in CASES if case[1] == ABOVE], ids=lambda case: case[0])
@measured
def test_what_was_used_beyond_the_limit_is_repaid(outcomes, case):
    """Three hosts, each by its own limit: twice too much for 4 s are 8 s to repay, and 2 s more for hosts that come back up
    to a second later."""
    gap, _, passed = outcomes(case)
    assert 2 * AWAY - 1.2 < gap < 2 * AWAY + 2.5
    assert 0.93 < passed < 1.03
