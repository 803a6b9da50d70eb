#!/usr/bin/env python3
"""Draws docs/images/concepts-*.svg for docs/guide/concepts.md. docs/diagrams/concepts.py"""
import pathlib

from svg import Drawing

IMAGES = pathlib.Path(__file__).resolve().parents[1] / "images"


def request():
    d = Drawing(760, 300, "From a request to a decision")
    d.box(10, 20, 190, 84, ["request", "GET /api/items", "X-API-Key: k-acme", "from 203.0.113.9"])
    d.box(10, 196, 190, 84, ["decision", "allow, delay, deny or shed", "headers: what is left", "429 and Retry-After"], "main")
    d.box(285, 20, 190, 84, ["rule that matches", "match: path: /api/*", "there may be several:", "all of them must allow"])
    d.box(560, 20, 190, 84, ["key", "template key:${api_key}", "is key:k-acme", "one counter for each key"])
    d.box(560, 196, 190, 84, ["limit", "tier pro: 6000", "window: 1m", "tiers have limits of their own"])
    d.box(285, 196, 190, 84, ["counter", "rule + key, in the segment", "or in the store", "counted by the algorithm"])
    d.arrow((200, 62), (285, 62))
    d.text(242, 54, "match", "small", "middle")
    d.arrow((475, 62), (560, 62))
    d.text(517, 54, "identity", "small", "middle")
    d.arrow((655, 104), (655, 196))
    d.text(662, 154, "tier", "small")
    d.arrow((560, 238), (475, 238))
    d.text(517, 230, "take 1", "small", "middle")
    d.arrow((285, 238), (200, 238))
    d.write(IMAGES / "concepts-request.svg")


def host():
    d = Drawing(820, 420, "The parts of weir on a host, and the store between hosts")
    d.add('<rect class="box" x="130" y="14" width="470" height="392" rx="10" style="fill:none;stroke-dasharray:5 5"/>')
    d.text(146, 36, "host", "head")
    d.box(10, 60, 96, 50, ["clients"])
    d.box(160, 52, 190, 66, ["gateway", "nginx workers with weir", "decide each request"], "main")
    d.box(700, 60, 110, 50, ["your API"])
    d.arrow((106, 85), (160, 85), both=True)
    d.arrow((350, 85), (700, 85))
    d.text(400, 78, "allowed requests", "small")
    d.box(10, 160, 96, 66, ["Envoy,", "and programs"])
    d.box(160, 160, 190, 66, ["service", "gRPC, HTTP, Redis protocol", "in the same workers"])
    d.arrow((106, 193), (160, 193), both=True)
    d.box(160, 268, 190, 50, ["program with libweir"])
    d.box(430, 130, 150, 126, ["segment", "shared memory:", "one counter for", "each rule and key,", "of fixed size"], "main")
    d.arrow((350, 98), (430, 150), both=True)
    d.arrow((350, 193), (430, 193), both=True)
    d.arrow((350, 290), (430, 238), both=True)
    d.box(160, 340, 190, 50, ["rules", "YAML, reloaded on change"])
    d.box(430, 325, 150, 66, ["agent", "exchange, statistics,", "dashboard, queue"])
    d.arrow((505, 325), (505, 256), both=True)
    d.box(700, 300, 110, 90, ["store", "Redis, Valkey:", "one limit for", "all hosts"], "main")
    d.arrow((580, 358), (700, 358), both=True)
    d.text(650, 351, "eventual", "small", "middle")
    d.arrow((350, 112), (388, 112), (388, 306), (700, 306), both=True)
    d.text(650, 299, "strict", "small", "middle")
    d.box(700, 180, 110, 50, ["other hosts"])
    d.arrow((755, 230), (755, 300), both=True)
    d.write(IMAGES / "concepts-host.svg")


request()
host()
