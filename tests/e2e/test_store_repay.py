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


def denied_after(rate):
    """For how long nothing passed after the store came back, and how much passed in all, of the limit."""
    server = Server().start()
    relay = Relay(server.port)
    try:
        with Fleet(rule("eventual", LIMIT, "1s", "eventual"), f"redis://127.0.0.1:{relay.port}", workers=1) as fleet:
            with fleet.load("eventual", seconds=2 + AWAY + 9, rate=rate, keys=1) as load:
                time.sleep(2)
                relay.be("refuse")
                time.sleep(AWAY)
                relay.be()
                back = time.monotonic()
        passed = [record.begun for record in load.records if record.status == 200]
        after = [back] + [begun for begun in passed if begun > back]
        gap = max(later - sooner for sooner, later in zip(after, after[1:]))
        return gap, len(passed) / (LIMIT * (load.records[-1].begun - load.records[0].begun) + LIMIT)
    finally:
        relay.remove()
        server.remove()


@pytest.fixture(scope="module")
def outcomes():
    """By rate: what came of it. Both at once; a second try is by itself."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        begun = {rate: pool.submit(denied_after, rate) for rate in (80, 200)}

        def told(rate):
            first = begun.pop(rate, None)
            return first.result() if first else denied_after(rate)
        yield told


@measured
def test_who_stays_below_the_limit_owes_nothing(outcomes):
    gap, _ = outcomes(80)
    assert gap < 0.5


@measured
def test_twice_the_limit_is_repaid_in_the_same_time(outcomes):
    """Twice the limit for 4 s are 4 s to repay; a second more for hosts that come back one after the other."""
    gap, passed = outcomes(200)
    assert AWAY - 1.2 < gap < AWAY + 1.2
    assert 0.9 < passed < 1.02
