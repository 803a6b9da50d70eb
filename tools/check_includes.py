#!/usr/bin/env python3
"""Checks that the arrows between folders point as in the design: each folder includes only what it may use."""
import pathlib
import re
import sys

# Folder under src/ -> folders it may include from, besides itself, public headers and the system's.
MAY_USE = {
    "algo": set(),
    "table": {"algo"},
    "rules": {"algo"},
    "store": {"algo", "rules"},
    "engine": {"algo", "table", "rules", "store"},
    "control": {"algo", "rules"},
    "queue": {"rules", "store", "engine"},
    "agent": {"algo", "table", "rules", "store", "engine", "control", "queue"},
    "rls": set(),
    "cli": set(),
    "resp": set(),
    "api": {"rules", "table"},
}
# Single doors: a file of one folder -> the one header of another that it may include.
DOORS = {"cli/agent.c": {"agent/agent.h"}, "cli/top.c": {"agent/agent.h"}, "cli/advise.c": {"agent/agent.h"},
          "cli/serve.c": {"agent/agent.h"}, "cli/init.c": {"agent/agent.h"}, "cli/input.c": {"agent/agent.h"},
          "cli/service_local.c": {"agent/agent.h", "control/rest.h"}, "cli/rules_result.c": {"control/call.h"}, "cli/documents.h": {"control/split.h"},
          "control/turn.c": {"engine/deadline.h"}, "api/reservations.c": {"engine/mapped.h"}, "agent/inspect_room.c": {"api/reservations.h"},
          "cli/check_print.c": {"rules/target.h"}}
# What src/algo may take from the system: types and limits, nothing that acts; src/resp also memory's.
PURE = {"stdint.h", "stdbool.h", "stddef.h", "weir/weir.h"}
PURE_IN = {"algo": PURE, "resp": PURE | {"string.h"}}


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    wrong = []
    files = sorted(root.glob("src/*/*.[ch]"))
    for path in files:
        folder = path.parent.name
        if folder not in MAY_USE:
            wrong.append(f"{path.relative_to(root)}: folder '{folder}' is not in tools/check_includes.py")
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if not found:
                continue
            quote, name = found.groups()
            target = name.split("/")[0]
            bad = quote == '"' and target != folder and target not in MAY_USE[folder]
            bad &= name not in DOORS.get(f"{folder}/{path.name}", ())
            bad |= quote == "<" and folder in PURE_IN and name not in PURE_IN[folder]
            if bad:
                wrong.append(f"{path.relative_to(root)}:{number}: src/{folder} must not include {name}")
        # The library's atomics are in one header; the command's own threads are its own business.
        if folder == "cli" or path.name == "atomic.h":
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"(?<!weir)__(atomic|sync)_|stdatomic", line):
                wrong.append(f"{path.relative_to(root)}:{number}: atomics belong into src/table/atomic.h")
    if not files:
        wrong.append("no sources found")
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


main()
