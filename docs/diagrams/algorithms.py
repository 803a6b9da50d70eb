#!/usr/bin/env python3
"""Draws docs/images/algorithm-*.svg: the same requests under each algorithm. docs/diagrams/algorithms.py [LIBWEIR]

The decisions are those of libweir itself (default: build/gcc/libweir.so), called with a clock of this script's.
"""
import ctypes
import pathlib
import sys

from svg import Drawing

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
SECOND = 1_000_000_000
START = 86400 * 365 * SECOND  # a whole minute of both clocks
LENGTH, LIMIT, WINDOW = 180, 10, 60


class Time(ctypes.Structure):
    _fields_ = [("mono_ns", ctypes.c_int64), ("wall_ns", ctypes.c_int64)]


class Params(ctypes.Structure):
    _fields_ = [("algorithm", ctypes.c_int), ("limit", ctypes.c_int64), ("window_ns", ctypes.c_int64), ("burst", ctypes.c_int64),
                ("refill", ctypes.c_int), ("align", ctypes.c_int), ("calendar", ctypes.c_int), ("zone", ctypes.c_void_p),
                ("count_rejected", ctypes.c_bool), ("buckets", ctypes.c_int), ("round", ctypes.c_int), ("soft_percent", ctypes.c_int),
                ("delay", ctypes.c_bool), ("max_delay_ns", ctypes.c_int64), ("id", ctypes.c_uint64)]


class Options(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("size", ctypes.c_uint64), ("slab_bytes", ctypes.c_uint64), ("no_slab", ctypes.c_bool),
                ("flags", ctypes.c_int), ("mode", ctypes.c_uint)]


class Decision(ctypes.Structure):
    _fields_ = [("verdict", ctypes.c_int), ("flags", ctypes.c_uint32), ("limit", ctypes.c_int64), ("remaining", ctypes.c_int64),
                ("delay_ns", ctypes.c_int64), ("retry_after_ns", ctypes.c_int64), ("reset_after_ns", ctypes.c_int64)]


class Limiter:
    """One limit of libweir in a segment of its own, at times of the caller's choice."""

    def __init__(self, library, **params):
        self.library = library
        self.segment = ctypes.c_void_p()
        self.limit = (ctypes.c_uint64 * 32)()
        how = Options(size=4 << 20)
        self.check(library.weir_segment_open(ctypes.byref(how), ctypes.byref(self.segment)))
        wanted = Params(window_ns=WINDOW * SECOND, **{"limit": LIMIT, **params})
        self.check(library.weir_limit_init(self.limit, ctypes.byref(wanted)))

    @staticmethod
    def check(error):
        if error:
            raise RuntimeError(f"libweir: error {error}")

    @staticmethod
    def time(at):
        return Time(START + round(at * SECOND), START + round(at * SECOND))

    def take(self, at, cost=1):
        decision = Decision()
        self.check(self.library.weir_take(self.segment, self.limit, b"key", ctypes.c_size_t(3), ctypes.c_int64(cost), self.time(at),
                                          ctypes.byref(decision)))
        return decision

    def acquire(self, at):
        decision, lease = Decision(), (ctypes.c_uint64 * 16)()
        self.check(self.library.weir_acquire(self.segment, self.limit, b"key", ctypes.c_size_t(3), self.time(at), lease,
                                             ctypes.byref(decision)))
        return decision, lease

    def release(self, lease, at):
        self.library.weir_release(self.segment, lease, self.time(at))


def demand():
    """A trickle, a burst before a whole minute and one after it, and then twice the limit."""
    return [float(t) for t in range(5, 50, 10)] + [50.5 + i * 0.8 for i in range(9)] + [61 + i * 0.8 for i in range(10)] + \
        [float(t) for t in range(90, LENGTH, 3)]


def across(at):
    return 90 + at * 600 / LENGTH


def axis(drawing, y):
    drawing.line(across(0), y, across(LENGTH), y, "axis")
    for at in range(0, LENGTH + 1, 30):
        drawing.line(across(at), y, across(at), y + 4, "axis")
        drawing.text(across(at), y + 18, f"{at} s", "small", "middle")
        if at % WINDOW == 0:
            drawing.line(across(at), 34, across(at), y, "grid")


