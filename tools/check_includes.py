#!/usr/bin/env python3
"""Checks the arrows between the folders of src/: each folder includes only what the list below allows."""
import pathlib
import re
import sys

# Folder under src/ -> folders it may include from, besides itself, the public headers and the system's.
MAY_USE = {
    "base": set(),
    "algo": set(),
    "table": {"base", "algo"},
    "rules": {"base", "algo"},
    "engine": {"base", "algo", "table", "rules"},
    "remote": {"base", "algo", "rules", "engine"},
    "config": {"base", "table", "rules", "remote", "engine"},
    "sync": {"base", "algo", "table", "rules", "remote", "engine", "config"},
    "overload": {"base", "table", "rules", "engine", "config"},
    "stats": {"base", "table", "remote", "engine", "config"},
    "services/http": {"base"},
    "services/rls": {"base"},
    "services/resp": {"base"},
    "queue": {"base", "rules", "remote", "engine", "config"},
    "control": {"base", "rules", "engine", "stats", "config"},
    "serve": {"base", "algo", "table", "rules", "remote", "engine"},
    "cli": {"base"},
}
# Folder -> headers of other folders that it may include besides: what those offer to it.
HEADERS = {
    "serve": {"config/config.h", "sync/sync.h", "overload/overload.h", "stats/stats.h", "stats/membership.h",
              "stats/host_queries.h", "services/http/api.h", "queue/queue.h", "control/control.h"},
    "cli": {"rules/set.h", "stats/stats.h", "control/control.h", "serve/serve.h"},
}
# Includes that break the arrows. This list may only shrink: an entry that no file needs any more is an error, too.
EXCEPTIONS = set()
# What src/algo may take from the system: types and limits, nothing that acts; src/services/resp also memory's.
PURE = {"stdint.h", "stdbool.h", "stddef.h", "weir/weir.h"}
PURE_IN = {"algo": PURE, "services/resp": PURE | {"string.h"}}


def folder_of(name):
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == "services" else parts[0]


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    wrong, used = [], set()
    files = sorted((root / "src").rglob("*.[ch]"))
    for path in files:
        name = path.relative_to(root / "src").as_posix()
        folder = folder_of(name)
        if folder not in MAY_USE:
            wrong.append(f"src/{name}: folder '{folder}' is not in tools/check_includes.py")
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            # The library's atomics are in one header; the command's threads have their own.
            if folder != "cli" and path.name != "atomic.h" and re.search(r"(?<!weir)__(atomic|sync)_|stdatomic", line):
                wrong.append(f"src/{name}:{number}: atomics belong into src/base/atomic.h")
            found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if not found:
                continue
            quote, header = found.groups()
            bad = quote == '"' and folder_of(header) not in MAY_USE[folder] | {folder}
            bad &= header not in HEADERS.get(folder, ())
            if bad and (name, header) in EXCEPTIONS:
                used.add((name, header))
                continue
            bad |= quote == "<" and folder in PURE_IN and header not in PURE_IN[folder]
            if bad:
                wrong.append(f"src/{name}:{number}: src/{folder} must not include {header}")
    wrong += [f"tools/check_includes.py: no file needs the exception {name} -> {header}" for name, header in sorted(EXCEPTIONS - used)]
    for folder, headers in HEADERS.items(): # one of each folder; of stats also the list of hosts and their queries
        headers = headers - {"stats/membership.h", "stats/host_queries.h"}
        if len({folder_of(header) for header in headers}) != len(headers):
            wrong.append(f"tools/check_includes.py: HEADERS has two headers of one folder for {folder}")
    if not files:
        wrong.append("no sources found")
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


main()
