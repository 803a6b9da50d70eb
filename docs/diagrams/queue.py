#!/usr/bin/env python3
"""Draws docs/images/queue-*.svg for docs/reference/queue.md. docs/diagrams/queue.py"""
import pathlib

from svg import Drawing

IMAGES = pathlib.Path(__file__).resolve().parents[1] / "images"


def states():
    d = Drawing(820, 270, "States of a deferred request")
    d.box(20, 30, 130, 50, ["denied", "202 and a ticket"])
    d.box(230, 30, 130, 50, ["waiting"], "main")
    d.box(460, 30, 130, 50, ["under_way"], "main")
    d.box(680, 30, 120, 50, ["delivered", "kept for an hour"])
    d.box(230, 200, 130, 50, ["cancelled", "kept for an hour"])
    d.box(460, 200, 130, 50, ["dead", "kept for 7 days"])
    d.arrow((150, 55), (230, 55))
    d.text(190, 47, "stored", "small", "middle")
    d.arrow((360, 46), (460, 46))
    d.text(410, 38, "limits allow it", "small", "middle")
    d.arrow((460, 66), (360, 66))
    d.text(410, 82, "failed: retry", "small", "middle")
    d.arrow((590, 55), (680, 55))
    d.text(635, 47, "answered", "small", "middle")
    d.arrow((525, 80), (525, 200))
    d.text(533, 144, "retries used up", "small")
    d.arrow((340, 80), (460, 205))
    d.text(408, 176, "expired, rule gone", "small", "end")
    d.arrow((480, 200), (360, 75))
    d.text(440, 122, "requeue", "small")
    d.arrow((260, 80), (260, 200))
    d.text(252, 144, "cancel", "small", "end")
    d.arrow((460, 232), (360, 232))
    d.text(410, 248, "cancel", "small", "middle")
    d.write(IMAGES / "queue-states.svg")


if __name__ == "__main__":
    states()
