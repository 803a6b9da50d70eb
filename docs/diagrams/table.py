#!/usr/bin/env python3
"""Draws docs/images/table-*.svg for docs/internals/table.md. docs/diagrams/table.py"""
import pathlib

from svg import Drawing

IMAGES = pathlib.Path(__file__).resolve().parents[1] / "images"


def row(d, y, height, parts, kinds=()):
    """Boxes side by side over the whole width: (name, share)."""
    x, whole = 20, sum(share for _, share in parts)
    places = []
    for number, (name, share) in enumerate(parts):
        width = 780 * share / whole
        d.box(round(x, 1), y, round(width, 1), height, name.split("\n"), "main" if number in kinds else "box")
        places.append((x, x + width))
        x += width
    return places


def layout():
    d = Drawing(820, 285, "Segment, bucket and slot")
    d.text(20, 24, "segment", "head")
    segment = row(d, 34, 46, [("header\n4 KiB", 10), ("statistics", 12), ("moves", 8), ("rule statistics", 16),
                              ("buckets", 36), ("leases", 8), ("chunks (slab)", 16)], {4})
    d.text(20, 122, "bucket: one cache line, 64 bytes", "head")
    bucket = row(d, 132, 36, [("slot 0", 1), ("slot 1", 1), ("slot 2", 1), ("slot 3", 1)], {1})
    d.text(20, 212, "slot: 128 bits, replaced by one compare-and-swap", "head")
    row(d, 222, 50, [("tag\n34", 34), ("state\n3", 9), ("vers.\n3", 9), ("wall\n1", 8), ("expiry\n8", 11), ("used\n32", 32),
                     ("anchor (time)\n47", 47)])
    for left, right in ((segment[4][0], 20), (segment[4][1], 800)):
        d.line(left, 80, right, 132, "grid")
    for left, right in ((bucket[1][0], 20), (bucket[1][1], 800)):
        d.line(left, 168, right, 222, "grid")
    d.write(IMAGES / "table-layout.svg")


def displacement():
    d = Drawing(820, 330, "A displacement of X from slot s to slot d")
    steps = [("1", "RESERVED", "X", "d is reserved, with an ABA tag"),
             ("2", "RESERVED", "FROZEN X", "from here on no process changes X"),
             ("3", "LANDED X", "FROZEN X", "the copy; immutable"),
             ("4", "LANDED X", "FROZEN X", "the generation of the tag grows"),
             ("5", "LANDED X", "empty", "the original is gone"),
             ("6", "X", "empty", "the copy counts")]
    d.text(155, 24, "slot s", "head", "middle")
    d.text(345, 24, "slot d", "head", "middle")
    for number, (name, to, origin, text) in enumerate(steps):
        y = 36 + 48 * number
        d.text(40, y + 24, name, "head")
        d.box(70, y, 170, 36, [origin], "main" if origin == "X" else "box")
        d.box(260, y, 170, 36, [to], "main" if to == "X" else "box")
        d.text(450, y + 23, text)
    d.write(IMAGES / "table-displacement.svg")


if __name__ == "__main__":
    layout()
    displacement()
