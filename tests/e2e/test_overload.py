"""An upstream of known capacity that is offered five times of it: with adaptive limits it keeps working, and what is critical
hardly notices; without, it does not. The figures are ./dev bench pressure's; these are bounds that a busy machine keeps, too."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

import pytest

from measured import measured
from served import PRELOAD, WEIR

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import pressure  # noqa: E402

BEFORE, DURING, TOLD = 3, 30, 6
LASTS = {"adaptive": DURING, "shedding": DURING, "no limits": 12}
pytestmark = [pytest.mark.skipif(bool(PRELOAD), reason="bounds of speed, which a sanitizer does not keep"),
              pytest.mark.alone, pytest.mark.xdist_group("overload")]


@pytest.fixture(scope="module")
def overloaded():
    """By mode: what came of it. All that were asked for begin at once, each with an upstream and a host of its own, for most
    of it is waiting; a second try is by itself."""
    subprocess.run(["make", "-s", "build/gcc/bench/upstream", "build/gcc/bench/offer"], cwd=ROOT, check=True)
    before = os.getcwd()
    os.chdir(ROOT)
    with concurrent.futures.ThreadPoolExecutor(len(LASTS)) as pool:
        begun = {mode: pool.submit(overload, mode) for mode in LASTS}

        def reply(mode):
            first = begun.pop(mode, None)
            return first.result() if first else overload(mode)
        yield reply
    os.chdir(before)


def overload(mode):
    """Of the last seconds of an overload: goodput, fairness, and which share of what is critical was answered in time."""
    during = LASTS[mode]
    with pressure.Host(WEIR, *pressure.MODES[mode]) as host:
        rows = pressure.offer(host, [(BEFORE, 0.5), (during, 5)])
    reply = pressure.within(rows, BEFORE + during - TOLD, BEFORE + during)
    critical = [row for row in reply if row["name"] == "critical"]
    return (pressure.goodput(reply, TOLD), pressure.jain(reply),
            sum(row["ok"] for row in critical) / sum(row["sent"] for row in critical))


@measured
def test_adaptive_limits_preserve_goodput(overloaded):
    goodput, fairness, critical = overloaded("adaptive")
    assert goodput > 0.7 and fairness > 0.95 and critical > 0.98, (goodput, fairness, critical)


@measured
def test_shedding_spares_critical_requests(overloaded):
    goodput, _, critical = overloaded("shedding")
    assert goodput > 0.5 and critical > 0.95, (goodput, critical)


@measured
def test_without_either_goodput_collapses(overloaded):
    goodput, _, critical = overloaded("no limits")
    assert goodput < 0.3 and critical < 0.5, (goodput, critical)