def draw(library, name, title, **params):
    limiter = Limiter(library, **params)
    asked = demand()
    moments = sorted([(at, 1) for at in asked] + [(i / 4 + 0.001, 0) for i in range(LENGTH * 4)])
    curve, allowed, denied, leaves = [], [], [], []
    for at, cost in moments:
        decision = limiter.take(at, cost)
        if cost:
            passes = decision.verdict in (0, 1)
            (allowed if passes else denied).append(at)
            if passes and params.get("delay"):
                leaves.append(at + decision.delay_ns / SECOND)
        curve.append((at, max(decision.remaining, 0)))
    height = 262 if leaves else 230
    drawing = Drawing(720, height, title)
    drawing.text(90, 20, title, "head")
    top, bottom = 44, 138

    def up(value):
        return bottom - value * (bottom - top) / LIMIT
    axis(drawing, height - 30)
    for value in (0, 5, 10):
        drawing.line(across(0), up(value), across(LENGTH), up(value), "grid")
        drawing.text(82, up(value) + 4, str(value), "small", "end")
    drawing.text(8, up(5) + 4, "left", "small")
    steps = []
    for at, value in curve:
        if not steps or up(value) != steps[-1][1]:
            steps += [(across(at), steps[-1][1])] if steps else []
            steps.append((across(at), up(value)))
    steps.append((across(LENGTH), steps[-1][1]))
    drawing.path([(across(0), bottom)] + steps + [(across(LENGTH), bottom)], "under", close=True)
    drawing.path(steps, "left")
    rows = [("allowed", allowed, "allow"), ("denied", denied, "deny")] + ([("leaves", leaves, "wait")] if leaves else [])
    for i, (label, times, kind) in enumerate(rows):
        y = 150 + i * 25
        drawing.text(8, y + 14, f"{label}", "small")
        drawing.text(82, y + 14, str(len(times)), "small", "end")
        for at in times:
            if at < LENGTH:
                drawing.line(across(at), y, across(at), y + 18, kind)
    drawing.write(IMAGES / f"algorithm-{name}.svg")
    return len(allowed), len(denied)


def draw_concurrency(library):
    """Requests in flight: bars from take to release; a crash leaves one to its lease."""
    limiter = Limiter(library, algorithm=5, limit=3)
    requests = [(5, 40), (12, 25), (20, 30), (26, 10), (33, 10), (41, 22), (48, 15), (52, 30), (70, None), (75, 12), (90, 18), (100, 8),
                (106, 40), (112, 20), (118, 10), (124, 10), (133, 20), (140, 15), (150, 20)]
    height = 40 + 9 * len(requests) + 44
    drawing = Drawing(720, height, "concurrency: 3 requests at once, lease: 1m")
    drawing.text(90, 20, "concurrency: 3 requests at once, lease: 1m", "head")
    events = sorted([(at, 1, i, length) for i, (at, length) in enumerate(requests)])
    ends, passed = [], 0
    for at, _, i, length in events:
        for end in sorted((e for e in ends if e[0] <= at), key=lambda e: e[0]):
            limiter.release(end[1], end[0])
            ends.remove(end)
        decision, lease = limiter.acquire(at)
        y = 36 + 9 * i
        if decision.verdict != 0:
            drawing.line(across(at) - 4, y - 1, across(at) + 4, y + 7, "cross")
            drawing.line(across(at) - 4, y + 7, across(at) + 4, y - 1, "cross")
            continue
        passed += 1
        until = at + (length if length else WINDOW)
        if length:
            ends.append((until, lease))
        else:
            drawing.text(across(until) + 6, y + 7, "its process died", "small")
        drawing.add(f'<rect class="run" x="{across(at):.1f}" y="{y}" width="{across(min(until, LENGTH)) - across(at):.1f}" height="6" '
                    f'rx="2"{"" if length else chr(32) + "fill-opacity=" + chr(34) + ".35" + chr(34)}/>')
    axis(drawing, height - 30)
    drawing.text(8, 50, "in flight", "small")
    drawing.text(8, 66, "× denied", "small")
    drawing.write(IMAGES / "algorithm-concurrency.svg")
    return passed, len(requests) - passed


def main():
    library = ctypes.CDLL(str(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/gcc/libweir.so"))
    library.weir_take.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64, Time,
                                  ctypes.c_void_p]
    library.weir_acquire.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, Time, ctypes.c_void_p,
                                     ctypes.c_void_p]
    library.weir_release.argtypes = [ctypes.c_void_p, ctypes.c_void_p, Time]
    for name, title, params in (
            ("token-bucket", "token_bucket: limit 10, window 1m", {}),
            ("token-bucket-burst", "token_bucket: limit 10, window 1m, burst 3", {"burst": 3}),
            ("leaky-bucket", "leaky_bucket with on_limit: delay: limit 10, window 1m", {"algorithm": 1, "delay": True}),
            ("fixed-window", "fixed_window: limit 10, window 1m", {"algorithm": 2}),
            ("sliding-window-log", "sliding_window_log: limit 10, window 1m", {"algorithm": 3}),
            ("sliding-window-counter", "sliding_window_counter: limit 10, window 1m", {"algorithm": 4})):
        print(name, *draw(library, name, title, **params))
    print("concurrency", *draw_concurrency(library))


main()
