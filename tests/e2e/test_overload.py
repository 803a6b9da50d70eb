"""An upstream of known capacity that is offered five times of it: with adaptive limits it keeps working, and what is critical
hardly notices; without, it does not. The figures are ./dev bench pressure's; these are bounds that a busy machine keeps, too."""
import pathlib
import subprocess
import sys

import pytest

from served import PRELOAD, WEIR

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import pressure  # noqa: E402

BEFORE, DURING, TOLD = 3, 30, 6
pytestmark = pytest.mark.skipif(bool(PRELOAD), reason="bounds of speed, which a sanitizer does not keep")


@pytest.fixture(scope="module", autouse=True)
def programs():
    subprocess.run(["make", "-s", "build/gcc/bench/upstream", "build/gcc/bench/offer"], cwd=ROOT, check=True)


def overload(mode, monkeypatch, during=DURING):
    """Of the last seconds of an overload: goodput, fairness, and which share of what is critical was answered in time."""
    monkeypatch.chdir(ROOT)
    with pressure.Host(WEIR, *pressure.MODES[mode]) as host:
        rows = pressure.offer(host, [(BEFORE, 0.5), (during, 5)])
    told = pressure.within(rows, BEFORE + during - TOLD, BEFORE + during)
    critical = [row for row in told if row["name"] == "critical"]
    return (pressure.goodput(told, TOLD), pressure.jain(told),
            sum(row["ok"] for row in critical) / sum(row["sent"] for row in critical))


@pytest.mark.alone
def test_adaptive_limits_keep_it_working(monkeypatch):
    goodput, fairness, critical = overload("adaptive", monkeypatch)
    assert goodput > 0.7 and fairness > 0.95 and critical > 0.98


@pytest.mark.alone
def test_shedding_keeps_what_is_critical(monkeypatch):
    goodput, _, critical = overload("shedding", monkeypatch)
    assert goodput > 0.5 and critical > 0.95


@pytest.mark.alone
def test_without_either_nobody_is_served(monkeypatch):
    goodput, _, critical = overload("no limits", monkeypatch, during=12)
    assert goodput < 0.3 and critical < 0.5
