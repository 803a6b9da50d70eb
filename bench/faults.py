#!/usr/bin/env python3
"""./dev bench faults: effects of store failures on clients, and by how much eventual rules exceed their limit.

Three hosts (weir serve, one worker each) with a real Redis, Sentinel set or cluster, 600 requests a second spread over them at
random: to a strict rule that fails closed, to a strict rule that falls back to the host's own counters, to an eventual rule, and
to a leased one that fails closed.
Then the fault, for 5 s, its repair, and 4 s more. docs/internals/reliability.md has the results; the faults are those of the
tests (tests/e2e/faults.py).
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
os.environ.setdefault("WEIR_NGINX_MODULE", str(ROOT / "build/gcc/nginx/ngx_http_weir_module.so"))
sys.path.insert(0, str(ROOT / "tests/e2e"))
ROW = "| {:<50} | {:>6} | {:>8} | {:>8} | {:>8} | {:>8} | {:>8} | {:>6} | {:>11} |"
LATE = 1.5  # p99 over the deadline: what scheduling may add on a machine that does everything at once


class Printer:
    def __init__(self, as_json):
        self.as_json, self.bars = as_json, []

    def bar(self, case, what, value, unit, most, **more):
        holds = value <= most
        self.bars.append(holds)
        if self.as_json:
            print(json.dumps({"bench": "faults", "case": case, "what": what, **more, "value": value, "unit": unit,
                              "bar": most, "most": True, "holds": holds}), flush=True)
        elif not holds:
            print(f"MISSED: {case}: {what} is {value:.3g}, more than {most:g}", file=sys.stderr, flush=True)

    def row(self, *cells):
        if not self.as_json:
            print(ROW.format(*cells), flush=True)


def suffered(options, printer):
    import faults
    printer.row("fault", "failed", "refused", "leased", "p99", "worst", "well in", "lost", "lost leases")
    printer.row(*["---"] * 9)
    for name, one in faults.FAULTS.items():
        if options.only and name not in options.only:
            continue
        try:
            seen = faults.suffer(one, during=1.0 if options.quick else 5.0, after=2.5 if options.quick else 4.0, rate=600,
                                 leases=True)
        except faults.Impossible as why:
            print(f"bench faults: {one.name} is left out: {why}", file=sys.stderr)
            continue
        printer.row(one.name, seen.failed, f"{min(seen.refused, 1):.0%}", f"{min(seen.refused_leased, 1):.0%}", f"{seen.p99 * 1000:.1f} ms",
                    f"{seen.worst * 1000:.0f} ms", f"{seen.recovery * 1000:.0f} ms", seen.lost, seen.lost_leased)
        printer.bar(one.name, "requests failed beyond the policy", seen.failed, "requests", 0, refused=min(seen.refused, 1),
                    worst_ms=seen.worst * 1000)
        printer.bar(one.name, "p99 over the deadline", seen.p99 / faults.DEADLINE, "ratio", LATE, ms=seen.p99 * 1000)
        printer.bar(one.name, "return over 2 s", seen.recovery / 2, "ratio", 1, ms=seen.recovery * 1000)
        if not one.forgets and not one.loses:
            printer.bar(one.name, "leased rule: admitted and not known to the store", max(0, -seen.lost_leased), "units", 0,
                        lost=max(0, seen.lost_leased), refused=min(seen.refused_leased, 1))
        printer.bar(one.name, "consumed and lost", seen.lost, "units", seen.bearable if one.forgets else 0)


def overshot(options, printer):
    from overshoot import long_run, overshoot
    if not printer.as_json:
        print("\n| hosts | interval | requests/s | limit | beyond it | others in one interval | bound |\n|---|---|---|---|---|---|---|")
    for hosts in (3,) if options.quick else (3, 5, 10):
        for interval in (50,) if options.quick else (20, 50, 200):
            seen = [overshoot(hosts, interval) for _ in range(1 if options.quick else 3)]
            worst = max(seen, key=lambda one: one.beyond)
            if not printer.as_json:
                print(f"| {hosts} | {interval} ms | {worst.rate} | {worst.limit} | {worst.beyond} | "
                      f"{worst.usual:.0f} | {worst.bound:.0f} |",
                      flush=True)
            printer.bar("eventual, beyond the limit", "over the bound", worst.beyond / worst.bound, "ratio", 1, hosts=hosts,
                        interval_ms=interval, beyond=worst.beyond, bound_units=worst.bound)
    if not printer.as_json:
        print("\n| hosts | interval | passed in the long run, of the limit |\n|---|---|---|")
    for hosts, interval in ((3, 50),) if options.quick else ((3, 50), (5, 50), (10, 50)):
        part, _ = long_run(hosts, interval, 5 if options.quick else 60)
        if not printer.as_json:
            print(f"| {hosts} | {interval} ms | {part:.2%} |", flush=True)
        printer.bar("eventual, long run", "off the limit", abs(part - 1), "ratio", 0.01, hosts=hosts, interval_ms=interval)


def main():
    parser = argparse.ArgumentParser(prog="./dev bench faults", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="each fault for a second; two minutes")
    parser.add_argument("--only", nargs="*", help="these faults, by their names in tests/e2e/faults.py")
    options = parser.parse_args()
    subprocess.run(["make", "-s", "nginx"], cwd=ROOT, check=True, stdout=sys.stderr)
    printer = Printer(options.json)
    suffered(options, printer)
    if not options.only:
        overshot(options, printer)
    if not options.json:
        print(f"\n{sum(printer.bars)} of {len(printer.bars)} bars hold")


if __name__ == "__main__":
    main()
