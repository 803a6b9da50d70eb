#!/usr/bin/env python3
"""Checks names and words: nothing is defined twice, and the vocabulary is that of docs/glossary.md.

    tools/check_names.py            check
    tools/check_names.py --report   count what is left of retired words, by folder
    tools/check_names.py --lower    write the present counts to tools/names_allowed.json, if none of them is higher

What tools/names_allowed.json lists is tolerated for now. Its counts may only fall: a count that is higher than listed
fails, and so does one that is lower, until it is lowered there too.
"""
import collections
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALLOWED = ROOT / "tools/names_allowed.json"
DOC_COLUMNS = 110

# Words that identifiers must not contain, as a part between underscores, and the field's term for each.
RETIRED = {
    "usual": "fast path, baseline", "quick": "fast", "brief": "fast path", "glance": "read, fast path", "whole": "expiry",
    "spread": "salt", "grain": "chunk", "grains": "chunks", "pin": "hazard pointer", "pins": "hazard pointers",
    "crowd": "overflow count", "loaded": "ruleset snapshot", "trial": "evaluation", "speech": "header template",
    "spoken": "header template", "ask": "op, request", "asks": "ops", "asked": "sent", "asking": "request",
    "question": "request", "questions": "requests", "answer": "reply, result", "answers": "replies", "guide": "topology",
    "greet": "handshake", "greeted": "handshake", "ghost": "orphan", "ghosts": "orphans", "far": "remote", "away": "unavailable",
    "book": "ledger", "booked": "recorded", "denials": "negative cache", "held": "permits, integral", "law": "controller",
    "laws": "controllers", "senses": "signals", "sensor": "sampler", "sight": "snapshot", "looker": "open_host",
    "figures": "stats", "noting": "hot-key sampler", "noted": "sampled", "panel": "sketch", "panels": "sketches", "tally": "rule_stats",
    "tallies": "rule_stats", "stripe": "shard", "stripes": "shards", "teller": "heartbeat sender", "told": "reported, sent",
    "tell": "report, send, format", "tells": "reports", "telling": "sending", "heard": "received", "followers": "subscribers",
    "follower": "subscriber", "fleet": "membership", "keeper": "agent threads", "companion": "agent process", "journal": "log",
    "say": "log", "says": "log", "said": "logged", "complain": "rate-limited log", "beside": "sidecar", "wish": "signal action",
    "retrieve": "rules poller", "retrieved": "polled", "turn": "fair lock", "guess": "login throttle", "guesses": "attempts",
    "desk": "queue admin", "errand": "job", "errands": "jobs", "drain": "dispatcher", "tend": "poll timers", "withdrawn": "in doubt",
    "words": "suggest", "vary": "scaled limit", "varied": "scaled", "pressure": "overload", "parts": "internal",
    "twin": "duplicate", "twins": "duplicates", "nonce": "ABA tag", "lookalike": "duplicate", "force": "effective, published",
}
# Identifiers that come from elsewhere or mean something else.
FOREIGN = re.compile(r"^(ngx_(?!http_weir|stream_weir|weir)|sqlite3_|SSL_|curl_|CURL|MHD_|json_|yaml_|pcre2_|redis[A-Z]|PQ|XXH|envoy__|google__|grpc__|"
                     r"ratelimit__|pthread_|SCMP|O_|F_|S_|E[A-Z]+$|NOLINT|content_handler|NGX_|_mm|__m)")
# Phrases that comments, texts and documents must not contain. Case does not matter.
PHRASES = [
    "whoever", "quick way", "short way", "long way", "slow way", "usual way", "at a glance", "thorough look", "in force", "give back",
    "gives back", "given back", "giving back", "gave back", "is told", "are told", "was told", "be told", "tells", "is asked", "are asked",
    "is away", "is back", "write down", "written down", "writes down", "the usual", "somebody", "nobody",
]


def sources():
    return sorted(p for folder in ("src", "nginx", "include") for p in (ROOT / folder).rglob("*.[ch]"))


def tests():
    """C of the tests: their words are checked, but not whether a name is defined twice, as each test is its own program."""
    folders = [ROOT / "tests/unit", ROOT / "tests/stress"]
    return sorted([*(ROOT / "tests").glob("*.h"), *(p for folder in folders for p in folder.rglob("*.[ch]"))])


