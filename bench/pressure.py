#!/usr/bin/env python3
"""./dev bench pressure: an upstream of known capacity behind a real weir serve, offered up to ten times of it.

The upstream (bench/upstream.c) works on 32 requests at once for 100 ms each: 320 a second. Four tenants send requests in the ratio
4:2:1:1, three tenths of it as batch (priority low); critical traffic is a tenth of the capacity, whatever the others do.
Clients (bench/offer.c) come at random and do not wait for each other; a reply after a second is useless to them, and they
disconnect. Goodput counts replies of 200 in time. Each case begins with half of the capacity, then so many times of it, then
half again; the results are of the last seconds of the overload, in the steady state.

Also: how many denied requests a second are deferred (512 bytes each, on SQLite with its default fsync policy, and on a
Redis with appendfsync always), and the cost of a permit compared with a token.

With --plots the plots of docs/internals/overload.md are written, among them the simulated step response of the controller.
"""
import argparse
import contextlib
import csv
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

from deferring import accepted
from plot import Axis, plot

SLOTS, SERVICE_MS, QUEUE = 32, 100, 640
CAPACITY = SLOTS * 1000 // SERVICE_MS
CRITICAL = 0.1  # of the capacity
TENANTS = {"a": 4, "b": 2, "c": 1, "d": 1}
BATCH = 0.3
DEADLINE_MS = 1000
# A virtual machine's disk may have a burst budget that refills with time: right after SQLite had used it up, Redis accepted
# 3,000 requests a second, and 12,400 after a pause.
DISK_PAUSE_S = 25
BUILD = pathlib.Path("build/gcc")
COLUMNS = "{:<52} {:>10} {:<10} {}"

YAML = """
segment: {{ path: {folder}/segment, size: 4MiB }}
workers: 1
{load}
gateway: {{ listen: "127.0.0.1:{port}", upstreams: ["http://127.0.0.1:{upstream}"], keepalive: 1024 }}
metrics: 127.0.0.1:{metrics}
rules:
  - {{ name: critical, match: {{ path: /critical }}, limit: 1000000, window: 1s, priority: critical }}
  - {{ name: batch, match: {{ path: /batch }}, limit: 1000000, window: 1s, priority: low }}
  - {{ name: tenant, match: {{ path: [/api, /batch] }}, key: "tenant:${{header:x-tenant}}", {limit} }}
"""

