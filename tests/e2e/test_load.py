"""Exactness over workers and instances, and faults while requests come in."""
import json
import os
import signal
import subprocess
import threading
import time

import pytest

from clients import flood, get, statuses
from controlled import reloads
from gateway import wait_until


def day(limit, **more):
    return json.dumps({"rules": [{"name": "r", "limit": limit, "window": "1d", **more}]})


@pytest.mark.parametrize("algorithm", ["token_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter"])
def test_exactly_the_limit_over_two_workers(gateway, algorithm):
    # A bucket of 100 that refills within a day gets its 101st only after minutes.
    g = gateway(day(100, algorithm=algorithm), workers=2, listen="reuseport")
    assert flood(g.port, "/x", connections=16, each=25) == {200: 100, 429: 300}
    pids = {line["pid"] for line in g.log(400)}
    assert len(pids) == 2
    assert g.status()["decisions"]["denied"] == 300  # whichever worker answers, it knows of all


def test_two_nginx_share_one_segment(gateway):
    one = gateway(day(100), workers=2)
    two = gateway(day(100), segment=one.segment)
    seen = {}
    threads = [threading.Thread(target=lambda g=g: seen.update({g: flood(g.port, "/x", 8, 20)})) for g in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen[one][200] + seen[two][200] == 100
    assert one.status()["decisions"]["allowed"] == two.status()["decisions"]["allowed"] == 100


class Load:
    """wrk while something happens, however long that takes: for some seconds, and for ENOUGH requests, at least."""

    ENOUGH = 2500

    def __init__(self, g, seconds, path="/x"):
        self.g, self.until = g, time.monotonic() + seconds
        self.wrk = subprocess.Popen(["wrk", "-t1", "-c8", "-d300s", f"http://127.0.0.1:{g.port}{path}"],
                                    stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        time.sleep(0.4)
        return self

    def __exit__(self, kind, *_):
        if not kind:
            time.sleep(max(self.until - time.monotonic(), 0))
            wait_until(lambda: sum(self.counts().values()) >= self.ENOUGH, "enough requests")
        self.wrk.send_signal(signal.SIGINT)  # it ends, and tells what it saw
        self.output = self.wrk.communicate(timeout=60)[0]

    def counts(self):
        """How often each status is in the access log."""
        seen = {}
        with open(self.g.folder / "access.log", encoding="utf-8") as lines:
            for line in lines:
                status = line[10:13]
                seen[status] = seen.get(status, 0) + 1
        return seen


def test_reloads_under_load_lose_nothing(gateway):
    g = gateway(day(1000, algorithm="fixed_window"), workers=2)
    with Load(g, 3) as load:
        for _ in range(3):
            g.reload()
            time.sleep(0.3)
    counts = load.counts()
    assert counts.pop("200") == 1000 and counts.pop("429") > 1000 and not counts, counts


def test_a_binary_upgrade_under_load_loses_nothing(gateway):
    g = gateway(day(1000, algorithm="fixed_window"), workers=2)
    with Load(g, 3) as load:
        g.upgrade()
    counts = load.counts()
    assert counts.pop("200") == 1000 and counts.pop("429") > 1000 and not counts, counts
    assert get(g.port, "/x").status == 429


def test_killed_workers_under_load(gateway):
    g = gateway(day(1000, algorithm="sliding_window_log"), workers=2, expected=("exited on signal 9",),
                server="location = /page.txt { root @FOLDER@/html; }")  # the upstream would be killed with them
    with Load(g, 3, "/page.txt") as load:
        for _ in range(4):
            killed = g.workers()[0]
            os.kill(killed, signal.SIGKILL)
            time.sleep(0.4)
            g.wait_for_workers([killed])
    counts = load.counts()
    # A worker may die between taking a unit and writing its line: a few may be missing, never one too many.
    admitted = counts.pop("200")
    assert 900 <= admitted <= 1000 and counts.pop("429") > 1000, (admitted, counts)
    assert not counts, counts
    assert statuses(g.port, "/x", 2) == [429, 429]


def test_a_rule_change_under_load(gateway):
    g = gateway(day(500, algorithm="fixed_window"), workers=2,
                server="location = /metrics { weir off; weir_metrics; access_log off; }")
    g.metrics = g.port

    def both_workers(result, times=1):
        """Each looks by itself, once a second."""
        seen = {}
        wait_until(lambda: sorted(reloads(g, seen, result).values()) == [times] * 2, f"both workers: {result}")
    with Load(g, 4) as load:
        g.write_rules(day(1000, algorithm="fixed_window"))
        wait_until(lambda: g.status()["decisions"]["allowed"] == 1000, "the new limit")
        both_workers("ok")
        g.write_rules("rules: [{ name: r, limit: many, window: 1d }]")  # broken: the old rules stay
        both_workers("failed")
    counts = load.counts()
    assert counts.pop("200") >= 1000 and counts.pop("429") > 1000 and not counts, counts
    status = g.status()
    assert status["decisions"]["allowed"] == 1000  # what was consumed stays consumed
    assert status["rules"]["reloads"] == 1 and status["rules"]["reload_failures"] == 1
    g.write_rules(day(1000, algorithm="fixed_window"))
    wait_until(lambda: "good again" in g.errors(), "the repaired rules")
    both_workers("ok", 2)
    for level, text in (("notice", '" reloaded: 1 rule is active'), ("error", "rules.yaml:1:"),
                        ("error", "not loaded; the previous rules stay active"),
                        ("notice", "good again and reloaded: 1 rule is active")):
        found = [line for line in g.errors().splitlines() if text in line]
        assert len(found) == 1 and f"[{level}]" in found[0], (text, found)  # and not once for each worker


def test_rules_reload_without_requests(gateway):
    g = gateway(day(1))
    g.write_rules(day(2))
    wait_until(lambda: g.status()["rules"]["reloads"] == 1, "the new rules")
    assert statuses(g.port, "/x", 3) == [200, 200, 429]


def test_a_worker_that_starts_with_broken_rules_on_the_disk(gateway):
    g = gateway(day(2), expected=("exited on signal 9",))
    assert get(g.port, "/x").status == 200
    g.write_rules("rules: [")
    old = g.workers()
    os.kill(old[0], signal.SIGKILL)
    wait_until(lambda: g.workers() and g.workers() != old, "another worker")
    assert statuses(g.port, "/x", 2) == [200, 429]  # the rules it was configured with, and the counters
    os.kill(g.master, signal.SIGHUP)
    wait_until(lambda: "[emerg]" in g.errors(), "a refused configuration")
    assert get(g.port, "/x").status == 429
    g.expected += ("rules.yaml", "WEIR_ERULES")


def test_the_segment_removed_while_running(gateway):
    g = gateway(day(2))
    assert get(g.port, "/x").status == 200
    g.segment.unlink()
    assert statuses(g.port, "/x", 2) == [200, 429]  # it is mapped
    g.reload()
    assert statuses(g.port, "/x", 3) == [200, 200, 429]  # a new one


def test_the_segment_cut_short_under_load(gateway):
    g = gateway(json.dumps({"rules": [
        {"name": "local", "match": {"path": "/x"}, "limit": 4000000, "window": "1d"},
        {"name": "closed", "match": {"path": "/closed"}, "limit": 1, "window": "1d", "on_store_failure": "closed"}]}),
        workers=2, listen="reuseport", expected=("was truncated",))
    assert statuses(g.port, "/closed", 2) == [200, 429]
    before = sorted(g.workers())
    with Load(g, 3) as load:
        os.truncate(g.segment, 0)
        wait_until(lambda: g.status()["segment"].get("lost"), "the loss")
    counts = load.counts()
    assert counts.pop("499", 0) <= 8  # those that were on their way when wrk left
    assert counts.pop("200") > 1000 and counts.pop("429") == 1 and not counts, counts  # on_store_failure: local
    assert "Non-2xx" not in load.output and "Socket errors" not in load.output, load.output
    assert sorted(g.workers()) == before
    denied = get(g.port, "/closed")
    assert denied.status == 503 and "Retry-After" not in denied.headers
    wait_until(lambda: g.errors().count("until the file is removed and nginx reloaded") == 2, "each worker's word")

    os.kill(g.master, signal.SIGHUP)  # what is left of the file is no segment: refused, and all goes on
    wait_until(lambda: "WEIR_ENOTSEG" in g.errors(), "a refused configuration")
    g.expected += ("WEIR_ENOTSEG",)
    assert get(g.port, "/x").status == 200
    g.segment.unlink()
    g.reload()
    assert statuses(g.port, "/closed", 2) == [200, 429]
    assert "lost" not in g.status()["segment"]
