"""The page of results, docs/internals/results.md, and its plots, from the JSON lines of the benches. For bench/all.py.

A line is an object with `bench`, `case`, parameters, `value` and `unit`; one that stands for a bar also has `bar`, `holds` and,
if the bar is an upper bound, `most`. Lines of the bench `all` describe the machine and each run. Everything on the page comes
from the lines or from this file; a test compares (tests/docs.py).
"""
import json
import math
import pathlib
import re
import shutil
import tempfile
import textwrap

from plot import Axis, bars, plot

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINES, PAGE, IMAGES = (ROOT / "docs" / name for name in ("internals/results.jsonl", "internals/results.md", "images"))
PREFIX = "results-"  # of the plots
COLUMNS = 110
NOT_PARAMETERS = {"bench", "case", "value", "unit", "bar", "holds", "most", "error", "within", "what", "of"}
HEADS = {"p50": "p50 µs", "p99": "p99 µs", "p99.9": "p99.9 µs", "cpu": "cpu ns", "p50_us": "p50 µs", "p99_us": "p99 µs",
         "p999_us": "p99.9 µs", "worker_ns": "worker ns", "beyond_bare": "beyond bare nginx", "memory_usage": "MEMORY USAGE",
         "us": "µs", "us a request": "µs a request"}
MEASURED = {"p50", "p99", "p99.9", "cpu", "p50_us", "p99_us", "p999_us", "worker_ns", "beyond_bare", "memory_usage", "encoding",
            "usage", "median", "least", "rounds", "off", "on"}  # beside the value; other parameters tell which case it is


class Malformed(Exception):
    """A line that is no result, with its place."""


# ---- Lines ----

def checked(line, place):
    """The line as a result, or Malformed."""
    try:
        result = json.loads(line)
    except ValueError as error:
        raise Malformed(f"{place}: not JSON: {error}") from None
    if not isinstance(result, dict):
        raise Malformed(f"{place}: not an object")
    number = lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)  # noqa: E731
    for name, right in (("bench", lambda v: isinstance(v, str)), ("case", lambda v: isinstance(v, str)), ("value", number),
                        ("unit", lambda v: isinstance(v, str))):
        if not right(result.get(name)):
            raise Malformed(f"{place}: '{name}' is missing or of the wrong type")
    if result["bench"] not in (*SECTIONS, "all"):
        raise Malformed(f"{place}: no bench '{result['bench']}'; there are: {', '.join(SECTIONS)}")
    if "bar" in result and not (number(result["bar"]) and isinstance(result.get("holds"), bool)):
        raise Malformed(f"{place}: a bar is a number and has 'holds'")
    return result


def read(path):
    """All lines of a file. It begins with the machine, and each bench ends with its run."""
    path = pathlib.Path(path)
    texts = path.read_text(encoding="utf-8").splitlines()
    lines = [checked(text, f"{path.name}:{number}") for number, text in enumerate(texts, 1) if text.strip()]
    if not lines or (lines[0]["bench"], lines[0]["case"]) != ("all", "machine"):
        raise Malformed(f"{path.name}:1: the first line must describe the machine (bench all, case machine)")
    for result in lines[1:]:
        if result["bench"] == "all" and (result["case"] != "run" or result.get("of") not in SECTIONS):
            raise Malformed(f"{path.name}: a line of the bench all is neither the machine nor the run of a bench")
    return lines


def bench_of(result):
    return result["of"] if result["bench"] == "all" else result["bench"]


def merged(old, new):
    """`new`, and the benches of `old` that `new` lacks, if both are of the same machine; in the order of the page."""
    machine = new[0]
    kept = old[1:] if old and old[0] == machine else []
    ran = {bench_of(result) for result in new[1:]}
    every = [*new[1:], *(result for result in kept if bench_of(result) not in ran)]
    return [machine, *(result for bench in SECTIONS for result in every if bench_of(result) == bench)]


# ---- Text ----

