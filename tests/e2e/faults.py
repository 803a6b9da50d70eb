"""Faults of a store under load: each with its repair, and its effects on clients.

tests/e2e/test_store_faults.py runs them briefly; tools/reliability.py at length, for the table of docs/internals/reliability.md.
"""
import collections
import contextlib
import dataclasses
import math
import subprocess
import threading
import time
import typing

import wire
from fleet import Fleet, quantile, rule
from gateway import wait_until
from measured import Lateness
from relay import Relay
from stores import Cluster, Sentinels, Server, small_disk

KEYS = 20
DAY = 1_000_000  # more than all requests: a denial is one of a policy
DEADLINE = 0.020
LONGEST = 110  # seconds of load, however long fault and cure take
RULES = (rule("closed", DAY, "1d", "strict", "algorithm: fixed_window", "closed", "response: { status: 503 }") +
         rule("local", DAY, "1d", "strict", "algorithm: fixed_window", "local") +
         rule("eventual", DAY, "1d", "eventual", "algorithm: fixed_window") +
         rule("leased", DAY, "1d", "leased", "algorithm: fixed_window", "closed", "response: { status: 503 }"))
PATHS = ("closed", "local", "eventual", "leased")


class Impossible(Exception):
    """This machine does not have what the fault needs."""


@dataclasses.dataclass
class Case:
    """A store, its fault, and the repair, which returns when the store can reply again."""
    url: typing.Union[str, typing.Callable]
    fault: typing.Callable
    cure: typing.Callable
    sites: typing.Optional[list] = None
    fleet: typing.Optional[Fleet] = None  # once it runs


@dataclasses.dataclass
class Fault:
    name: str
    make: typing.Callable
    interrupts: typing.Optional[bool] = True  # strict decisions fail while it lasts; None: some may
    forgets: bool = False  # the store loses everything, the hosts' names too: they bring back what they know
    loses: bool = False  # another master takes over, without what the old one acknowledged last
    twice: bool = False  # deltas of eventual rules may count twice
    batches: int = 0  # that every agent has sent before, or it does not use their numbers (docs/internals/sync.md, set back)
    alone: float = 0.0  # how long it lasts by itself at least, in seconds
    settle: float = 1.0


FAULTS = {}


def fault(name, **more):
    def known(make):
        FAULTS[make.__name__] = Fault(name, make, **more)
        return make
    return known


def redis(keep, *options, **more):
    return keep(Server(*options, **more)).start()


def nothing():
    pass


@fault("nothing happens", interrupts=False)
def no_fault(keep):
    return Case(redis(keep).url, nothing, nothing)


@fault("kill -9, started again with what it had")
def killed(keep):
    server = redis(keep, "appendonly yes", "appendfsync always")
    return Case(server.url, server.kill, server.start)


@fault("kill -9, started again empty", forgets=True)
def killed_empty(keep):
    server = redis(keep)
    return Case(server.url, server.kill, server.start)


@fault("paused (SIGSTOP)")
def paused(keep):
    server = redis(keep)
    return Case(server.url, server.pause, server.resume)


@fault("FLUSHALL", interrupts=False, forgets=True)
def flushed(keep):
    server = redis(keep)
    return Case(server.url, server.flush, nothing)


@fault("SCRIPT FLUSH, again and again", interrupts=False)
def scripts_lost(keep):
    server, ended = redis(keep), threading.Event()

    def forget():
        while not ended.wait(0.05):
            server.forget_scripts()
    thread = threading.Thread(target=forget)

    def cure():
        ended.set()
        thread.join()
    return Case(server.url, thread.start, cure)


@fault("READONLY: it became a replica", forgets=True)
def readonly(keep):
    server, other = redis(keep), redis(keep)
    return Case(server.url, lambda: server.must("REPLICAOF", "127.0.0.1", other.port),
                lambda: server.must("REPLICAOF", "NO", "ONE"))


@fault("OOM: no memory left")
def oom(keep):
    server = redis(keep, "maxmemory-policy noeviction")
    return Case(server.url, lambda: server.must("CONFIG", "SET", "maxmemory", "1"),
                lambda: server.must("CONFIG", "SET", "maxmemory", "0"))


