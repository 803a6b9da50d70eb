#!/usr/bin/env python3
"""Draws docs/images/architecture-*.svg for docs/internals/architecture.md. docs/diagrams/architecture.py"""
import pathlib

from svg import Drawing

IMAGES = pathlib.Path(__file__).resolve().parents[1] / "images"


def processes():
    d = Drawing(820, 465, "Processes and shared files of one host")
    d.box(20, 20, 170, 66, ["weir serve", "supervisor, root:", "config, log, restarts"])
    d.box(20, 150, 170, 50, ["nginx master", "root"])
    d.box(20, 270, 170, 84, ["nginx workers", "user: workers'", "decide requests,", "forward them"], "main")
    d.box(630, 20, 170, 66, ["weir-agent", "user: weir", "everything else"], "main")
    d.arrow((105, 86), (105, 150))
    d.arrow((105, 200), (105, 270))
    d.arrow((190, 42), (630, 42), both=True)
    d.text(410, 34, "starts; hands over secrets and sockets; receives log lines", "small", "middle")
    d.box(270, 110, 280, 210, [
        "segment and its sidecar files", "SEGMENT: counters, rule statistics", ".ledger: unsent deltas (eventual rules)",
        ".keys: blocks and resets to publish", ".hot: heavy keys   .denials: reasons", ".load: load level, every 100 ms",
        ".history: the past, for advice", ".hosts: other hosts' heartbeats"])
    d.arrow((190, 300), (270, 270), both=True)
    d.arrow((630, 80), (550, 150), both=True)
    d.box(630, 150, 170, 84, ["state directory", "rules.db, queue.db,", "published.yaml,", "retrieved.yaml"])
    d.arrow((715, 86), (715, 150), both=True)
    d.box(20, 400, 170, 50, ["upstreams", "your API"])
    d.arrow((105, 354), (105, 400))
    d.box(270, 354, 280, 50, ["store", "Redis or Valkey: counters that hosts share"])
    d.arrow((190, 342), (230, 342), (230, 379), (270, 379), both=True)
    d.text(236, 346, "strict", "small")
    d.arrow((550, 379), (590, 379), (590, 62), (630, 62), both=True)
    d.text(574, 346, "eventual, blocks", "small", "end")
    d.box(630, 354, 170, 50, ["admin clients", "dashboard, CLI, hosts"])
    d.arrow((715, 354), (715, 300), (814, 300), (814, 53), (800, 53), both=True)
    d.write(IMAGES / "architecture-processes.svg")


def life():
    d = Drawing(820, 450, "Life of a request")
    d.box(20, 20, 150, 50, ["request", "nginx preaccess phase"])
    d.box(220, 20, 170, 50, ["match rules", "path index, conditions"])
    d.box(440, 20, 170, 50, ["build keys", "templates, identity"])
    d.box(660, 20, 140, 50, ["choose path", "flags of the plans"])
    for x in (170, 390, 610):
        d.arrow((x, 45), (x + 50, 45))
    d.box(660, 130, 140, 84, ["fast path", "one 16-byte CAS", "for each counter"], "main")
    d.arrow((730, 70), (730, 130))
    d.text(738, 104, "all eligible", "small")
    d.box(440, 130, 170, 84, ["slow path", "peek at all, then take;", "roll back if one denies"])
    d.arrow((670, 70), (560, 130))
    d.text(575, 92, "else", "small", "end")
    d.arrow((660, 172), (610, 172))
    d.text(635, 164, "missed", "small", "middle")
    d.box(220, 130, 170, 84, ["store", "only strict rules;", "script, one run for", "up to 64 requests"])
    d.arrow((440, 172), (390, 172), both=True)
    d.box(440, 270, 170, 66, ["result", "reported rule,", "header templates"], "main")
    d.arrow((525, 214), (525, 270))
    d.arrow((730, 214), (730, 303), (610, 303))
    d.box(20, 270, 370, 66, ["recorded with the decision", "rule statistics; hot keys (a sample); ring of denials;",
                            "delta ledger (eventual rules)"])
    d.arrow((440, 303), (390, 303))
    for x, lines in ((20, ["allow", "upstream; headers"]), (190, ["delay", "timer, then upstream"]),
                     (360, ["deny", "429 and Retry-After"]), (530, ["shed", "503"]),
                     (700, ["defer", "202 and a ticket"])):
        d.box(x, 386, 110 if x == 700 else 150, 50, lines)
        d.arrow((525, 336), (525, 360), (x + 55, 360), (x + 55, 386))
    d.write(IMAGES / "architecture-request.svg")


def layers():
    d = Drawing(820, 350, "Folders of src and what they may include")
    rows = [(20, [("cli", 380), ("serve", 380)]),
            (90, [("services/*", 180), ("queue", 104), ("control", 104), ("sync", 104), ("overload", 104), ("stats", 104)]),
            (160, [("config", 380), ("remote", 380)]),
            (230, [("engine", 780)]), (300, [("table", 250), ("rules", 250), ("algo", 125), ("base", 125)])]
    for y, boxes in rows:
        x = 20
        gap = (780 - sum(width for _, width in boxes)) / max(1, len(boxes) - 1)
        for name, width in boxes:
            d.box(round(x), y, width, 36, [name], "main" if name in ("engine", "table") else "box")
            x += width + gap
        if y < 300:
            d.arrow((410, y + 36), (410, 300 if y == 230 else y + 70))
    d.write(IMAGES / "architecture-layers.svg")


if __name__ == "__main__":
    processes()
    life()
    layers()