def shown(value):
    """Three digits, and three decimals of ratios near 1: 38123456 as "38.1 M", 12345 as "12,345", 0.95412 as "0.954"."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return str(value)
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    if size >= 999_500:
        millions = value / 1e6
        decimals = 0 if size >= 1e8 or millions == int(millions) else 1 if size >= 1e7 else 2
        return f"{millions:,.{decimals}f} M".replace("-", "−")
    if size >= 100 or value == int(value):
        text = f"{value:,.0f}"
    elif size < 0.01:
        text = f"{value:.2g}"
    else:
        text = f"{value:.{1 if size >= 10 else 2 if size >= 2 else 3}f}"
    return text.replace("-", "−")


def reached(result):
    text = f"{result['value']:.3f} ± {result['error']:.3f}" if "error" in result else shown(result["value"])
    return text.replace("-", "−")


def threshold(result):
    near = f", within {result['within']:.3f}" if "within" in result else ""
    bar = shown(result["bar"])
    return f"{'≤' if result.get('most') else '≥'} {bar.rstrip('0').rstrip('.') if '.' in bar else bar}{near}"


def verdict(result):
    return "holds" if result["holds"] else "**missed**"


def table_row(cells):
    """Within COLUMNS: what does not fit is cut off the longest cell."""
    text = re.sub(r"(?<=\|)  (?=\|)", " ", "| " + " | ".join(cells) + " |")
    if len(text) <= COLUMNS:
        return text
    longest = max(cells, key=len)
    cut = [cell[:len(longest) - (len(text) - COLUMNS) - 1] + "…" if cell is longest else cell for cell in cells]
    return table_row(cut)


def table(heads, rows):
    """Without columns that are empty in all rows."""
    rows = [[str(cell) for cell in row] for row in rows]
    used = [number for number in range(len(heads)) if any(row[number] for row in rows)]
    lines = [[row[number] for number in used] for row in (heads, *rows)]
    return [table_row(lines[0]), "|" + "---|" * len(used), *map(table_row, lines[1:]), ""]


def paragraph(text):
    return [*textwrap.wrap(" ".join(text.split()), COLUMNS, break_long_words=False, break_on_hyphens=False), ""]


def pivot(heads, lines, row, column):
    """A table whose rows and columns are of parts of the lines, in the order in which they come; the first value counts."""
    rows, columns = {}, []
    for result in lines:
        name = column(result)
        columns += [name] if name not in columns else []
        rows.setdefault(row(result), {}).setdefault(name, shown(result["value"]))
    return table([*heads, *map(str, columns)], [[*(shown(part) for part in key), *(cells.get(name, "") for name in columns)]
                                                for key, cells in rows.items()])


def flat(lines):
    """A table for each unit: cases with their parameters, values and bars. Parameters that all have stand above it."""
    text = []
    for unit in dict.fromkeys(result["unit"] for result in lines):
        group = [result for result in lines if result["unit"] == unit]
        names = list(dict.fromkeys(name for result in group for name in result if name not in NOT_PARAMETERS))
        same = [name for name in names if name not in MEASURED and len(group) > 1
                and len({str(result.get(name, "")) for result in group}) == 1]
        which, more = split([name for name in names if name not in same], lambda name: name not in MEASURED)
        rows = []
        for result in group:
            bar = [threshold(result), verdict(result)] if "bar" in result else ["", ""]
            rows.append([result["case"].strip(), *(shown(result.get(name, "")) for name in which), reached(result),
                         *(shown(result.get(name, "")) for name in more), *bar])
        if same:
            text += paragraph("All with " + ", ".join(f"{name} {shown(group[0][name])}" for name in same) + ":")
        text += table(["case", *(HEADS.get(name, name.replace("_", " ")) for name in (*which, unit, *more)), "bar", ""], rows)
    return text


def image(name, title):
    return [f"![{title}](../images/{PREFIX}{name}.svg)", ""]


def split(lines, belongs):
    """Those that belong, and the others."""
    return [result for result in lines if belongs(result)], [result for result in lines if not belongs(result)]


# ---- Benches ----

TOKEN = {"single": "single", "batch": "batch", "memory bound": "bound", "batch / memory bound": "batch / bound",
         "memory bound, one line": "one line", "batch / one line's bound": "batch / one line"}


def core(lines, images):
    where = lambda result: (result["keys"], result["distribution"], result["threads"])  # noqa: E731
    token = {where(result) for result in lines if result["case"] == "single" and result["algorithm"] == "token_bucket"}
    sizes, rest = split(lines, lambda result: result["case"].startswith("bytes a key"))
    first, rest = split(rest, lambda result: result["case"] in TOKEN and where(result) in token
                        and result["algorithm"] in ("token_bucket", "none"))
    others, rest = split(rest, lambda result: re.fullmatch(r"(single|batch)(, denied)?", result["case"]))
    # Bounds beside other algorithms: their ratios are left out here, too.
    _, rest = split(rest, lambda result: result["case"] in ("memory bound, one line", "memory bound", "denied / one line's bound",
                                                            "batch / one line's bound", "batch / memory bound"))
    text = []
    if first:
        text += ["### Token bucket", "", *pivot(["keys", "distribution", "threads"], first, where, lambda r: TOKEN[r["case"]])]
    course = {}
    for result in first:
        if result["threads"] == 2 and result["distribution"] == "uniform" and result["case"] in ("single", "batch", "memory bound"):
            course.setdefault(TOKEN[result["case"]], {}).setdefault(result["keys"] / 1e6, result["value"] / 1e6)
    keys = sorted({at for points in course.values() for at in points})
    if len(keys) > 1:
        title = "Token bucket, 2 threads, uniform keys: decisions"
        plot(images / f"{PREFIX}core.svg", title, Axis("million keys", keys[0], keys[-1], keys, log=True),
             Axis("million a second", 0, max(max(points.values()) for points in course.values()) * 1.05),
             {name: sorted(points.items()) for name, points in course.items()})
        text += image("core", title)
    if others:
        def kind(result):
            denied = ", all denied" if "denied" in result["case"] else ""
            return (result["algorithm"].replace("_", " ") + denied, result["keys"], result["distribution"])
        text += ["### Other algorithms, by threads", "", *pivot(["algorithm", "keys", "distribution"], others, kind,
                                                                lambda r: f"{r['case'].split(',')[0]}, {r['threads']}")]
    if sizes:
        text += ["### Bytes a key of a segment that is 90 % full", "",
                 *pivot(["algorithm"], sizes, lambda r: (r["algorithm"].replace("_", " "),), lambda r: f"{shown(r['keys'])} keys")]
    if rest:
        text += ["### Clock, hot key, Redis", "", *flat([{name: value for name, value in result.items() if name != "algorithm"}
                                                         for result in rest])]
    return text


def gateway(lines, images):
    counted, rest = split(lines, lambda result: result["unit"] == "instructions")
    ratios, rest = split(rest, lambda result: result["unit"] == "ratio")
    text = flat(rest)
    raced = [result for result in rest if "worker_ns" in result]
    if raced:
        title = "Requests a second"
        bars(images / f"{PREFIX}gateway.svg", title, [(r["case"], r["value"], "weir" in r["case"]) for r in raced], shown)
        text += image("gateway", title)
    if ratios:
        by_worker = {result["of"]: reached(result) for result in ratios if "of" in result}
        text += ["### Ratios", "", *table(["ratio", "by rate", "by the worker's time", "bar", ""], [
            [result["case"], reached(result), by_worker.get(result["case"], ""),
             *([threshold(result), verdict(result)] if "bar" in result else ["", ""])] for result in ratios if "of" not in result])]
    if counted:
        text += ["### Instructions of one more request", "", *flat(counted)]
    return text


def service(lines, images):
    text = flat(lines)
    rates = [result for result in lines if result["unit"] == "a second"]
    parts = (("grpc", "gRPC: calls a second", "gRPC, ", ""),
             ("resp-64", "RESP, pipelines of 64: commands a second", "RESP, ", ", pipeline 64"),
             ("resp-1", "RESP, no pipeline: commands a second", "RESP, ", ", pipeline 1"),
             ("http", "HTTP: checks a second", "HTTP, ", ""))
    for name, title, start, end in parts:
        rows = [(r["case"].removeprefix(start).removesuffix(end), r["value"], "weir" in r["case"]) for r in rates
                if r["case"].startswith(start) and r["case"].endswith(end)]
        if rows:
            bars(images / f"{PREFIX}service-{name}.svg", title, rows, shown)
            text += image(f"service-{name}", title)
    return text


def store(lines, images):
    del images
    spent, rest = split(lines, lambda result: result["unit"] == "us a request")
    exchanged, rest = split(rest, lambda result: result["case"].startswith("Redis for eventual"))
    text = flat([{name: value for name, value in result.items() if name != "keys"} for result in rest])  # the case names them
    if exchanged:
        text += ["### What eventual rules cost Redis, a second", "",
                 *pivot(["what"], exchanged, lambda r: (r["case"].split(": ")[1],), lambda r: f"{r['keys']:,} keys")]
    if spent:
        text += ["### Processor time, µs a request", "",
                 *pivot(["keys", "of"], spent, lambda r: (r["keys"], r["case"].strip()), lambda r: r["how"])]
    return text


def pressure(lines, images):
    swept, rest = split(lines, lambda result: "mode" in result)
    text, times = flat(rest), sorted({result["times"] for result in swept})
    what = lambda result: result["case"].split(": ", 1)[1]  # noqa: E731
    if swept:
        text += ["### Offered load, in times of the capacity", "",
                 *pivot(["limits", "what"], swept, lambda r: (r["mode"], f"{what(r)}, {r['unit']}"), lambda r: f"{r['times']:g}")]
    for name, wanted, title, y in (
            ("goodput", "goodput", "Goodput by offered load", Axis("of the capacity", 0, 1.1)),
            ("p99", "critical p99", "p99 of critical traffic by offered load",
             Axis("milliseconds", 50, 1000, [50, 100, 200, 500, 1000], log=True))):
        if len(times) > 1:
            courses = {}
            for result in swept:
                if what(result) == wanted:
                    courses.setdefault(result["mode"], []).append((result["times"], result["value"]))
            plot(images / f"{PREFIX}pressure-{name}.svg", title,
                 Axis("offered, times the capacity", times[0], times[-1], times, log=True), y, courses)
            text += image(f"pressure-{name}", title)
    return text


def faults(lines, images):
    del images
    beyond, rest = split(lines, lambda result: result["case"].startswith("eventual, "))
    rows = {}
    for result in rest:
        rows.setdefault(result["case"], {})[result["what"]] = result
    names = {"requests failed beyond the policy": "failed", "p99 over the deadline": "p99", "return over 2 s": "well in",
             "consumed and lost": "lost"}
    made = []
    for case, of in rows.items():
        failed, late, well, lost = (of.get(what, {}) for what in names)
        missed = [names.get(what, what) for what, one in of.items() if not one["holds"]]
        made.append([case, shown(failed.get("value", "")), f"{failed['refused']:.0%}" if "refused" in failed else "",
                     *(f"{one[name]:.1f}" if name in one else "" for one, name in ((late, "ms"), (failed, "worst_ms"), (well, "ms"))),
                     shown(lost.get("value", "")), shown(lost.get("bar", "")), f"**missed**: {', '.join(missed)}" if missed else "hold"])
    text = table(["fault", "failed", "refused", "p99 ms", "worst ms", "well in ms", "lost", "≤", "bars"], made) if made else []
    if beyond:
        text += ["### Beyond the limit", "", *table(
            ["case", "hosts", "interval ms", "units beyond", "bound", "ratio", "bar", ""],
            [[f"{r['case'].removeprefix('eventual, ')}: {r['what']}", r["hosts"], r["interval_ms"],
              shown(r.get("beyond", "")), shown(round(r["bound_units"])) if "bound_units" in r else "", reached(r), threshold(r),
              verdict(r)] for r in beyond])]
    return text


def plain(lines, images):
    del images
    return flat(lines)


# By bench: heading, what was measured, and how its lines are shown. Other pages link to the headings.
SECTIONS = {
    "core": ("Core", """Decisions of the library a second, tables 90 % full, keys of 8 bytes, requests that pass. *Single*: one
        `weir_take` after the other. *Batch*: `weir_take_batch` with 256 requests. *Bound* and *one line*:
        [the memory bound](performance.md#the-memory-bound).""", core),
    "rules": ("Rules", """One process, one thread; a check reads the clock, looks up its attributes through a callback, finds its
        rules, fills in the key and decides. Rules are a third exact paths, a third prefixes, a third globs, with two methods each;
        keys of 100,000 users. The *core decision* is `weir_clock` and `weir_take` alone.""", plain),
    "gateway": ("Gateway", """Each contestant is an nginx (or HAProxy) with one worker on the first processor, before the same API
        server on that processor; wrk with 32 connections on the second. *Worker ns* is the processor time of the contestant's worker
        for a request. weir and limit_req are compared by [duels](performance.md#rules-of-measurement).""", gateway),
    "service": ("Services", """One worker on the first processor, the clients on the second: h2load, wrk, and for RESP
        `bench/resp_load.c`, with 32 connections and 100,000 keys. *cpu* is the processor time of the server for a command.
        [performance.md](performance.md#clients-of-the-service-bench) has the commands and the clients.""", service),
    "store": ("Store", """*strict*: weir's client of the store, one connection with 64 decisions in flight, beside redis-benchmark
        with the common Lua token bucket. Then a gateway with its agent and the API's server on the first processor, wrk and Redis on
        the second ([why Redis runs when wrk leaves it the processor](performance.md#redis-beside-its-client)). Memory is of 100,000
        counters that were used twice.""", store),
    "control": ("Rules service", """The cost of sampling hot keys and the accuracy of the list; a real `weir serve`
        with two workers: from publishing to enforcement, lists of many rules, and the dashboard in Chromium.""", plain),
    "pressure": ("Overload and queue", """A real `weir serve` before an upstream of 320 requests a second; four tenants offer
        4:2:1:1. [overload.md](overload.md#measurements) has the method. Deferred requests are kept with an fsync each; a permit is
        compared with a token.""", pressure),
    "faults": ("Store failures", """Three hosts with a real Redis, Sentinel set or cluster, 600 requests a second; the fault lasts 5 s,
        1 s with `--quick`. [reliability.md](reliability.md#method) has the method and the meaning of the columns.""", faults),
    "fleet": ("One limit on several hosts", """Leased rules: hosts (`weir serve`, one worker each), a real Redis and the load share this
        machine, so figures are ratios within a run, and rates those of the machine. Leased and local rules alternate on the same
        hosts.""", plain),
}


