#!/usr/bin/env python3
"""./dev bench fleet: one limit on several hosts, by leased units, and in several regions.

Hosts (weir serve, one worker each), a real Redis and the load (tests/e2e/spread.c) share this machine, so figures are ratios
within a run: leased and local rules alternate on the same hosts, and a bar is the median of the rounds.

over-admission: requests at twice the limit, spread evenly over the hosts; what passed beyond the limit (fixed window), or
beyond an ideal bucket over any interval. use of the limit: a bucket at twice its rate, with 90 % of the requests on one of
three hosts. throughput: 1,000 keys. latency: 300 keys at 3,000 requests a second, as many for each key as 1,000 keys at
10,000 have. scripts: EVALSHA calls of the store, of agents and workers, for each admitted request, when leases are in use.

regions: three, with a store and a host each; relays delay what they send each other by 75 ms. denied in all: from the first
denial in one region, for a key that all know. bytes: in both directions, with what the agents exchange besides.
"""
import argparse
import contextlib
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
os.environ.setdefault("WEIR_NGINX_MODULE", str(ROOT / "build/gcc/nginx/ngx_http_weir_module.so"))
sys.path.insert(0, str(ROOT / "tests/e2e"))
PATIENT = ("deadline: 5s",)  # or on_store_failure would decide when this machine stalls
LIMIT = 1500


class Printer:
    def __init__(self, as_json):
        self.as_json, self.holds = as_json, []

    def figure(self, case, value, unit):
        if self.as_json:
            print(json.dumps({"bench": "fleet", "case": case, "value": round(value, 5), "unit": unit}), flush=True)
        else:
            print(f"{case:<62} {value:>9.4g} {unit}", flush=True)

    def bar(self, case, value, unit, bar, at_most, **more):
        holds = value <= bar if at_most else value >= bar
        self.holds.append(holds)
        if self.as_json:
            print(json.dumps({"bench": "fleet", "case": case, **more, "value": round(value, 5), "unit": unit, "bar": bar,
                              "holds": holds, **({"most": True} if at_most else {})}), flush=True)
        else:
            print(f"{case:<62} {value:>9.4g} {unit:<10} {'<=' if at_most else '>='} {bar:<8g} "
                  f"{'holds' if holds else 'MISSED'}", flush=True)


def beyond_bucket(records, rate, burst):
    """By how much an interval exceeds burst + rate * length, at most; requests count if they began and ended in it."""
    passed = sorted((record.begun, record.begun + record.took) for record in records if record.status == 200)
    worst = 0
    for at in range(0, len(passed), 5):
        first = passed[at][0]
        for count, end in enumerate(sorted(end for _, end in passed[at:]), 1):
            worst = max(worst, math.ceil(count - burst - rate * (end - first)))
    return worst


def over_admission(keep, printer, hosts):
    from fleet import Fleet, rule
    from stores import Server
    server = keep(Server()).start()
    rules = (rule("window", LIMIT, "1d", "leased", "algorithm: fixed_window", "closed") +
             rule("sliding", LIMIT, "300d", "leased", "algorithm: sliding_window_counter", "closed") +
             rule("bucket", 500, "1s", "leased", policy="closed", more="burst: 250"))
    fleet = keep.enter(Fleet(rules, server.url, hosts, workers=1, options=PATIENT))
    for name in ("window", "sliding"):
        load = fleet.load(name, count=2 * LIMIT, rate=2000, keys=1).run()
        printer.bar(f"leased: over-admission, {name}, {hosts} hosts", max(0, load.statuses()[200] - LIMIT), "requests", 0, True,
                    hosts=hosts, admitted=load.statuses()[200])
    load = fleet.load("bucket", seconds=4, rate=1000, keys=1).run()
    printer.bar(f"leased: over-admission, bucket, {hosts} hosts", beyond_bucket(load.records, 500, 250), "requests", 0, True,
                hosts=hosts, admitted=load.statuses()[200])


