#!/usr/bin/env python3
"""tools/progress.py: a line of progress on a terminal, and nothing without one. PASS or FAIL for each test."""
import importlib.util
import os
import pathlib
import pty
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOL = ROOT / "tools" / "progress.py"
NAME = f"a test {os.getpid()}"
SCRIPT = ('printf "one\\ntwo"; [ -z "${WEIR_PROGRESS:-}" ] || echo "third step" >"$WEIR_PROGRESS"; sleep 1.2; '
          'echo; echo three >&2; exit $1')
failures = []


def check(what, holds):
    print(f"{'PASS' if holds else 'FAIL'} {what}")
    failures.extend([] if holds else [what])


def on_terminal(*arguments):
    """Exit code and output of the tool on a terminal of its own."""
    ends = pty.openpty()
    process = subprocess.Popen([TOOL, *arguments], stdin=subprocess.DEVNULL, stdout=ends[1], stderr=ends[1])
    os.close(ends[1])
    output = b""
    while True:
        try:
            data = os.read(ends[0], 4096)
        except OSError:
            break
        if not data:
            break
        output += data
    os.close(ends[0])
    return process.wait(), output.decode()


def main():
    spec = importlib.util.spec_from_file_location("progress", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    file = tool.FOLDER / (re.sub(r"[^\w-]+", "-", NAME) + ".json")

    piped = subprocess.run([TOOL, NAME, "sh", "-c", SCRIPT, "sh", "3"], capture_output=True, text=True, check=False)
    check("without a terminal: the command alone", (piped.returncode, piped.stdout, piped.stderr) == (3, "one\ntwo\n", "three\n"))
    check("and nothing is kept", not file.exists())

    code, output = on_terminal(NAME, "sh", "-c", SCRIPT, "sh", "4")
    check("a failure's exit code, and its times are not kept", code == 4 and not file.exists())
    plain = re.sub(r"\r\x1b\[K[^\r\n]*(?=\r\x1b\[K)", "", output).replace("\r\x1b[K", "").replace("\r\n", "\n")
    check("a terminal keeps all of the output, and no line of progress", plain == "one\ntwo\nthree\n")
    check("the first time: step and seconds", "third step, 1 s" in output and "left" not in output)

    code, output = on_terminal(NAME, "sh", "-c", SCRIPT, "sh", "0")
    check("a success", code == 0 and file.exists())
    code, output = on_terminal(NAME, "sh", "-c", SCRIPT, "sh", "0")
    check("the next time: how far, and how long still", "1 of about 3 lines, about 0 s left" in output)
    file.write_text("[1, 2,")
    check("damaged times are ignored", on_terminal(NAME, "true")[0] == 0)
    file.unlink()

    times = [10.0, 20.0, 100.0, 110.0]  # three lines, and the end
    check("time left", [tool.left(times, *now) for now in ((0, 0), (0, 5), (0, 50), (1, 3), (2, 60), (3, 200), (9, 200))]
          == [110, 105, 100, 100, 50, 0, 0])
    check("long spans", [tool.span(one) for one in (0.4, 59.9, 61, 3600)] == ["0 s", "59 s", "1 min 01 s", "60 min 00 s"])
    sys.exit(1 if failures else 0)


main()
