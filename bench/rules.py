#!/usr/bin/env python3
"""./dev bench rules: runs bench/rules.c, which measures, and prints its lines or a table of them."""
import argparse
import json
import pathlib
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser(prog="./dev bench rules", description=__doc__)
    parser.add_argument("--weir", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="under a minute")
    options = parser.parse_args()
    program = pathlib.Path(options.weir).parent / "bench" / "rules"
    subprocess.run(["make", "-s", str(program)], check=True, stdout=sys.stderr)
    command = [program] + (["--quick"] if options.quick else [])
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    if options.json:
        print("\n".join(lines))
        return
    print(f"{'case':<50} {'rules':>6} {'value':>9}  unit")
    for line in map(json.loads, lines):
        bar = ""
        if "bar" in line:
            bar = f"at most {line['bar']:g}: {'holds' if line['holds'] else 'MISSED'}"
        print(f"{line['case']:<50} {line['rules']:>6} {line['value']:>9.4g}  {line['unit']:<12} {bar}".rstrip())


sys.exit(main())