def use_of_the_limit(keep, printer, seconds):
    from fleet import Fleet, Load, rule
    from stores import Server
    server = keep(Server()).start()
    limit, burst = 500, 250
    fleet = keep.enter(Fleet(rule("bucket", limit, "1s", "leased", policy="closed", more=f"burst: {burst}"), server.url, 3,
                             workers=1, options=PATIENT))
    targets = fleet.targets()
    skewed = [targets[0]] * 18 + targets[1:]
    Load(skewed, ("bucket",), seconds=2, rate=2 * limit, keys=1).run()
    load = Load(skewed, ("bucket",), seconds=seconds, rate=2 * limit, keys=1).run()
    passed = [record for record in load.records if record.status == 200]
    lasted = max(record.begun for record in load.records) - min(record.begun for record in load.records)
    printer.bar("leased: use of the limit, demand 2 times, hosts 90/5/5", len(passed) / lasted / limit, "ratio", 0.98, False)


def calls(server):
    done = subprocess.run(["redis-cli", "-u", server.url, "INFO", "commandstats"], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        if line.startswith("cmdstat_evalsha:"):
            return int(line.split("calls=")[1].split(",")[0])
    return 0


def steady(keep, printer, seconds, rounds):
    from fleet import Fleet, rule
    from stores import Server
    server = keep(Server()).start()
    rules = rule("leased", 6000, "1m", "leased") + rule("local", 6000, "1m", "local")
    fleet = keep.enter(Fleet(rules, server.url, 3, workers=1, options=PATIENT))
    fleet.load("leased", seconds=5, rate=4000, keys=1000).run()
    throughput, latency, scripts = [], [], []
    for _ in range(rounds):
        found = {}
        for name in ("local", "leased"):
            fleet.load(name, seconds=3, rate=3000, keys=1000).run()  # leases that were not used were returned
            fast = fleet.load(name, seconds=seconds, rate=0, keys=1000).run()
            found[name] = fast.statuses()[200] / seconds
        throughput.append(found["leased"] / found["local"])
        p99 = {}
        for name in ("local", "leased"):
            fleet.load(name, seconds=3, rate=3000, keys=300).run()
            before = calls(server)
            load = fleet.load(name, seconds=seconds, rate=3000, keys=300).run()
            took = sorted(record.took for record in load.records if record.status == 200)
            p99[name] = took[int(len(took) * 0.99)]
            if name == "leased":
                scripts.append((calls(server) - before) / len(took))
        latency.append((p99["leased"] - p99["local"]) * 1e6)
    printer.bar("leased: throughput of the gateways / local, 1,000 keys, 3 hosts", statistics.median(throughput), "ratio", 0.95,
                False)
    printer.bar("leased: p99 beyond local, 300 keys, 3,000 requests/s", statistics.median(latency), "us", 100, True)
    printer.figure("leased: scripts an admitted request, 300 keys, 3,000 requests/s", statistics.median(scripts), "ratio")
    fleet.load("leased", seconds=3, rate=10000, keys=1000).run()
    before = calls(server)
    load = fleet.load("leased", seconds=seconds, rate=10000, keys=1000).run()
    passed = load.statuses()[200]
    printer.bar("leased: scripts an admitted request, 1,000 keys, 10,000/s", (calls(server) - before) / max(1, passed), "ratio",
                0.02, True, reached=passed / seconds)


ONE_WAY, SYNC, INTERVAL = 0.075, 0.05, 1.0  # seconds: between two regions, sync_interval, region.interval


def regions_of(keep, rules, **more):
    from regions import Regions
    return keep.enter(Regions(rules, one_way=ONE_WAY, **more))


def denials_in_regions(keep, printer, keys):
    from fleet import rule
    regions = regions_of(keep, rule("k", 1000, "1d", "eventual", "algorithm: fixed_window", more="scope: global"))
    took = sorted(regions.denied_everywhere(f"/k/{key}") for key in range(keys))
    printer.bar("regions: denied in all, RTT 150 ms, p99", took[math.ceil(len(took) * 0.99) - 1] * 1000, "ms", 500, True, keys=keys)


def buckets_in_regions(keep, printer, seconds):
    from fleet import rule
    limit, keys = 30, 20
    regions = regions_of(keep, rule("k", limit, "1s", "eventual", more="scope: global"))
    load = regions.load("k", seconds=seconds, rate=keys * limit * 2.5, keys=keys).run()
    begin = min(record.begun for record in load.records)
    passed = sorted((record for record in load.records if record.status == 200), key=lambda record: record.begun + record.took)
    worst, counts = 0, dict.fromkeys({record.key for record in passed}, 0)
    for record in passed:  # beyond what one bucket would have admitted from the first request on
        counts[record.key] += 1
        worst = max(worst, counts[record.key] - limit - limit * (record.begun + record.took - begin))
    bound = 2 * limit * (INTERVAL + 2 * 2 * ONE_WAY + 2 * SYNC) + 2 * limit + 2 * 0.1 * limit
    printer.bar("regions: over-admission / bound, 20 buckets, 2.5 times the limit", worst / bound, "ratio", 1, True)
    settled = sum(record.begun >= begin + 5 for record in passed)
    printer.bar("regions: long-run average / limit, deviation from 1", abs(settled / (seconds - 5) / limit / keys - 1), "ratio", 0.01,
                True, average=settled / (seconds - 5) / limit / keys)


def partition_of_regions(keep, printer, seconds):
    from fleet import rule
    regions = regions_of(keep, rule("k", 9000, "365d", "eventual", "algorithm: fixed_window", more="scope: global"), hot="0%")
    with regions.load("k", seconds=seconds + 4, rate=300, keys=20) as load:
        time.sleep(2)
        for other in (1, 2):
            regions.links[0, other].be("refuse")
            regions.links[other, 0].be("silent")
        time.sleep(seconds)
        for link in regions.links.values():
            link.be(delay=ONE_WAY, cut=True)
    admitted = load.admitted()
    with contextlib.suppress(AssertionError):
        regions.settled("k", admitted)
    wrong = sum(abs(regions.used(at, "k", key) - count) for at in range(3) for key, count in admitted.items())
    printer.bar(f"regions: units lost or counted twice, cut off for {seconds} s", wrong, "units", 0, True)


def bytes_between_regions(keep, printer, seconds):
    from fleet import rule
    keys = 200
    regions = regions_of(keep, rule("k", 900, "1m", "eventual", more="scope: global"), hot="0%")

    def sent(one, other):
        found = next(link for link in regions.seen(regions.hosts[one][0]) if link["name"] == regions.names[other])
        return found["bytes_out"] + found["bytes_in"]
    regions.load("k", seconds=3, rate=1800, keys=keys).run()
    before = sent(0, 1) + sent(1, 0)
    regions.load("k", seconds=seconds, rate=1800, keys=keys).run()
    printer.bar("regions: bytes between two, a key and second, 200 keys", (sent(0, 1) + sent(1, 0) - before) / seconds / keys, "bytes",
                256, True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", help="not needed: that of build/gcc")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    from faults import Keeper
    printer = Printer(options.json)
    for hosts in (3,) if options.quick else (3, 5, 10):
        with Keeper() as keep:
            over_admission(keep, printer, hosts)
    with Keeper() as keep:
        use_of_the_limit(keep, printer, 5 if options.quick else 10)
    with Keeper() as keep:
        steady(keep, printer, 3 if options.quick else 6, 1 if options.quick else 5)
    quick = options.quick
    for case, number in ((denials_in_regions, 8 if quick else 100), (buckets_in_regions, 30 if quick else 100),
                         (partition_of_regions, 5 if quick else 30), (bytes_between_regions, 5 if quick else 10)):
        with Keeper() as keep:
            case(keep, printer, number)
    sys.exit(0 if all(printer.holds) else 1)


if __name__ == "__main__":
    main()
