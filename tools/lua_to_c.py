#!/usr/bin/env python3
"""Puts the store's script together and writes it as C: lua_to_c.py lua/main.lua > script_text.c

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
        # None of our strings holds two dashes, so what follows them is a comment.
        text = re.sub(r"\s*--.*", "", text)
        if text:
            yield text


def main():
    text = "\n".join(lines(pathlib.Path(sys.argv[1]))) + "\n"
    data = text.encode("ascii")
    print("/* Made by tools/lua_to_c.py from lua/. */")
    print('#include "store/script.h"\n')
    print("const char weir__script[] = {")
    for i in range(0, len(data), 24):
        print("    " + " ".join(f"{byte}," for byte in data[i:i + 24]))
    print("    0};\n")
    print("size_t weir__script_len(void)\n{\n    return sizeof weir__script - 1;\n}\n")
    print(f'const char weir__script_sha[41] = "{hashlib.sha1(data).hexdigest()}";')


main()
