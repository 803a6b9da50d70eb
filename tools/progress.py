#!/usr/bin/env python3
"""Runs a long command with a line of progress below its output: progress.py NAME COMMAND...

On a terminal the last line shows what runs, for how long, how many lines of output there are of about how many, and how
long it still takes: by the times of the last run of this NAME that succeeded, in build/progress/. A command that knows its
step writes it to the file that WEIR_PROGRESS names. Without a terminal the command replaces this process.
"""
import json
import os
import pathlib
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "build" / "progress"
CLEAR = "\r\033[K"


def span(seconds):
    return f"{int(seconds) // 60} min {int(seconds) % 60:02} s" if seconds >= 60 else f"{int(seconds)} s"


def left(times, lines, now):
    """Seconds that the last run still took after as many lines; None: unknown. `times`: of its lines, and its end."""
    if not times:
        return None
    since = times[min(lines, len(times) - 1) - 1] if lines else 0
    following = times[min(lines, len(times) - 1)]
    return times[-1] - min(max(now, since), following)


def status(name, step, times, lines, now):
    text = f"{name}: {step or 'running'}, {span(now)}"
    if times:
        text += f", {lines} of about {max(lines, len(times) - 1)} lines, about {span(left(times, lines, now))} left"
    return text[:shutil.get_terminal_size().columns - 1]


def copy(command, name, times):
    """Runs the command. Its exit code, and the times of its lines and of its end."""
    began, seen, rest = time.monotonic(), [], b""
    with tempfile.NamedTemporaryFile(mode="r", prefix="weir-progress-") as step:
        together = subprocess.STDOUT if sys.stderr.isatty() else None
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=together,
                                   env={**os.environ, "WEIR_PROGRESS": step.name})
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal signals the command, too
        selector = selectors.DefaultSelector()
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if selector.select(timeout=1):
                data = os.read(process.stdout.fileno(), 65536)
                if not data:
                    break
                *whole, rest = (rest + data).split(b"\n")
                seen += [time.monotonic() - began] * len(whole)
                if whole:
                    sys.stdout.write(CLEAR)
                    sys.stdout.flush()
                    sys.stdout.buffer.write(b"".join(line + b"\n" for line in whole))
            line = status(name, pathlib.Path(step.name).read_text(encoding="utf-8").strip(), times, len(seen),
                          time.monotonic() - began)
            sys.stdout.write(CLEAR + line)
            sys.stdout.flush()
        sys.stdout.write(CLEAR + rest.decode(errors="replace"))
        sys.stdout.flush()
        code = process.wait()
    return code if code >= 0 else 128 - code, [*seen, time.monotonic() - began]


def main():
    name, command = sys.argv[1], sys.argv[2:]
    if not sys.stdout.isatty():
        os.execvp(command[0], command)
    file = FOLDER / (re.sub(r"[^\w-]+", "-", name) + ".json")
    try:
        times = [float(one) for one in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        times = []
    code, seen = copy(command, name, times)
    if code == 0:
        FOLDER.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([round(one, 1) for one in seen]), encoding="utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main()
