#!/usr/bin/env python3
"""bench/all.py and bench/report.py: benches that fail, lines that are no results, what a report keeps. PASS or FAIL for each test."""
import contextlib
import importlib.util
import io
import json
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "bench"))
import report # noqa: E402 # pylint: disable=wrong-import-position

BENCH = """import json, sys, time
for value in {values}:
    print(json.dumps(dict(bench="{name}", case="a case", value=value, unit="ratio", bar=2, holds=value >= 2)), flush=True)
{then}
"""
failures = []


def check(what, holds):
    print(f"{'PASS' if holds else 'FAIL'} {what}")
    failures.extend([] if holds else [what])


def error_of(line):
    """The message about a line, "" if it is right."""
    try:
        report.checked(line, "x.jsonl:7")
    except report.Malformed as error:
        return str(error)
    return ""


def lines_are_checked():
    right = {"bench": "core", "case": "single", "value": 1.5, "unit": "ratio", "bar": 1, "holds": True}
    without = lambda name: json.dumps({key: value for key, value in right.items() if key != name})  # noqa: E731
    check("a right line", error_of(json.dumps(right)) == "")
    check("no JSON", error_of('{"bench": "core",').startswith("x.jsonl:7: not JSON"))
    check("no object", error_of("[1]") == "x.jsonl:7: not an object")
    check("a bench that does not exist", "x.jsonl:7: no bench 'cores'; there are: core, rules" in error_of(json.dumps(right | {"bench": "cores"})))
    check("a member is missing", all(f"'{name}' is missing" in error_of(without(name)) for name in ("bench", "case", "value", "unit")))
    check("a value that is no number", all("'value'" in error_of(json.dumps(right | {"value": value})) for value in ("1", True, None)))
    check("a bar without a verdict", "'holds'" in error_of(without("holds")))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "lines.jsonl"
        for name, text in (("a file without the machine", json.dumps(right) + "\n"), ("an empty file", "")):
            path.write_text(text)
            try:
                report.read(path)
                check(name, False)
            except report.Malformed as error:
                check(name, str(error).startswith("lines.jsonl:1: the first line must describe the machine"))


def numbers():
    shown = {38123456: "38.1 M", 109e6: "109 M", 10 ** 6: "1 M", 1.54e6: "1.54 M", 12345.6: "12,346", 135.4: "135", 17.23: "17.2", 3.456: "3.46",
             1.0083: "1.008", 0.95412: "0.954", 0.0006: "0.0006", 0: "0", float("inf"): "–", -20.5: "−20.5", "text": "text"}
    check("numbers", {value: report.shown(value) for value in shown} == shown)
    wide = report.table_row(["a case " * 20, "1", "**missed**"])
    check("a row is at most 110 columns wide", len(wide) == 110 and wide.endswith("… | 1 | **missed** |"))


def loaded(folder):
    """bench/all.py for a folder with benches of its own."""
    spec = importlib.util.spec_from_file_location("all_benches", ROOT / "bench/all.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("bench", "docs/internals", "docs/images"):
        (folder / name).mkdir(parents=True)
    report.ROOT, report.IMAGES = folder, folder / "docs/images"
    report.LINES, report.PAGE = (folder / "docs/internals" / name for name in ("results.jsonl", "results.md"))
    return module


def run(module, *arguments):
    """Exit status, output, messages."""
    output, messages = io.StringIO(), io.StringIO()
    sys.argv = ["all.py", "--weir", "none", *arguments]
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(messages):
        status = module.main()
    return status, output.getvalue(), messages.getvalue()


def runs():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        module = loaded(folder)

        def bench(of, values, then=""):
            (folder / "bench" / f"{of}.py").write_text(BENCH.format(name=of, values=values, then=then))

        bench("core", [1, 3], "sys.exit(3)")
        bench("rules", [2.5])
        bench("store", [9], "try: time.sleep(60)\nexcept KeyboardInterrupt: sys.exit(130)")
        bench("control", [9], "print('no result')")
        status, output, messages = run(module, "--json", "--report", "--longest", "5", "--only", "core", "rules", "store", "control")
        lines = [json.loads(line) for line in output.splitlines()]
        ended = {line["of"]: line["status"] for line in lines if line["case"] == "run"}
        check("a bench that fails does not stop the others, and all fails", status == 1 and ended["core"] == 3 and ended["rules"] == 0)
        check("one that hangs is ended", ended["store"] == 130)
        check("one that prints something else fails", ended["control"] == 1 and "bench/control.py, line 2: not JSON" in messages)
        check("what failed is named", "failed: core, store, control" in messages and "4 of 5 bars hold" in messages)
        check("each run has the share of stolen processor time", all(0 <= line["stolen"] <= 1 for line in lines if line["case"] == "run"))
        check("the first line is the machine", lines[0]["case"] == "machine" and lines[0]["value"] >= 1)
        saved = next((folder / "build/bench").iterdir())
        check("the lines are saved", saved.read_text() == output)
        page = report.PAGE.read_text()
        check("the page has bars, and what failed", "| core | a case, worst of 2 | ≥ 2 | 1 | **missed** by 1 |" in page
              and "`./dev bench core` failed with status 3" in page and "Not measured here: `./dev bench gateway`" in page)

        bench("core", [7])
        status, _, _ = run(module, "--report", "--only", "core")
        kept = report.read(report.LINES)
        check("measured again, one bench is replaced and the others stay",
              status == 0 and [line["value"] for line in kept if line["bench"] in ("core", "rules")] == [7, 2.5])
        page = report.PAGE.read_text()
        (report.IMAGES / "results-old.svg").write_text("")
        status, _, _ = run(module, "--report", "--from", str(report.LINES))
        check("from its own lines the page is the same, and old plots go",
              status == 0 and report.PAGE.read_text() == page and not list(report.IMAGES.iterdir()))

        other = folder / "other.jsonl"
        other.write_text("".join(json.dumps(line) + "\n" for line in [{**kept[0], "cpu": "another"}, *(
            line for line in kept[1:] if report.bench_of(line) == "rules")]))
        status, _, messages = run(module, "--report", "--from", str(other))
        check("benches of another machine are dropped", status == 0 and "another machine" in messages and not any(
            line["bench"] == "core" for line in report.read(report.LINES)))
        right = other.read_text()
        other.write_text(right + '{"bench": "nope", "case": "x", "value": 1, "unit": "s"}\n')
        before = report.PAGE.read_text()
        status, _, messages = run(module, "--report", "--from", str(other))
        check("a file with a wrong line changes nothing", status == 1 and "other.jsonl:4: no bench 'nope'" in messages
              and report.PAGE.read_text() == before)
        other.write_text(right + '{"bench": "pressure", "case": "x", "mode": "adaptive", "value": 1, "unit": "s"}\n')
        status, _, messages = run(module, "--report", "--from", str(other))
        check("so does one with a line that lacks a parameter", status == 1 and "the bench pressure lacks a parameter: 'times'" in messages
              and report.PAGE.read_text() == before)


def main():
    lines_are_checked()
    numbers()
    runs()
    sys.exit(1 if failures else 0)


main()
