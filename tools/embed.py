#!/usr/bin/env python3
"""Writes the dashboard's files as C: embed.py FOLDER > dashboard_files.c

index.html is served at /, everything else under its own path. Each file has its bytes, the same compressed if that is
smaller, a content type, and an ETag from its content. The same files give the same C.
"""
import gzip
import hashlib
import pathlib
import sys

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


def array(name, data):
    print(f"static const unsigned char {name}[] = {{")
    for i in range(0, len(data), 32):
        print(",".join(str(byte) for byte in data[i:i + 32]) + ",")
    print("};\n")


def main():
    folder = pathlib.Path(sys.argv[1])
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    if folder / "index.html" not in paths:
        sys.exit(f"embed.py: there is no index.html in {folder}")
    print("/* Made by tools/embed.py from web/. */")
    print('#include "control/dashboard.h"\n')
    entries = []
    for number, path in enumerate(paths):
        kind = TYPES.get(path.suffix)
        if not kind:
            sys.exit(f"embed.py: no content type for {path}")
        data = path.read_bytes()
        packed = gzip.compress(data, 9, mtime=0)
        array(f"bytes_{number}", data)
        smaller = len(packed) < len(data)
        if smaller:
            array(f"packed_{number}", packed)
        name = path.relative_to(folder).as_posix()
        fields = [
            f'.path = "/{"" if name == "index.html" else name}"',
            f'.type = "{kind}"',
            f'.etag = "\\"{hashlib.sha256(data).hexdigest()[:16]}\\""',
            f".bytes = bytes_{number}",
            f".size = sizeof bytes_{number}",
            f".forever = {'true' if name.startswith('assets/') else 'false'}",
        ]
        if smaller:
            fields += [f".packed = packed_{number}", f".packed_size = sizeof packed_{number}"]
        entries.append("    {" + ", ".join(fields) + "},")
    print("const struct weir__dashboard_file weir__dashboard_files[] = {")
    print("\n".join(entries))
    print("};\n")
    print("const size_t weir__dashboard_count = sizeof weir__dashboard_files / sizeof *weir__dashboard_files;")


main()