def without_comments(text):
    """Code alone: comments and the contents of strings become blanks; lines stay where they are."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m[0]) if m[0][0] == "/" else m[0][0] + m[0][0], text)


def place(path):
    """The folder whose count an occurrence belongs to."""
    parts = path.relative_to(ROOT).parts
    depth = {"src": 2, "nginx": 2, "tests": 3}.get(parts[0], 1)
    return "/".join(parts[:min(depth, len(parts) - 1)])


def duplicates(files):
    tags, macros, functions = (collections.defaultdict(list) for _ in range(3))
    for path, text in files.items():
        code = without_comments(text)
        name = path.relative_to(ROOT).as_posix()
        for kind, tag in re.findall(r"\b(struct|union|enum)\s+(\w+)\s*(?:__attribute__\(\(.*?\)\)\s*)?\{", code):
            tags[f"{kind} {tag}"].append(name)
        for macro in set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", code, re.M)):
            if path.suffix == ".h" and not macro.startswith(("_", "XXH_")):
                macros[macro].append(name)
        for function in re.findall(r"^(?!static|extern|typedef|[A-Z]+\b)[A-Za-z_][\w \t*]*?\b(\w+)\([^;{}()]*\)\s*\{", code, re.M):
            functions[function].append(name)
    for kind, found in (("tag", tags), ("macro", macros), ("function", functions)):
        for what, where in sorted(found.items()):
            if len(set(where)) > 1:
                yield f"{kind} {what} is defined in {', '.join(where)}"


PHRASE = re.compile(r"\b(" + "|".join(PHRASES) + r")\b", re.I)


def documents():
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "web/README.md"])


def retired(files):
    """Counts of retired words in identifiers, and of phrases in comments and texts, by folder."""
    counts = collections.Counter()
    for path, text in files.items():
        for identifier in re.findall(r"[A-Za-z_]\w+", without_comments(text)):
            if FOREIGN.match(identifier):
                continue
            for part in identifier.lower().split("_"):
                if part in RETIRED:
                    counts[f"{place(path)}: {part}"] += 1
        flat = re.sub(r"\s*\n\s*\*?\s*", " ", text.replace('"nobody"', '""')) # the user of that name
        for found in PHRASE.findall(flat):
            counts[f"{place(path)}: '{found.lower()}'"] += 1
    return counts


def retired_in_documents():
    """Counts of phrases in documents, by file; without inline code, program output and the changelog's table of names."""
    counts = collections.Counter()
    for path in documents():
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if name == "docs/glossary.md":
            continue
        if name == "CHANGELOG.md":
            text = re.sub(r"^\|.*\n", "", text, flags=re.M)
        text = re.sub(r"^```(?:console|text)\n.*?^```$", "", text, flags=re.M | re.S)
        text = re.sub(r"(?<!`)`[^`]+`", "", text)
        for found in PHRASE.findall(" ".join(text.split())):
            counts[f"{name}: '{found.lower()}'"] += 1
    return counts


def long_lines():
    """Counts lines of documents that are too long; program output (```console) is as long as it is."""
    counts = collections.Counter()
    for path in documents():
        text = re.sub(r"^```(?:console|text)\n.*?^```$", "", path.read_text(), flags=re.M | re.S)
        long = sum(len(line) > DOC_COLUMNS for line in text.splitlines())
        if long:
            counts[f"{path.relative_to(ROOT).as_posix()}: lines over {DOC_COLUMNS} columns"] = long
    return counts


def main():
    files = {path: path.read_text() for path in sources()}
    if not files:
        sys.exit("no sources found")
    twice = list(duplicates(files))
    counts = retired(files | {path: path.read_text() for path in tests()}) + retired_in_documents() + long_lines()
    allowed = json.loads(ALLOWED.read_text())
    if sys.argv[1:] == ["--report"]:
        by_folder = collections.Counter()
        for what, count in counts.items():
            by_folder[what.split(":")[0]] += count
        for folder, count in by_folder.most_common():
            print(f"{count:6} {folder}")
        print("\n".join(twice))
        return
    wrong = [f"{what}: {counts[what]}, at most {allowed['counts'].get(what, 0)} allowed" for what in sorted(counts)
             if counts[what] > allowed["counts"].get(what, 0)]
    wrong += [f"defined twice: {what}" for what in twice if what not in allowed["twice"]]
    if sys.argv[1:] == ["--lower"] and not wrong:
        ALLOWED.write_text(json.dumps({"twice": twice, "counts": dict(sorted(counts.items()))}, indent=1) + "\n")
        return
    lower = [what for what, count in allowed["counts"].items() if counts[what] < count]
    lower += [what for what in allowed["twice"] if what not in twice]
    if lower:
        wrong.append(f"{len(lower)} counts are lower than tools/names_allowed.json lists (first: {lower[0]}): run tools/check_names.py --lower")
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


main()