@fault("full disk (MISCONF)")
def full_disk(keep):
    disk = keep.enter(small_disk())
    if not disk:
        raise Impossible("no small file system can be mounted here")
    server = redis(keep, "appendonly yes", "appendfsync everysec", where=disk)

    def fill():
        with open(disk / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
            for _ in range(10000):
                filler.write(b"x" * 4096)
        for _ in range(20):
            server.do("SET", "filler", "x" * 4000)

    def empty():
        (disk / "filler").unlink()
        wait_until(lambda: server.do("SET", "filler", "") == "OK", "room on the disk")
    return Case(server.url, fill, empty)


@fault("LOADING: started with much to read")
def loading(keep):
    server = redis(keep, *Server.LOADING)
    return Case(server.url, server.load, server.finish_loading)


@fault("WRONGTYPE: something else has the counters' names")
def wrong_type(keep):
    server = redis(keep)
    names = [f"weir:{path}:{key}" for path in ("closed", "local") for key in range(KEYS)]

    def spoil():
        with server.connect() as client:
            for name in names:
                client.pipeline([("MULTI",), ("DEL", name), ("LPUSH", name, "x"), ("EXEC",)])
    return Case(server.url, spoil, lambda: server.must("DEL", *names))


def relayed(name, mode, after_cut=False, **more):
    @fault(name, **more)
    def case(keep):
        relay = keep(Relay(redis(keep).port))
        return Case(f"redis://127.0.0.1:{relay.port}", lambda: relay.be(mode, text="ERR not today"),
                    lambda: relay.be(cut=after_cut))
    FAULTS[mode] = FAULTS.pop("case")


relayed("connections cut and refused", "refuse")
relayed("silence: connected, but nothing passes", "silent", after_cut=True)
relayed("garbage instead of answers", "garbage")
relayed("an unknown error", "error")
relayed("one byte a second", "trickle", after_cut=True)


def wired(name, how, **more):
    """Hosts in namespaces of their own; the wires to the store have the fault."""
    @fault(name, **more)
    def case(keep):
        can, why_not = wire.possible()
        if not can:
            raise Impossible(why_not)
        sites = [keep(wire.Site()) for _ in range(3)]
        server = redis(keep, bind=("127.0.0.1", *(site.store for site in sites)))

        def change(**to):
            for site in sites:
                site.be(**to)
        return Case(lambda site: f"redis://{site.store}:{server.port}", lambda: change(**how), change, sites)
    FAULTS[name.split()[0].strip(":")] = FAULTS.pop("case")


wired("partition: no packet passes, then all do", {"cut": True})
wired("latency of 50 ms", {"delay": 0.025})
wired("loss of 5 % of the packets", {"loss": 0.05}, interrupts=None)


SET_BACK = 24  # batches after which three failovers may follow each other: on a busy machine the sentinels see more than ours


@fault("Sentinel: the master killed", loses=True, batches=SET_BACK, alone=1.0, settle=2.0)
def sentinel_killed(keep):
    sentinels = keep(Sentinels()).start()
    master = sentinels.master()
    return Case(sentinels.url, master.kill, lambda: sentinels.promoted(master))


@fault("Sentinel: failover on request", loses=True, interrupts=None, batches=SET_BACK, settle=2.0)
def sentinel_failover(keep):
    sentinels = keep(Sentinels()).start()
    return Case(sentinels.url, sentinels.failover, nothing)


@fault("Cluster: a master lost", loses=True, twice=True, alone=1.0, settle=2.0)
def cluster_lost(keep):
    cluster = keep(Cluster(Cluster.QUICK)).start()
    lost = []

    def lose():
        lost.append(cluster.masters()[0])
        lost[0].kill()
    return Case(cluster.url, lose, lambda: cluster.taken_over(lost[0]))


@fault("Cluster: slots move to another master", interrupts=None, twice=True)
def cluster_reshard(keep):
    cluster = keep(Cluster()).start()
    one, two, _ = cluster.masters()
    return Case(cluster.url, lambda: cluster.reshard(one, two, 1000), lambda: cluster.reshard(two, one, 1000))


@fault("weir agent killed (-9) and started again", interrupts=False, twice=True)
def agent_killed(keep):
    case = Case(redis(keep).url, None, nothing)

    def kill():
        for host in case.fleet.hosts:
            host.kill_agent()
    case.fault = kill
    return case


class Keeper(contextlib.ExitStack):
    """Removes what was made, the last first."""

    def __call__(self, one):
        self.callback(one.remove)
        return one

    enter = contextlib.ExitStack.enter_context


Outcome = collections.namedtuple("Outcome", "failed statuses p99 p99_before worst recovery refused refused_leased lost lost_leased bearable changes back begun cured machine")


def exchanged(fleet, host):
    """Batches that its agent sent, and that were acknowledged."""
    ledger = fleet.status(host)["ledger"]
    return ledger["requests"] - ledger["failures"]


def reported(fleet, host, path):
    """The remaining units that a host reports with a request."""
    one = fleet.hosts[host]
    words = [*one.inside, "curl", "-sS", "-o", "/dev/null", "-D", "-", f"http://{one.address}:{one.port}/{path}"]
    text = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    return next(int(line.split(":")[1]) for line in text.lower().splitlines() if line.startswith("x-ratelimit-remaining"))


def remaining(fleet, host, key):
    """The remaining units of the key of the eventual rule, as a host reports them after an exchange, plus those of the query itself."""
    for _ in range(2):
        before = exchanged(fleet, host)
        left = reported(fleet, host, f"eventual/{key}")
        wait_until(lambda: exchanged(fleet, host) >= before + 2, "exchanges of what was asked for")  # one may be on its way
    return left


RETURNED = 7.0  # seconds without requests after which hosts have returned what they leased


def lost_leases(load, fleet, keys=3):
    """
    Units of the leased rule that the store has as used and that no request got, over some keys: what hosts held that were
    cut off until their leases had ended. Negative: admitted beyond what the store knows of.
    """
    admitted = load.admitted("leased")
    time.sleep(RETURNED)
    return sum(DAY - reported(fleet, at % len(fleet.hosts), f"leased/{key}") - 1 - admitted[key]
               for at, key in enumerate(sorted(admitted)[:keys]))


def told_meanwhile(load, keys=3, interval=0.050):
    """
    What may be lost of `keys` keys when the store forgets everything. The first host to return brings back what it heard
    in its last exchange of the key: one interval before the end if it uses the key, up to eight if others do. What the two
    others told since then is gone, unless they return with less; they let it pass in that time and the interval before.
    """
    admitted = load.admitted("eventual")
    seconds = load.records[-1].begun - load.records[0].begun
    rate = sum(admitted[key] for key in sorted(admitted)[:keys]) / seconds
    return math.ceil(rate * 2 / 3 * (8 + 1) * interval) + keys  # requests come by chance, not evenly


def lost_units(fleet, load, keys=3):
    """What hosts admitted and the fleet no longer knows of, over some keys; negative: counted twice."""
    admitted = load.admitted("eventual")
    for host in range(len(fleet.hosts)):
        wait_until(lambda: fleet.status(host)["ledger"]["lag_ms"] == 0, "all to be told")
    lost = 0
    for sent, key in enumerate(sorted(admitted)[:keys]):
        lost += remaining(fleet, sent % len(fleet.hosts), key) - (DAY - admitted[key] - 2)
    return lost


def suffer(one, before=0.6, during=1.0, after=2.2, rate=400, workers=1, options=(), leases=False):
    """Load, the fault, its cure, and more load: what came of it."""
    with Keeper() as keep:
        case = one.make(keep)
        fleet = Fleet(RULES, case.url, workers=workers, sites=case.sites, options=options)
        case.fleet = keep.enter(fleet)
        for host in range(len(fleet.hosts)):  # each has met its store
            wait_until(lambda: request(fleet, host) == 200, "a first answer from the store")
        during = max(during, one.alone)
        seconds = before + during + one.settle + after
        with Lateness() as machine, fleet.load(*PATHS, seconds=LONGEST, rate=rate, keys=KEYS) as load:
            time.sleep(before)
            for host in range(len(fleet.hosts) if one.batches else 0):
                wait_until(lambda: exchanged(fleet, host) >= one.batches, f"{one.batches} batches")
            lines_before = sum(host.log_text().count("store") for host in fleet.hosts)
            begun = time.monotonic()
            case.fault()
            time.sleep(max(begun + during - time.monotonic(), 0))
            case.cure()
            cured = time.monotonic()
            time.sleep(max(load.begun + seconds - cured, after))  # long enough to measure, however long the repair took
            load.end()
        changes = sum(host.log_text().count("store") for host in fleet.hosts) - lines_before
        back = min(host.log_text().count("available again") for host in fleet.hosts)
        seen = outcome(load, fleet, begun, cured, changes, machine)._replace(back=back)
        return seen._replace(lost_leased=lost_leases(load, fleet)) if leases else seen


def request(fleet, host):
    one = fleet.hosts[host]
    words = [*one.inside, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}",
             f"http://{one.address}:{one.port}/closed/first"]
    return int(subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout)