# 48 in flight are one and a half times what the upstream works on at once; 70 % of that are 34.
SIGNAL = "signals: {{ in_flight: {} }}".format(SLOTS * 3 // 2)
OPEN = "limit: 1000000, window: 1s"
WIDE = f"limit: {CAPACITY}, window: 1s, burst: {CAPACITY // 20}"  # of each of four tenants: four times the capacity
ADAPTIVE = WIDE + ", adaptive: { min: 2%, max: 100% }"
SHARE = f"limit: {CAPACITY * 3 // 16}, window: 1s, burst: {CAPACITY // 40}"  # three quarters of the capacity for all four
MODES = {
    "no limits": ("", OPEN),
    "fixed limits": ("", WIDE),
    "adaptive": (f"load: {{ {SIGNAL}, adapt_to: 70 }}", ADAPTIVE),
    "shedding": (f"load: {{ {SIGNAL}, adapt_to: 70, shed_above: 70 }}", OPEN),
    "adaptive and shedding": (f"load: {{ {SIGNAL}, adapt_to: 70, shed_above: 85 }}", ADAPTIVE),
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Host:
    """An upstream, and a weir serve before it."""

    def __init__(self, weir, load, limit):
        self.folder = tempfile.TemporaryDirectory(prefix="weir-bench-", dir="/dev/shm")
        os.chmod(self.folder.name, 0o755)  # workers and the agent are other users where root starts it
        self.port, upstream = free_port(), free_port()
        file, log_file = pathlib.Path(self.folder.name) / "weir.yaml", pathlib.Path(self.folder.name) / "log"
        file.write_text(YAML.format(folder=self.folder.name, load=load, limit=limit, port=self.port, upstream=upstream,
                                    metrics=free_port()))
        modules = str((pathlib.Path(weir).parent / "nginx").resolve())
        self.processes = [subprocess.Popen([BUILD / "bench" / "upstream", str(upstream), str(SLOTS), str(SERVICE_MS),
                                            str(QUEUE)])]
        with open(log_file, "wb") as log:
            self.processes.append(subprocess.Popen([weir, "serve", file], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                   env={**os.environ, "WEIR_MODULES": modules}))
        for _ in range(200):
            if "is running" in log_file.read_text():
                break
            if self.processes[-1].poll() is not None:
                sys.exit("bench pressure: weir serve does not start:\n" + log_file.read_text())
            time.sleep(0.05)
        time.sleep(0.5)  # the load sampler's first steps

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            if process.poll() is None:
                process.kill()
        self.folder.cleanup()


def offer(host, phases, tenants=TENANTS, critical=CRITICAL):
    """Rows of bench/offer.c. `phases`: (seconds, times the capacity)."""
    whole = sum(tenants.values())
    streams = [f"critical:critical:/critical:={critical * CAPACITY}"] if critical else []
    for name, weight in tenants.items():
        rate = CAPACITY * weight / whole
        streams += [f"{name}:normal:/api:{rate * (1 - BATCH)}", f"{name}:low:/batch:{rate * BATCH}"]
    text = ",".join(f"{seconds}x{max(times - critical, 0.0001)}" for seconds, times in phases)
    run = subprocess.run([BUILD / "bench" / "offer", str(host.port), str(DEADLINE_MS), text, *streams],
                         stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def within(rows, first, last, **having):
    return [row for row in rows if first <= row["second"] < last and all(row[key] == value for key, value in having.items())]


def goodput(rows, seconds):
    return sum(row["ok"] for row in rows) / seconds / CAPACITY


def percentile_ms(rows, share):
    """Of all requests sent: one without a response counts as the timeout of its client."""
    took = sorted(us for row in rows for us in row["took_us"])
    at = int(sum(row["sent"] for row in rows) * share)
    return took[at] / 1000 if at < len(took) else float(DEADLINE_MS)


def jain(rows):
    got = [sum(row["ok"] for row in rows if row["name"] == name) for name in TENANTS]
    return sum(got) ** 2 / (len(got) * sum(one * one for one in got)) if any(got) else 0.0


def recovered_after(rows, since, until):
    """Seconds until 95 % of every later second's requests get a response in time."""
    for second in range(until - 1, since - 1, -1):
        now = within(rows, second, second + 1)
        if sum(row["ok"] for row in now) < 0.95 * sum(row["sent"] for row in now):
            return second + 1 - since
    return 0


class Printer:
    def __init__(self, as_json):
        self.as_json, self.bars = as_json, []
        if not as_json:
            print(COLUMNS.format("case", "value", "unit", "bar"))

    def show(self, case, value, unit, bar=None, at_least=True, **more):
        line = {"bench": "pressure", "case": case, **more, "value": round(value, 4), "unit": unit}
        verdict = ""
        if bar is not None:
            line.update(bar=bar, holds=value >= bar if at_least else value <= bar, **({} if at_least else {"most": True}))
            verdict = f"{'at least' if at_least else 'at most'} {bar:g}: {'holds' if line['holds'] else 'MISSED'}"
            self.bars.append(line["holds"])
        print(json.dumps(line) if self.as_json else COLUMNS.format(case, f"{value:.4g}", unit, verdict).rstrip(), flush=True)


class Overload:
    """All modes and factors, and their results."""

    def __init__(self, weir, printer, quick):
        self.weir, self.printer = weir, printer
        self.before, self.during, self.after, self.measured = (4, 26, 6, 6) if quick else (4, 32, 12, 12)
        self.results, self.rows = {}, {}

    def calm(self):
        """Critical traffic alone."""
        seconds = 8 if self.before == 4 else 20
        with Host(self.weir, *MODES["no limits"]) as host:
            self.unloaded = percentile_ms(within(offer(host, [(seconds, 0)]), 1, seconds, name="critical"), 0.99)
        self.printer.show("critical traffic alone, p99", self.unloaded, "ms")

    def measure(self, mode, times):
        during = self.during if times > 1 else self.measured + 3  # without an overload nothing has to settle
        with Host(self.weir, *MODES[mode]) as host:
            rows = offer(host, [(self.before, 0.5), (during, times), (self.after, 0.5)])
        end = self.before + during
        steady = within(rows, end - self.measured, end)
        result = {"goodput": goodput(steady, self.measured), "fairness": jain(steady),
                  "p99_ms": percentile_ms([row for row in steady if row["name"] == "critical"], 0.99),
                  "recovery_s": recovered_after(rows, end, end + self.after)}
        self.results[mode, times], self.rows[mode, times] = result, rows
        behind = sum(row["behind"] for row in rows) / sum(row["sent"] for row in rows)
        if behind > 0.01:
            self.printer.show(f"{mode}, {times:g} times: NOT SENT, the machine is too slow", behind, "of requests", mode=mode, times=times)
        for what, unit in (("goodput", "of capacity"), ("fairness", "Jain"), ("p99_ms", "ms"), ("recovery_s", "s")):
            name = {"p99_ms": "critical p99", "recovery_s": "recovery"}.get(what, what)
            self.printer.show(f"{mode}, {times:g} times: {name}", result[what], unit, mode=mode, times=times)

    def bars(self):
        best = max(result["goodput"] for result in self.results.values())
        five = self.results["adaptive", 5]
        self.printer.show("best goodput of all", best, "of capacity")
        self.printer.show("adaptive, 5 times: goodput / best", five["goodput"] / best, "ratio", 0.9)
        self.printer.show("adaptive, 5 times: critical p99 / alone", five["p99_ms"] / self.unloaded, "ratio", 2, at_least=False)


def elastic(weir, printer):
    """One tenant offers three times its share while the others are idle; then all offer more than the capacity."""
    calm, overload, measured = 15, 40, 15
    for name, more in (("without", ""), ("with", ", elastic: { up_to: 400%, while: 60% }")):
        with Host(weir, f"load: {{ {SIGNAL} }}", SHARE + more) as host:
            rows = offer(host, [(calm, 0.7)], {"a": 1})
            printer.show(f"{name} elastic, one tenant offers 3 shares: its goodput", goodput(within(rows, 2, calm, name="a"), calm - 2),
                         "of capacity")
            rows = offer(host, [(overload, 5)])
            steady = within(rows, overload - measured, overload)
            printer.show(f"{name} elastic, all overloaded: its goodput", goodput(within(steady, 0, overload, name="a"), measured), "of capacity")
            printer.show(f"{name} elastic, all overloaded: fairness", jain(steady), "Jain")


def costs(printer, quick):
    run = subprocess.run([BUILD / "bench/flight", "9" if quick else "41"], stdout=subprocess.PIPE, text=True, check=True)
    costs_ns = json.loads(run.stdout)
    for name in ("token_ns", "slot_ns", "check_ns", "check_knowing_ns"):
        printer.show({"token_ns": "a token taken", "slot_ns": "a permit taken and released", "check_ns": "a check",
                      "check_knowing_ns": "a check with a load page"}[name], costs_ns[name], "ns")
    printer.show("a permit taken and released / a token taken", costs_ns["slot_per_token"], "ratio", 2, at_least=False)
    printer.show("rate of checks with a load page / without", costs_ns["rate_knowing"], "ratio", 0.98)


def deferring(weir, printer, quick):
    seconds = 5 if quick else 15
    for name, bar in (("SQLite", 2000), ("Redis", 10000)):
        time.sleep(DISK_PAUSE_S)
        printer.show(f"deferred requests accepted, {name}", accepted(weir, seconds, name == "Redis"), "requests/s", bar)


def plots(overload, folder):
    factors = sorted({times for _, times in overload.results})
    x = Axis("offered, times the capacity", factors[0], factors[-1], factors, log=True)
    for what, title, y in (
            ("goodput", "Goodput in the overload", Axis("of the capacity", 0, 1.1)),
            ("p99_ms", "Critical traffic: 99th percentile", Axis("milliseconds", 50, 1000, [50, 100, 200, 500, 1000], log=True)),
            ("fairness", "Fairness between tenants that offer 4:2:1:1", Axis("Jain's index", 0.2, 1.05))):
        plot(folder / f"overload-{what.replace('_ms', '')}.svg", title, x, y,
             {mode: [(times, overload.results[mode, times][what]) for times in factors if (mode, times) in overload.results]
              for mode in MODES})
    end = overload.before + overload.during + overload.after
    plot(folder / "overload-course.svg", f"Goodput: 5 times the capacity from second {overload.before} to {overload.before + overload.during}",
         Axis("seconds", 0, end), Axis("of the capacity", 0, 1.1),
         {mode: [(at, goodput(within(overload.rows[mode, 5], at, at + 1), 1)) for at in range(end)]
          for mode in MODES if (mode, 5) in overload.rows})


def controller_plots(folder):
    """The simulated response of the throttle, as tests/unit/overload/test_controller.c has it."""
    test = BUILD / "tests/unit/overload/test_controller"
    subprocess.run(["make", "-s", test], check=True, stdout=sys.stderr)
    with tempfile.NamedTemporaryFile("r", suffix=".csv") as file:
        subprocess.run([test], env={**os.environ, "WEIR_CONTROLLER_CSV": file.name}, check=True, stdout=subprocess.DEVNULL)
        rows = list(csv.DictReader(file))
    for course, name, title in (("step_5", "step", "Throttle: 5 times the capacity from second 10 to 100, simulated"),
                                ("saw", "saw", "Throttle: a saw-tooth of 0.5 to 5 times the capacity, simulated")):
        lines = {}
        for row in rows:
            if row["course"] == course:
                lines.setdefault(row["signal"].replace("_", " "), []).append((float(row["seconds"]), float(row["throttle"])))
        plot(folder / f"overload-{name}.svg", title, Axis("seconds", 0, 160), Axis("throttle", 0, 1.05),
             {signal: points[::4] for signal, points in lines.items()})


def main():
    parser = argparse.ArgumentParser(prog="./dev bench pressure", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="fewer cases and shorter ones, a few minutes")
    parser.add_argument("--plots", action="store_true", help="writes docs/images/overload-*.svg anew")
    options = parser.parse_args()
    subprocess.run(["make", "-s", "nginx", BUILD / "bench/upstream", BUILD / "bench/offer", BUILD / "bench/flight"], check=True, stdout=sys.stderr)
    printer = Printer(options.json)
    costs(printer, options.quick)
    deferring(options.weir, printer, options.quick)
    overload = Overload(options.weir, printer, options.quick)
    overload.calm()
    cases = [("no limits", 5), ("adaptive", 5)] if options.quick else [(mode, times) for mode in MODES for times in (0.5, 1, 2, 5, 10)]
    for mode, times in cases:
        overload.measure(mode, times)
    overload.bars()
    if not options.quick:
        elastic(options.weir, printer)
    if options.plots:
        folder = pathlib.Path("docs/images")
        controller_plots(folder)
        if not options.quick:
            plots(overload, folder)
    if not options.json:
        print(f"\n{sum(printer.bars)} of {len(printer.bars)} bars hold")


if __name__ == "__main__":
    main()
