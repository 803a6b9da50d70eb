#!/usr/bin/env python3
"""./dev bench control: the rules service and the statistics. Runs bench/control.c, which measures the cost of sampling
hot keys and the accuracy of the list, counts instructions under valgrind if it is installed, measures a real weir serve
(control_service.py), and prints lines or a table."""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

from control_service import service

BAR_RATE = 0.9


def seeing(program, quick):
    """What bench/control.c prints."""
    command = [program] + (["--quick"] if quick else [])
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return map(json.loads, out.splitlines())


def instructions(program, mode, count):
    """Instructions of so many checks, and of what comes before them."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, mode, str(count)]
    report = subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True).stderr
    return int(re.search(r"Collected : (\d+)", report)[1])


def counted(program):
    """Times are noisy: the same in instructions, whose number is reproducible."""
    if not shutil.which("valgrind"):
        return
    few, many = 10000, 30000
    each = {
        mode: (instructions(program, mode, many) - instructions(program, mode, few)) / (many - few)
        for mode in ("off", "on")
    }
    ratio = each["off"] / each["on"]
    yield {
        "bench": "control", "case": "instructions of a check, hot keys off / on", "off": round(each["off"], 1),
        "on": round(each["on"], 1), "value": round(ratio, 4), "unit": "ratio", "bar": BAR_RATE,
        "holds": ratio >= BAR_RATE,
    }


def main():
    parser = argparse.ArgumentParser(prog="./dev bench control", description=__doc__)
    parser.add_argument("--weir", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="under a minute")
    options = parser.parse_args()
    program = pathlib.Path(options.weir).parent / "bench" / "control"
    subprocess.run(["make", "-s", str(program)], check=True, stdout=sys.stderr)
    if not options.json:
        print(f"{'case':<50} {'value':>12}  unit")
    for part in (seeing(program, options.quick), counted(program), service(options.quick)):
        for line in part:
            if options.json:
                print(json.dumps(line), flush=True)
                continue
            side = "most" if line.get("most") else "least"
            bar = f"at {side} {line['bar']:g}: {'holds' if line['holds'] else 'MISSED'}" if "bar" in line else ""
            print(f"{line['case']:<50} {line['value']:>12.6g}  {line['unit']:<10} {bar}".rstrip(), flush=True)


sys.exit(main())