def well(records, host, never):
    """When a host gets replies of the store again: the first of five in a row."""
    own = sorted((record for record in records if record.host == host), key=lambda record: record.begun)
    for at in range(len(own) - 4):
        if all(record.status == 200 for record in own[at:at + 5]):
            return own[at].begun + own[at].took
    return never


def outcome(load, fleet, begun, cured, changes, machine):
    """Latencies of requests that were sent while the machine did not stall, if there are enough of them."""
    end = load.records[-1].begun + 1

    def calm(records):
        chosen = [record for record in records if machine.calm(record.begun, record.begun + record.took)]
        return chosen if 10 * len(chosen) >= len(records) else records
    meanwhile, later = calm(load.between(begun, cured, "closed")), load.between(begun, end)
    leased = calm(load.between(begun, cured, "leased"))
    recovered = max(well(load.between(cured, end, "closed"), host, end) for host in range(len(fleet.hosts)))
    allowed = {"closed": (200, 503), "local": (200,), "eventual": (200,), "leased": (200, 503)}
    failed = [record for record in load.records if record.status not in allowed[record.path]]
    return Outcome(
        failed=len(failed), statuses=dict(load.statuses()), p99=quantile(calm(later), 0.99),
        p99_before=quantile(load.between(0, begun), 0.99), worst=quantile(later, 1.0),
        recovery=recovered - cured - machine.still(cured, recovered),
        refused=sum(record.status != 200 for record in meanwhile) / max(len(meanwhile), 1),
        refused_leased=sum(record.status != 200 for record in leased) / max(len(leased), 1), lost=lost_units(fleet, load),
        lost_leased=None, bearable=told_meanwhile(load),
        changes=changes, back=0, machine=machine.p99(begun), begun=begun - load.begun, cured=cured - load.begun)
