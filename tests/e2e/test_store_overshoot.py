"""eventual: how far beyond its limit a key goes, and that the long run is the limit."""
import pytest

from measured import measured
from overshoot import bounds, long_run, overshoot

pytestmark = pytest.mark.alone


@pytest.mark.parametrize("hosts, interval_ms", [(3, 50), (5, 20), (10, 200)])
@measured
def test_no_more_than_the_bound_passes(hosts, interval_ms):
    seen = overshoot(hosts, interval_ms)
    assert 0 <= seen.beyond <= seen.bound, seen


@measured
def test_the_long_run_is_the_limit():
    """Also from the first second on, and though each host alone would let everything pass."""
    part, beyond = long_run(3, 50, 6)
    assert beyond <= bounds(3, 50, 2500)[1]
    assert 0.97 <= part <= 1.03
