#!/usr/bin/env python3
"""./dev bench all: every bench, one after the other; one that fails does not stop the others.

The JSON lines of the run go to build/bench/DATE.jsonl, with a first line for the machine and a line for each run. --report
replaces the lines of these benches in docs/internals/results.jsonl and writes docs/internals/results.md and its plots
(docs/images/results-*.svg) from it; lines of another machine are dropped. With --from nothing is measured.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import time

import report

# What each bench is called with; the second is left out by --quick.
RUNS = {name: [[]] for name in report.SECTIONS} | {"gateway": [[], ["--instructions"]]}
LONGEST_S = 3600  # of one run: it hangs


def note(text):
    print(f"bench all: {text}", file=sys.stderr, flush=True)


# ---- The machine ----

def output(*command):
    """The first line that a command prints; "" if there is no such command."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20, cwd=report.ROOT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next((line for line in (done.stdout + done.stderr).splitlines() if line.strip()), "")


def content(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def caches():
    found = []
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if content(index / "type") != "Instruction":
            found.append(f"L{content(index / 'level')} {content(index / 'size')}")
    return ", ".join(found)


def versions():
    """By program; those that are not installed are left out."""
    commands = {"weir": (report.ROOT / "build/gcc/weir", "--version"), "gcc": ("gcc", "--version"), "nginx": ("nginx", "-v"),
                "redis-server": ("redis-server", "--version"), "HAProxy": ("haproxy", "-v"), "wrk": ("wrk", "-v"),
                "h2load": ("h2load", "--version"), "chromium": ("chromium", "--version")}
    found = {}
    for name, command in commands.items():
        version = re.search(r"\d+\.\d+[\w.]*", re.sub(r"\([^)]*\)", "", output(*command)))
        if version:
            found[name] = version[0]
    return found | dict(re.findall(r"^(ratelimit|throttlecrab)=(\S+)$", content(report.ROOT / "tools/peer.sh"), re.M))


def machine():
    model = re.search(r"^model name\s*: (.*)$", content("/proc/cpuinfo"), re.M)
    family = [re.search(rf"^{name}\s*: (\d+)$", content("/proc/cpuinfo"), re.M) for name in ("cpu family", "model")]
    named = f", family {family[0][1]}, model {family[1][1]}" if all(family) else ""
    kib = re.search(r"^MemTotal:\s*(\d+)", content("/proc/meminfo"), re.M)
    distribution = re.search(r'^PRETTY_NAME="(.*)"$', content("/etc/os-release"), re.M)
    virtual = ", in a virtual machine" if re.search(r"^flags\s*:.*\bhypervisor\b", content("/proc/cpuinfo"), re.M) else ""
    chosen = re.search(r"\[(\w+)\]", content("/sys/kernel/mm/transparent_hugepage/shmem_enabled"))
    return {"bench": "all", "case": "machine", "cpu": (model[1] if model else platform.machine()) + named, "caches": caches(),
            "memory": f"{int(kib[1]) / 2 ** 20:.0f} GiB" if kib else "",
            "system": f"{distribution[1] if distribution else ''}, Linux {platform.release()}{virtual}",
            "large_pages": chosen[1] if chosen else "", "versions": versions(), "value": os.cpu_count(), "unit": "processors"}


def commit():
    """Of the sources; documents may have changed since."""
    head = output("git", "rev-parse", "--short=10", "HEAD")
    if not re.fullmatch(r"[0-9a-f]+", head):
        return "unknown"
    return head + ("+changes" if output("git", "status", "--porcelain", "-uno", "--", ".", ":!docs", ":!*.md") else "")


# ---- Runs ----

class Output:
    """Everything that is measured: in the file, and printed."""

    def __init__(self, path, as_json):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.as_json, self.lines = path, as_json, []
        self.file = path.open("w", encoding="utf-8")

    def add(self, result):
        self.lines.append(result)
        text = json.dumps(result, ensure_ascii=False)
        self.file.write(text + "\n")
        self.file.flush()
        if self.as_json:
            print(text, flush=True)
        elif result["bench"] != "all":
            print(row(result), flush=True)


def row(result):
    more = ", ".join(f"{name} {report.shown(value)}" for name, value in result.items()
                     if name not in report.NOT_PARAMETERS or name in ("what", "of"))
    bar = f"  {report.threshold(result)}: {'holds' if result['holds'] else 'MISSED'}" if "bar" in result else ""
    return f"{result['bench']:<8} {result['case']:<50} {report.reached(result):>12} {result['unit']:<12}{bar}  {more}".rstrip()


def step(text):
    """For the line of progress (tools/progress.py)."""
    if os.environ.get("WEIR_PROGRESS"):
        pathlib.Path(os.environ["WEIR_PROGRESS"]).write_text(text, encoding="utf-8")


def processor_times():
    """All, and what the hypervisor gave to others, of all processors, in ticks."""
    ticks = [int(word) for word in content("/proc/stat").splitlines()[0].split()[1:9]]
    return sum(ticks), ticks[7]


def run(bench, arguments, options, out):
    """Whether it succeeded. Its lines go to `out`, and at last one for the run."""
    said = ["./dev", "bench", bench, *arguments]
    command = [sys.executable, report.ROOT / "bench" / f"{bench}.py", "--weir", options.weir, "--json", *arguments]
    result = {"bench": "all", "case": "run", "of": bench, "command": " ".join(said),
              "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "commit": commit(),
              "load": round(os.getloadavg()[0], 2)}
    begun, wrong, before = time.monotonic(), "", processor_times()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        ends = [signal.SIGKILL, signal.SIGINT]  # on SIGINT it stops its servers

        def end(*_):
            process.send_signal(ends.pop() if ends else signal.SIGKILL)
            signal.alarm(60)

        signal.signal(signal.SIGALRM, end)
        signal.alarm(options.longest)
        try:
            for number, line in enumerate(process.stdout, 1):
                try:
                    out.add(report.checked(line, f"bench/{bench}.py, line {number}"))
                except report.Malformed as error:
                    wrong = str(error)
                    note(wrong)
            status = process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            raise
        finally:
            signal.alarm(0)
    status = (status if status >= 0 else 128 - status) or (1 if wrong else 0)
    ticks, stolen = (after - begin for after, begin in zip(processor_times(), before))
    out.add({**result, "stolen": round(stolen / max(ticks, 1), 4), "status": status, "value": round(time.monotonic() - begun, 1), "unit": "s"})
    if status:
        note(f"{' '.join(said)} failed with status {status}; going on")
    return status == 0


def measure(options):
    """The lines of all benches, and the runs that failed."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d-%H%M%S")
    out = Output(report.ROOT / "build/bench" / f"{now}.jsonl", options.json)
    out.add(machine())
    quick = ["--quick"] if options.quick else []
    runs = [(bench, [*arguments, *quick]) for bench in RUNS if not options.only or bench in options.only
            for arguments in RUNS[bench][:1 if options.quick else None]]
    failed = []
    for number, (bench, arguments) in enumerate(runs, 1):
        step(f"{' '.join([bench, *arguments])}, {number} of {len(runs)}")
        if not run(bench, arguments, options, out):
            failed.append(" ".join([bench, *arguments]))
    held = [result["holds"] for result in out.lines if "bar" in result]
    note(f"{sum(held)} of {len(held)} bars hold; {len(runs) - len(failed)} of {len(runs)} runs succeeded"
         + (f"; failed: {', '.join(failed)}" if failed else ""))
    note(f"lines: {out.path.relative_to(report.ROOT)}")
    return out.lines, failed


def main():
    parser = argparse.ArgumentParser(prog="./dev bench all", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", help=argparse.SUPPRESS)
    parser.add_argument("--names", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--longest", type=int, default=LONGEST_S, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds; some ten minutes")
    parser.add_argument("--only", nargs="+", metavar="BENCH", choices=RUNS, help="these benches")
    parser.add_argument("--report", action="store_true", help="write docs/internals/results.md")
    parser.add_argument("--from", dest="source", metavar="FILE", help="with --report: the lines of an earlier run")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in its background
    if options.names:
        print(*RUNS)
        return 0
    if options.source and not options.report:
        parser.error("--from is for --report")
    try:
        lines, failed = (report.read(options.source), []) if options.source else measure(options)
        if options.report:
            old = report.read(report.LINES) if report.LINES.exists() else []
            if old and old[0] != lines[0]:
                note("the lines of another machine in docs/internals/results.jsonl are dropped")
            report.write(report.merged(old, lines))
            note(f"written: {report.PAGE.relative_to(report.ROOT)}")
    except (report.Malformed, OSError) as error:
        note(error)
        return 1
    except KeyboardInterrupt:
        note("interrupted; build/bench has the lines so far")
        return 130
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
