#!/usr/bin/env python3
"""./dev bench fleet: one limit on several hosts, by leased units.

Hosts (weir serve, one worker each), a real Redis and the load (tests/e2e/spread.c) share this machine, so figures are ratios
within a run: leased and local rules alternate on the same hosts, and a bar is the median of the rounds.

over-admission: requests at twice the limit, spread evenly over the hosts; what passed beyond the limit (fixed window), or
beyond an ideal bucket over any interval. use of the limit: a bucket at twice its rate, with 90 % of the requests on one of
three hosts. throughput: 1,000 keys. latency: 300 keys at 3,000 requests a second, as many for each key as 1,000 keys at
10,000 have. scripts: EVALSHA calls of the store, of agents and workers, for each admitted request, when leases are in use.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

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
    sys.exit(0 if all(printer.holds) else 1)


if __name__ == "__main__":
    main()