# ---- The page ----

def machine_text(machine):
    parts = [("processor", f"{machine['value']} × {machine['cpu']}"), ("caches", machine.get("caches", "")),
             ("memory", machine.get("memory", "")), ("system", machine.get("system", "")),
             ("large pages in shared memory", machine.get("large_pages", "")),
             *((name, version) for name, version in machine.get("versions", {}).items())]
    return table(["machine", ""], [pair for pair in parts if pair[1]])


def runs_text(runs):
    return table(["command", "date", "commit", "load before", "stolen", "took", ""], [
        [f"`{run['command']}`", run["date"], run["commit"], f"{run['load']:.1f}",
         f"{run['stolen']:.1%}".replace("%", " %") if "stolen" in run else "", f"{run['value']:,.0f} s",
         "" if run["status"] == 0 else f"**failed**, status {run['status']}"] for run in runs])


def bar_rows(lines):
    """One row for bars of the same kind and threshold, with the worst value."""
    groups = {}
    for result in (result for result in lines if "bar" in result):
        kind = (result["bench"], result.get("what", result["case"]), result["unit"], result["bar"], result.get("most", False))
        groups.setdefault(kind, []).append(result)
    for (bench, name, unit, _, most), group in groups.items():
        worst = (max if most else min)(group, key=lambda result: result["value"])
        missed = sum(not result["holds"] for result in group)
        cases = list(dict.fromkeys(result["case"].strip() for result in group))
        case = name if len(cases) > 1 or cases[0] == name else f"{cases[0]}: {name}"
        if "keys" in worst and "threads" in worst and len(group) == 1:
            case += f", {shown(worst['keys'])} keys, {worst['threads']} threads"
        holds = verdict(group[0])
        if len(group) > 1:
            case += f", worst of {len(group)}"
            holds = f"**missed** by {missed}" if missed else "holds"
        yield [bench, case, threshold(worst), f"{reached(worst)} {'' if unit == 'ratio' else HEADS.get(unit, unit)}".strip(), holds]


