#!/usr/bin/env python3
"""Runs the examples of a document: in each ```console block, lines that begin with "$ " are commands, and what follows
is what they must print. They run in the folder given, with the folder of the weir binary first on the PATH. $DB is a
database of rules that is gone afterwards.

    tools/doc_examples.py DOCUMENT WEIR FOLDER           compares; exits with 1 and the difference if one is wrong
    tools/doc_examples.py --write DOCUMENT WEIR FOLDER   puts what they print into the document
"""
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def run(command, folder, env):
    done = subprocess.run(["sh", "-c", command], cwd=folder, env=env, text=True, timeout=60, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    return done.stdout if not done.stdout or done.stdout.endswith("\n") else done.stdout + "\n"


def main():
    arguments = sys.argv[1:]
    write = arguments[:1] == ["--write"]
    document, weir, folder = arguments[1 if write else 0:]
    path = pathlib.Path(document)
    scratch = tempfile.TemporaryDirectory()
    env = {**os.environ, "PATH": f"{pathlib.Path(weir).resolve().parent}:{os.environ['PATH']}", "NO_COLOR": "1",
           "DB": f"sqlite:{scratch.name}/rules.db"}
    before = path.read_text()
    commands = 0

    def played(block):
        nonlocal commands
        out = []
        for line in block.group(1).splitlines():
            if line.startswith("$ "):
                commands += 1
                out += [line + "\n", run(line[2:], folder, env)]
        return "```console\n" + "".join(out) + "```\n"

    after = re.sub(r"```console\n(.*?)```\n", played, before, flags=re.S)
    if not commands:
        sys.exit(f"{document}: no example found")
    if write:
        path.write_text(after)
    elif after != before:
        sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), after.splitlines(True), document, "played"))
        sys.exit(1)


main()
