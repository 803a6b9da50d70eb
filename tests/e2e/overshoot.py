"""eventual: how many more than the limit pass, and what passes in the long run."""
import collections

from faults import Keeper
from fleet import Fleet, rule
from stores import Server

Overshoot = collections.namedtuple("Overshoot", "hosts interval rate limit admitted beyond usual bound")
ROUND_TRIP = 0.005  # and what the agent itself takes, on a machine that others use, too


def bounds(hosts, interval_ms, rate):
    """Units that the other hosts admit in one interval, the common case, and in two, the maximum.

    Until a host has told what it used, up to an interval passes; until another asks after that, up to one more."""
    one = rate * (hosts - 1) / hosts * (interval_ms / 1000 + ROUND_TRIP)
    return one, 2 * one


def overshoot(hosts, interval_ms, rate=3000, limit=1500):
    """Requests for one key at all hosts at once, well beyond its limit."""
    with Keeper() as keep:
        server = keep(Server()).start()
        fleet = keep.enter(Fleet(rule("hot", limit, "1d", "eventual", "algorithm: fixed_window"), server.url, hosts,
                                 workers=1, options=(f"sync_interval: {interval_ms}ms",)))
        load = fleet.load("hot", count=int(1.5 * limit + 0.5 * rate), rate=rate, keys=1).run()  # however long it takes
    admitted = load.statuses()[200]
    return Overshoot(hosts, interval_ms, rate, limit, admitted, admitted - limit, *bounds(hosts, interval_ms, rate))


def long_run(hosts, interval_ms, seconds, limit=1000, rate=2500, burst=100):
    """One key under a bucket, asked for so often that each host alone would let all pass: what passed from the start on,
    beyond the burst, as a part of the limit; and how many were admitted beyond what a single bucket would have."""
    with Keeper() as keep:
        server = keep(Server()).start()
        fleet = keep.enter(Fleet(rule("hot", limit, "1s", "eventual", "algorithm: token_bucket", more=f"burst: {burst}"),
                                 server.url, hosts, workers=1, options=(f"sync_interval: {interval_ms}ms",)))
        load = fleet.load("hot", seconds=seconds, rate=rate, keys=1).run()
    admitted = load.statuses()[200]
    lasted = load.records[-1].begun - load.records[0].begun
    return (admitted - burst) / lasted / limit, admitted - burst - lasted * limit