def render(lines, images):
    """The page as text; its plots are written into the folder `images`."""
    runs = [result for result in lines[1:] if result["bench"] == "all"]
    text = ["# Performance: results", ""]
    text += paragraph("""Generated by `./dev bench all --report` from [results.jsonl](results.jsonl), the JSON lines of the benches:
        do not edit it. [performance.md](performance.md) has the method, the meaning of the bars, the spread between runs, and other
        machines.""")
    text += machine_text(lines[0])
    text += runs_text(runs)
    if any("stolen" in run for run in runs):
        text += paragraph("*Stolen*: processor time that the hypervisor gave to other machines during the run.")
    if any("--quick" in run["command"] for run in runs):
        text += paragraph("With `--quick` rounds are fewer and shorter, so values are less exact.")
    busy = [run["of"] for run in runs if run["load"] > 2 * lines[0]["value"]]
    if busy:
        text += paragraph(f"""**The machine was busy** (load before more than twice the processors) for: {", ".join(busy)}. Times and
            bars of these are not those of a quiet machine.""")
    text += ["## Bars", ""]
    with_bar = [result for result in lines if "bar" in result]
    rows = list(bar_rows(lines))
    text += paragraph(f"{sum(result['holds'] for result in with_bar)} of {len(with_bar)} bars hold.")
    text += table(["bench", "case", "bar", "reached", ""], rows) if rows else []
    for bench, (title, introduction, tables) in SECTIONS.items():
        text += [f"## {title}", "", *paragraph(introduction)]
        own = [result for result in lines if result["bench"] == bench]
        text += [f"`{run['command']}` failed with status {run['status']}: figures are missing.\n" for run in runs
                 if run["of"] == bench and run["status"]]
        try:
            text += tables(own, images) if own else [f"Not measured here: `./dev bench {bench}`.", ""]
        except (KeyError, IndexError) as error:
            raise Malformed(f"a line of the bench {bench} lacks a parameter: {error}") from None
    return "\n".join(text).rstrip("\n") + "\n"


def write(lines):
    """Page, plots and a copy of the lines; plots that are no longer made are removed."""
    with tempfile.TemporaryDirectory() as folder:
        text = render(lines, pathlib.Path(folder))
        for old in IMAGES.glob(f"{PREFIX}*.svg"):
            old.unlink()
        for made in pathlib.Path(folder).iterdir():
            shutil.copyfile(made, IMAGES / made.name)
    PAGE.write_text(text, encoding="utf-8")
    LINES.write_text("".join(json.dumps(result, ensure_ascii=False) + "\n" for result in lines), encoding="utf-8")
