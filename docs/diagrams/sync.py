#!/usr/bin/env python3
"""Draws docs/images/sync-*.svg for docs/internals/sync.md. docs/diagrams/sync.py"""
import pathlib

from svg import Drawing

IMAGES = pathlib.Path(__file__).resolve().parents[1] / "images"


def exchange():
    d = Drawing(820, 400, "Two exchanges of a key under an eventual rule with a limit of 100")
    lanes = (("host A", 190), ("store", 410), ("host B", 630))
    for name, x in lanes:
        d.box(x - 70, 14, 140, 34, [name], "main" if name == "store" else "box")
        d.line(x, 48, x, 390, "grid")
    a, store, b = (x for _, x in lanes)

    def event(x, y, lines, side):
        for number, text in enumerate(lines):
            d.text(x + (8 if side == "start" else -8), y + 15 * number, text, "small", side)

    event(a, 74, ["admits 10: 90 left;", "ledger: 10 unsent"], "end")
    event(b, 74, ["admits 20: 80 left;", "ledger: 20 unsent"], "start")
    d.arrow((a, 118), (store, 138))
    d.text((a + store) / 2, 118, "delta 10, level 90", "small", "middle")
    event(store, 154, ["100 − 10 = 90"], "start")
    d.arrow((store, 166), (a, 186))
    d.text((a + store) / 2, 170, "90 left for all", "small", "middle")
    event(a, 204, ["acknowledged: the ledger", "forgets the 10"], "end")
    d.arrow((b, 198), (store, 218))
    d.text((store + b) / 2, 198, "delta 20, level 80", "small", "middle")
    event(store, 234, ["90 − 20 = 70"], "start")
    d.arrow((store, 246), (b, 266))
    d.text((store + b) / 2 + 20, 274, "70 left for all", "small", "middle")
    event(b, 284, ["sets its counter to 70,", "less what it admitted since"], "start")
    event(a, 298, ["next interval:", "polls the key"], "end")
    d.arrow((a, 312), (store, 332))
    d.text((a + store) / 2, 312, "delta 0, level 90", "small", "middle")
    d.arrow((store, 346), (a, 366))
    d.text((a + store) / 2, 350, "70 left for all", "small", "middle")
    event(a, 382, ["knows of B's 20"], "end")
    d.write(IMAGES / "sync-exchange.svg")


if __name__ == "__main__":
    exchange()
