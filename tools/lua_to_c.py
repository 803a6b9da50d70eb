#!/usr/bin/env python3
"""Puts scripts for the store together and writes them as C.

lua_to_c.py lua/main.lua > script_text.c           the one that decides: weir__script and its SHA-1
lua_to_c.py lua/hosts.lua > hosts_script.c         the one that says who is there: weir__hosts_script, the same way
lua_to_c.py lua/keys.lua > keys_script.c           blocks and resets of keys: weir__keys_script, the same way
lua_to_c.py lua/doctor.lua > doctor_script.c       the rights of a user: weir__doctor_script, the same way
lua_to_c.py lua/queries.lua > queries_script.c     queries of all hosts: weir__queries_script, the same way
lua_to_c.py lua/queue_put.lua lua/… > scripts.c    those of the queue: weir__rq_scripts, in this order

A line `--@name.lua` stands for that file of the same folder. Comments and indentation are left out, as the text travels
to every server. The SHA-1 is the one by which servers know the script.
"""
import hashlib
import pathlib
import re
import sys


def lines(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.strip()
        include = re.fullmatch(r"--@([a-z_]+\.lua)", text)
        if include:
            yield from lines(path.parent / include.group(1))
            continue
        if "--[" in text or "[[" in text:
            sys.exit(f"{path}:{number}: long comments and strings are not understood here")
        # No string of the scripts contains two dashes, so the text after them is a comment.
        text = re.sub(r"\s*--.*", "", text)
        if text:
            yield text


def script(path):
    text = "\n".join(lines(pathlib.Path(path))) + "\n"
    return text.encode("ascii")


def print_text(kind, name, data):
    print(f"{kind} {name}[] = {{")
    for i in range(0, len(data), 24):
        print("    " + " ".join(f"{byte}," for byte in data[i:i + 24]))
    print("    0};\n")


def main():
    paths = sys.argv[1:]
    print("/* Made by tools/lua_to_c.py from lua/. */")
    if len(paths) == 1:
        data = script(paths[0])
        name, header = {"main": ("weir__script", "remote/script.h"), "hosts": ("weir__hosts_script", "stats/membership.h"),
                        "keys": ("weir__keys_script", "sync/key_exchange.h"),
                        "doctor": ("weir__doctor_script", "serve/serve.h"),
                        "queries": ("weir__queries_script", "stats/host_queries.h")}[pathlib.Path(paths[0]).stem]
        print(f'#include "{header}"\n')
        print_text("const char", name, data)
        print(f'const char {name}_sha[41] = "{hashlib.sha1(data).hexdigest()}";')
        return
    print('#include "queue/queue_internal.h"\n')
    scripts = [script(path) for path in paths]
    for number, data in enumerate(scripts):
        print_text("static const char", f"text_{number}", data)
    print("const struct weir__rq_script weir__rq_scripts[] = {")
    for number, data in enumerate(scripts):
        print(f'    {{text_{number}, "{hashlib.sha1(data).hexdigest()}"}},')
    print("};")


main()
