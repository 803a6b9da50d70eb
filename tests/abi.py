#!/usr/bin/env python3
"""Compares the ABI of libweir and libweir-store with tests/abi.txt: exported symbols, prototypes, enumerators, and layouts of public structs.

    tests/abi.py BUILD             check the library and headers, e.g. tests/abi.py build/gcc
    tests/abi.py BUILD --update    write tests/abi.txt, after a deliberate change

Before a first release any change may be written with --update and belongs in CHANGELOG.md. Afterwards only added lines are
compatible; a changed or removed line needs a new SONAME in the Makefile and a new version node in src/libweir.map.
"""
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/abi.txt"
CC = os.environ.get("CC", "cc")
HEADERS = ("weir.h", "check.h", "store.h", "load.h")
LIBRARIES = ("libweir.so", "libweir-store.so")
BETWEEN = {"weir_store_register"}  # libweir-store calls it in libweir: exported, and in no public header
INCLUDES = "".join(f"#include <weir/{name}>\n" for name in HEADERS)


def run(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def exported(library):
    """Dynamic symbols with their versions: functions and data, without the version nodes themselves."""
    lines = [line.split() for line in run("nm", "-D", "--defined-only", "--with-symbol-versions", library).splitlines()]
    return sorted(f"symbol {os.path.basename(library)} {name}" for _, kind, name in lines if kind != "A")


def preprocessed():
    """What a program sees of weir's own headers, without those of the system."""
    ours, kept = False, []
    for line in run(CC, "-std=c11", "-E", f"-I{ROOT}/include", "-xc", "-", text=INCLUDES).splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            ours = "/weir/" in marker[1] and marker[1].startswith(str(ROOT / "include"))
        elif ours and not line.startswith("#"):
            kept.append(line)
    return re.sub(r"__attribute__ ?\(\(.*?\)\)", "", "\n".join(kept))


def members(body):
    """Names of the members of a struct; a nested union or struct counts as one member."""
    while (flat := re.sub(r"\{[^{}]*\}", "", body)) != body:
        body = flat
    for declaration in body.split(";"):
        for declarator in declaration.split(","):
            name = re.search(r"(\w+)\s*(?:\[[^]]*\]\s*)*$", declarator)
            if name:
                yield name[1]


def layouts(text):
    """Sizes and offsets, as a program compiled against the headers prints them; and values of enumerators."""
    program = f"{INCLUDES}#include <stdio.h>\nint main(void)\n{{\n"
    for name, body in re.findall(r"typedef struct (\w+)\s*\{((?:[^{}]|\{[^{}]*\})*)\}\s*\w+\s*;", text):
        program += f'printf("struct {name} %zu align %zu\\n", sizeof({name}), _Alignof({name}));\n'
        for member in members(body):
            program += (f'printf("field {name}.{member} at %zu size %zu\\n", offsetof({name}, {member}), '
                        f"sizeof((({name} *)0)->{member}));\n")
    for body in re.findall(r"enum\s*\w*\s*\{([^{}]*)\}", text):
        for name in re.findall(r"(WEIR_\w+)\s*(?:=[^,]*)?(?:,|$)", body.strip()):
            program += f'printf("enum {name} %d\\n", (int){name});\n'
    program += "return 0;\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        binary = f"{folder}/layout"
        run(CC, "-std=c11", f"-I{ROOT}/include", "-xc", "-", "-o", binary, text=program)
        return run(binary).splitlines()


def prototypes(text):
    flat = re.sub(r"\s+", " ", re.sub(r"static inline[^{;]*\{.*?\n\}", "", text, flags=re.S))
    found = re.findall(r"(?:^|(?<=[;}]))\s*((?:const )?(?:struct |enum )?\w+ \**(weir_\w+)\([^;]*\))(?=;)", flat)
    return sorted(f"function {whole}" for whole, _ in found if not whole.startswith("typedef"))


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--update"]):
        sys.exit(__doc__)
    text = preprocessed()
    symbols = [line for name in LIBRARIES for line in exported(f"{sys.argv[1]}/{name}")]
    functions = prototypes(text)
    declared = {re.search(r"(weir_\w+)\(", line)[1] for line in functions}
    visible = {line.split()[2].split("@")[0] for line in symbols} - BETWEEN
    if declared != visible:
        sys.exit(f"declared but not exported, or exported but not declared: {', '.join(sorted(declared ^ visible))}")
    present = symbols + functions + layouts(text)
    if len(sys.argv) == 3:
        LIST.write_text("".join(f"{line}\n" for line in present))
        return
    listed = LIST.read_text().splitlines()
    if listed != present:
        print("\n".join(difflib.unified_diff(listed, present, "tests/abi.txt", "this build", lineterm="", n=0)))
        sys.exit("The ABI differs from tests/abi.txt. If that is intended: tests/abi.py build/gcc --update (its first lines say "
                 "when that is allowed).")
    print(f"{len(symbols)} symbols, {len(present)} lines as listed")


main()
