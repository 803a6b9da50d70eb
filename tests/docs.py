#!/usr/bin/env python3
"""Tests of the documents: README.md and the other *.md of the root, docs/ and web/README.md.

    tests/docs.py WEIR               all; PASS, FAIL or SKIP for each, with the number of what was checked
    tests/docs.py WEIR PAGE...       only the commands of these pages

- Links to files and headings lead somewhere, and documents that sources name exist. Generated tables are up to date
  (tools/reference.py), and so is the page of results (bench/report.py).
- Metrics in alerts, the board and the documents exist, and so do the messages that the troubleshooting explains.
- packaging/container names files that exist; its services are confined.
- Every ```yaml block is accepted by weir: rules by `weir lint`, a weir.yaml by `weir serve --check`. A part of a rule
  or of a file is completed first.
- Every ```console block prints what it shows (tools/doc_examples.py), in tests/rules.
- Every ```sh block of docs/guide is run, page by page, in the order of the page, by one shell in an empty folder with
  network, /dev/shm and processes of its own. A ```text block that is the next one after it is the expected output:
  a line `...` stands for any lines, `...` in a line for any text; dates, times, numbers of 10 digits and tickets may differ.
  A yaml, csv, json or sh block that begins with a comment with a file's name ("# weir.yaml") is written to that file.

What is not run or linted says why, in a comment before the block: <!-- not run: REASON --> or <!-- not linted: REASON -->.
A test without a reason, or with a mark that is not needed, fails.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = [sys.executable, "-B"]
PAGE_SECONDS = 60
TRIES = 3 # of a page, as in tests/e2e/measured.py
sys.path.insert(0, str(ROOT / "tools"))
sys.path.append(str(ROOT / "bench"))
import reference # noqa: E402 # pylint: disable=wrong-import-position
import report as results # noqa: E402 # pylint: disable=wrong-import-position

FENCE = re.compile(r"^(?P<mark>(?:<!--(?P<comment>[^>]*)-->\n\n?)?)"
                   r"(?P<indent> *)```(?P<kind>\w*)\n(?P<text>.*?)^(?P=indent)```[ ]*$", re.M | re.S)
NAMED = re.compile(r"# ([\w./-]+\.(?:yaml|yml|csv|json|conf|py|sh|txt|js))\n")


def documents():
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "web/README.md"])


def name_of(path):
    return path.relative_to(ROOT).as_posix()


class Block:
    def __init__(self, page, found):
        self.page, self.kind = page, found["kind"]
        self.text = re.sub(rf"^{found['indent']}", "", found["text"], flags=re.M)
        self.comment = (found["comment"] or "").strip()
        self.line = page.read_text()[:found.start("kind")].count("\n") + 1
        self.where = f"{name_of(page)}:{self.line}"

    def reason(self, mark):
        """Why it is not run or linted, or None."""
        found = re.fullmatch(rf"{mark}: (.+)", self.comment, re.S)
        return " ".join(found[1].split()) if found else None


def blocks(page):
    return [Block(page, found) for found in FENCE.finditer(page.read_text())]


# ---- Results ----

FAILED = []


def report(name, wrong, what=""):
    for each in wrong:
        print(each)
    print(f"{'FAIL' if wrong else 'PASS'} {name}{': ' + what if what else ''}", flush=True)
    FAILED.extend(wrong)


# ---- Links ----

def without_code(text):
    return re.sub(r"(?<!`)`[^`\n]+`", "", FENCE.sub("", text))


def slug(heading):
    """The anchor of a heading, as GitHub and the site make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def anchors(path):
    text, found = FENCE.sub("", path.read_text()), []
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        one = slug(heading)
        found.append(one if one not in found else next(f"{one}-{n}" for n in range(1, 99) if f"{one}-{n}" not in found))
    return set(found) | set(re.findall(r'<a id="([^"]+)"', text))


def check_links():
    wrong, count, known = [], 0, {}
    for page in documents():
        text = without_code(page.read_text())
        targets = re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
        for target in targets:
            if re.match(r"[a-z]+:", target):
                continue
            count += 1
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                wrong.append(f"{name_of(page)}: the link {target} leads nowhere")
            elif anchor and file.suffix == ".md" and anchor not in known.setdefault(file, anchors(file)):
                wrong.append(f"{name_of(page)}: {name_of(file)} has no heading #{anchor}")
    report("links", wrong, f"{count} links in {len(documents())} documents")


def check_mentions():
    """Documents that sources, scripts and examples name exist."""
    folders = ("src", "nginx", "include", "lua", "tests", "tools", "packaging", "examples", "web", "bench", "fuzz")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*"))
             if path.is_file() and path.suffix not in (".md", ".pyc", ".png") and "corpus" not in path.parts]
    wrong, count = [], 0
    for file in [*files, ROOT / "Makefile", ROOT / "dev", ROOT / "mkdocs.yml"]:
        name = name_of(file)
        for path in re.findall(r"\bdocs/[\w./-]+\.(?:md|svg|png)\b", file.read_text(errors="replace")):
            count += 1
            if not (ROOT / path).exists():
                wrong.append(f"{name}: there is no {path}")
    report("mentions", wrong, f"{count} in sources, scripts and examples")


def check_reference():
    done = subprocess.run([*PYTHON, ROOT / "tools/reference.py", "--check"], capture_output=True, text=True, check=False)
    report("generated tables", [done.stderr.strip()] if done.returncode else [], f"{len(reference.TABLES)} tables")


def check_metrics():
    """Names that end in _total are metrics; in alerts and the board all names are."""
    known = {name for name, *_ in reference.metrics_found()} | {"weir_check_seconds" + end for end in ("_bucket", "_sum", "_count")}
    used = {}
    for page in documents():
        if page.name != "CHANGELOG.md":
            for name in re.findall(r"\bweir_[a-z_]+_total\b", page.read_text()):
                used.setdefault(name, name_of(page))
    for path in (ROOT / "packaging/prometheus/weir.rules.yml", ROOT / "packaging/grafana/weir.json"):
        for name in re.findall(r"\b(weir_[a-z_]+[a-z])(?=[\s{\[)\\]|$)", path.read_text()):
            used.setdefault(name, name_of(path))
    report("metrics", [f"{where}: there is no metric {name}" for name, where in used.items() if name not in known],
           f"{len(known) - 3} exist, {len(used)} are used")


def check_container(weir):
    """The files that packaging/container names exist, each service is confined, has a health check and a pinned image, and
    weir accepts its weir.yaml. ./dev test container runs all of it."""
    folder = ROOT / "packaging/container"
    compose, wrong = (folder / "compose.yaml").read_text(), []
    named = [folder / path for path in re.findall(r"(\.{1,2}/[\w./-]+):/", compose)]
    named += [ROOT / path.lstrip("!") for path in (ROOT / ".dockerignore").read_text().splitlines() if path.startswith("!")]
    for words in re.findall(r"^COPY (?!--from)(.+)$", (folder / "Containerfile").read_text(), re.M):
        named += [ROOT / path for path in words.split()[:-1]]
    wrong += [f"packaging/container: there is no {name_of(path.resolve())}" for path in named if not path.exists()]
    services = re.findall(r"^  (\w+):\n((?:(?:    .*)?\n)+)", compose.partition("\nservices:\n")[2].partition("\nnetworks:")[0], re.M)
    for service, body in services:
        for needed in (r"<<: \*confined$", r"healthcheck:", r"image: (?:docker\.io/[\w/]+:v?\d[\w.-]*|localhost/weir)$"):
            if not re.search(rf"^    {needed}", body, re.M):
                wrong.append(f"packaging/container/compose.yaml: {service} has no {needed}")
    done = subprocess.run([weir, "lint", folder / "weir/weir.yaml"], capture_output=True, text=True, check=False)
    wrong += [done.stdout + done.stderr] if done.returncode else []
    report("container", wrong, f"{len(named)} files, {len(services)} services")


def check_texts():
    """Each text of a message that begins an item of the troubleshooting is in the sources, part by part between its …"""
    literals = [reference.PLACEHOLDER.sub("…", reference.NGINX_PLACEHOLDER.sub("…", reference.unquoted(literal)))
                for folder in ("src", "nginx", "include") for path in sorted((ROOT / folder).rglob("*.[ch]"))
                for literal in re.findall(reference.LITERAL, reference.source(path))]
    page = ROOT / "docs/guide/troubleshooting.md"
    wrong, texts = [], re.findall(r"^- `([^`]+)`:", page.read_text(), re.M)
    for text in (" ".join(each.split()) for each in texts):
        pieces = [piece for piece in (each.strip(" .:;(") for each in re.split("…", text)) if len(piece) > 3]
        if not pieces or not any(all(piece in literal for piece in pieces) for literal in literals):
            wrong.append(f"{name_of(page)}: no source has the text `{text}`")
    report("texts of messages", wrong, f"{len(texts)} in {name_of(page)}")


def check_diagrams(weir):
    """docs/images has what docs/diagrams draws; those of terminal sessions differ from run to run."""
    wrong, count = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for script in sorted((ROOT / "docs/diagrams").glob("*.py")):
            if "from svg import" in script.read_text():
                subprocess.run([*PYTHON, script, weir.parent / "libweir.so"], env={**os.environ, "WEIR_IMAGES": folder}, check=True,
                               stdout=subprocess.DEVNULL)
        for made in sorted(pathlib.Path(folder).iterdir()):
            count += 1
            image = ROOT / "docs/images" / made.name
            if not image.exists() or image.read_bytes() != made.read_bytes():
                wrong.append(f"{name_of(image)} is not what docs/diagrams draws: run make diagrams")
    report("diagrams", wrong, f"{count} drawn")


def check_results():
    """docs/internals/results.md and its plots are what bench/report.py makes of results.jsonl."""
    wrong, count = [], 0
    again = "is not what docs/internals/results.jsonl gives: ./dev bench all --report --from docs/internals/results.jsonl"
    try:
        lines = results.read(results.LINES)
        count = len(lines)
        with tempfile.TemporaryDirectory() as folder:
            if results.render(lines, pathlib.Path(folder)) != results.PAGE.read_text():
                wrong.append(f"{name_of(results.PAGE)} {again}")
            made, there = ({path.name: path.read_bytes() for path in each.glob(f"{results.PREFIX}*.svg")}
                           for each in (pathlib.Path(folder), results.IMAGES))
            wrong += [f"docs/images/{name} {again}" for name in sorted({*made, *there}) if made.get(name) != there.get(name)]
    except (results.Malformed, OSError) as error:
        wrong.append(f"{name_of(results.LINES.parent)}: {error}")
    report("results", wrong, f"{count} lines of measurements")


# ---- YAML ----

SETTINGS = {"gateway", "service", "store", "admin", "load", "queue", "notify", "segment", "hot_keys", "denials", "workers", "user",
            "agent_user", "host", "metrics", "log", "access_log", "denied_log", "rules_db", "state"}
RULE_FIELDS = set(re.findall(r"^\| `(\w+)` ", reference.rules(), re.M))
GATEWAY = "\ngateway: { listen: 127.0.0.1:8080, upstreams: [http://127.0.0.1:9000] }\n"
RULE = "{ name: filler, key: 'ip:${client_ip}', limit: 1, window: 1s }"
FOLDERS = {"/etc/weir": "etc", "/var/lib/weir": "state", "/var/log": "log", "/run/weir": "run"}


def members(text):
    return re.findall(r"^([a-z_]+):", text, re.M)


def certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "9",
                    "-subj", "/CN=localhost", "-keyout", folder / "made.key", "-out", folder / "made.pem"], check=True, capture_output=True)


def put_files(text, folder, made):
    """The files that a weir.yaml names: certificates, secrets, plans and rules."""
    for name in set(re.findall(r"[\w./-]+\.(?:pem|crt|key|password|token|secret|csv|yaml|yml)\b|\brules\.d/?|\brules/(?=\s|$)", text)):
        path = folder / name
        if not path.is_relative_to(folder):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith((".pem", ".crt")) or name.endswith(".key"):
            source = "made.key" if "key" in path.stem or name.endswith(".key") else "made.pem"
            path.write_bytes((made / source).read_bytes())
            path.chmod(0o600)
        elif name.endswith((".password", ".token", ".secret")):
            path.write_text("a-secret-of-many-characters\n")
            path.chmod(0o600)
        elif name.endswith(".csv"):
            path.write_text("k-1,pro\n")
        elif name.endswith("/") or name.endswith(".d"):
            path.mkdir(exist_ok=True)
            (path / "filler.yaml").write_text(f"rules: [{RULE}]\n")
        elif not path.exists():
            path.write_text(f"rules: [{RULE}]\n")


def completed(text):
    """(kind, text): a rule file or a weir.yaml, from a part of one if it is one."""
    text = textwrap.dedent(text)
    names = members(text)
    if "domain" in names or "domains" in names:
        return "rules", text
    elsewhere = re.search(r"^rules: +[\w./]|^rules: *(?:#.*)?\n(?: *#.*\n)* +[a-z]", text, re.M) # a path, a URL or a map
    if SETTINGS & set(names) or elsewhere:
        if "rules" not in names and not ("admin" in names and not {"identity", "response"} & set(names)):
            text += f"\nrules: [{RULE}]\n"
        return "weir.yaml", text + ("" if {"gateway", "service"} & set(names) else GATEWAY)
    if "rules" in names:
        return "rules", text
    if {"identity", "allow", "block", "response", "normalize"} & set(names) and not {"limit", "limits", "key", "name"} & set(names):
        return "rules", f"{text}\nrules: [{RULE}]\n"
    if re.match(r"(?:#.*\n)*- ", text):
        return "rules", "rules:\n" + re.sub(r"^", "  ", text, flags=re.M)
    if names and set(names) <= RULE_FIELDS:
        missing = {"name": "filler"} | ({} if "limits" in names else {"limit": "9", "window": "1m"})
        more = "".join(f"{name}: {value}\n" for name, value in missing.items() if name not in names)
        return "rules", "rules:\n  -\n" + re.sub(r"^", "    ", text.rstrip("\n") + "\n" + more, flags=re.M)
    return None, text


def lint(weir, block, made):
    """An error, or None."""
    kind, text = completed(block.text)
    if not kind:
        return "this is neither a weir.yaml nor rules; if it is for another program, mark it <!-- not linted: … -->"
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for path, inner in FOLDERS.items():
            text = text.replace(path, f"{folder}/{inner}")
            (folder / inner).mkdir()
        put_files(text.replace(f"{folder}/", ""), folder, made)
        file = folder / "checked.yaml"
        file.write_text(text)
        file.chmod(0o600)
        if kind == "weir.yaml":
            if "segment" not in members(text):
                file.write_text(f"{text}\nsegment: {{ path: {folder}/segment, size: 64MiB }}\n")
            if "state" not in members(text):
                file.write_text(f"{file.read_text()}\nstate: {folder}/state\n")
        command = ["serve", "--check"] if kind == "weir.yaml" else ["lint"]
        done = subprocess.run([weir, *command, file], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
        return None if done.returncode == 0 else (done.stdout + done.stderr).strip()


def check_yaml(weir):
    found = [block for page in documents() for block in blocks(page) if block.kind == "yaml"]
    wrong, left = [], []
    with tempfile.TemporaryDirectory() as made, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        certificate(pathlib.Path(made))
        linted = [block for block in found if not block.reason("not linted")]
        for block, error in zip(linted, pool.map(lambda each: lint(weir, each, pathlib.Path(made)), linted)):
            wrong += [f"{block.where}: {error}"] if error else []
    for block in found:
        if block.reason("not linted"):
            left.append(block)
            if completed(block.text)[0]:
                wrong.append(f"{block.where}: is marked as not linted, but it is weir's")
    report("yaml", wrong, f"{len(found) - len(left)} blocks accepted by weir, {len(left)} of other programs")


# ---- Commands ----

# In namespaces of its own: network, mounts (/dev/shm is empty) and processes, which end with the shell. Without root it is
# also a user namespace, inside of which the user is the same.
ENTER = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]),
         "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
# As root, also the state folder.
STATE = "mkdir -p /var/lib/weir && mount -t tmpfs state /var/lib/weir && " if os.geteuid() == 0 else ""
PREPARE = f"mount -t tmpfs shm /dev/shm && chmod 1777 /dev/shm && {STATE}ip link set lo up && exec "
LEAVE = "" if os.geteuid() == 0 else f"unshare --map-user={os.geteuid()} --map-group={os.getegid()} "
END = "end of block"


VOLATILE = (
    (r"\x1b\[[\d;]*m", ""),
    (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", "DATE"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?", "TIME"),
    (r"\b\d\d:\d\d:\d\d\b", "TIME"),
    (r"\b\d{10}\b", "TIME"),
    (r"\b[0-9a-f]{32}\b", "TICKET"),
)


def volatile(text):
    """Without what differs from run to run."""
    for pattern, shown in VOLATILE:
        text = re.sub(pattern, shown, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def matches(expected, got):
    pattern = []
    for line in volatile(expected).splitlines():
        pattern.append(r"(?:.*\n)*?" if line.strip() == "..." else ".*".join(map(re.escape, line.split("..."))) + r"\n")
    return re.fullmatch("".join(pattern), volatile(got) + "\n")


def script_of(found):
    """The shell's script: each block's output ends with a line END, its number and the status of a command that failed."""
    lines = ["exec 2>&1", "trap 'docs_error=$?' ERR"]
    for number, block in enumerate(found):
        name = NAMED.match(block.text)
        if name and (block.kind != "sh" or "\n" in block.text.removeprefix(name[0]).strip()) and not block.reason("not run"):
            quoted = block.text.removeprefix(name[0]) if block.kind == "json" else block.text # JSON has no comments
            folder = pathlib.PurePath(name[1]).parent
            lines += [f"mkdir -p {folder}", f"cat >{name[1]} <<'{END}'", quoted.rstrip("\n"), END]
            lines += [f"chmod 600 {name[1]}"] if name[1] == "weir.yaml" else []
        elif block.kind == "sh" and not block.reason("not run"):
            lines += ["docs_error=0", block.text.rstrip("\n"), f"echo; echo '{END}' {number} $docs_error"]
    return "\n".join(lines) + "\n"


def shell(weir, text):
    """What a script prints, in an empty folder with network, /dev/shm and processes of its own, and weir on the PATH."""
    with tempfile.TemporaryDirectory(prefix="weir-docs-") as scratch:
        os.chmod(scratch, 0o755)
        script, output, folder = (pathlib.Path(scratch) / name for name in (".script", ".output", "empty"))
        script.write_text(text)
        folder.mkdir()
        (folder / "examples").symlink_to(ROOT / "examples")
        env = {"PATH": f"{weir.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder),
               "LANG": "C.UTF-8", "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100", "EDITOR": "true",
               "WEIR_MODULES": str(weir.parent / "nginx")}
        with output.open("w", encoding="utf-8") as file:
            try:
                subprocess.run([*ENTER, "sh", "-c", f"{PREPARE}{LEAVE}bash {script}"], cwd=folder, env=env, timeout=PAGE_SECONDS,
                               stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, check=False)
            except subprocess.TimeoutExpired:
                pass
        return output.read_text(encoding="utf-8", errors="replace")


def run_page(weir, page):
    """(what is wrong, blocks that were run, blocks that were not)"""
    found = [block for block in blocks(page) if block.kind]
    runs = [number for number, block in enumerate(found) if block.kind == "sh" and not block.reason("not run")
            and not (NAMED.match(block.text) and "\n" in block.text.removeprefix(NAMED.match(block.text)[0]).strip())]
    left = [block for block in found if block.kind == "sh" and block.reason("not run")]
    if not runs:
        return [], 0, left
    got = shell(weir, script_of(found))
    wrong, at = [], 0
    for number in runs:
        block = found[number]
        ended = re.compile(rf"^{END} {number} (\d+)\n", re.M).search(got, at)
        if not ended:
            wrong.append(f"{block.where}: the commands did not end within {PAGE_SECONDS} s, or ended the shell; so far:\n{got[at:]}")
            break
        printed = got[at:ended.start()].removesuffix("\n")
        at = ended.end()
        shown = found[number + 1] if number + 1 < len(found) and found[number + 1].kind == "text" else None
        if shown and not matches(shown.text, printed):
            wrong.append(f"{block.where}: expected\n{shown.text}--- but got\n{printed}")
        elif not shown and ended[1] != "0":
            wrong.append(f"{block.where}: a command's exit status is {ended[1]}\n{printed}")
    return wrong, len(runs) - len(wrong), left


def check_commands(weir, pages):
    pages = [page for page in pages if any(block.kind == "sh" for block in blocks(page))]
    total = 0
    with concurrent.futures.ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool: # they mostly wait
        for page, (wrong, run, left) in zip(pages, pool.map(lambda each: run_page(weir, each), pages)):
            for block in left:
                print(f"SKIP {block.where}: {block.reason('not run')}")
            for _ in range(TRIES - 1): # beside others, a reload or a start may take longer than a page waits for it
                if wrong:
                    print("\n".join([f"AGAIN {name_of(page)}: {wrong[0].splitlines()[0]}", *wrong[0].splitlines()[1:]]))
                    wrong, run, left = run_page(weir, page)
            total += run
            report(name_of(page), wrong, f"{run} blocks run, {len(left)} not run")
    print(f"{total} blocks of commands run in {len(pages)} pages")


def check_marks():
    """Marks that this script does not know, or that are not before a block they are for."""
    wrong = []
    for page in documents():
        marks = {"yaml": "not linted", "sh": "not run", "console": "not run"}
        known = {block.comment for block in blocks(page) if block.kind in marks and block.reason(marks[block.kind])}
        prose = re.sub(r"(?<!`)`[^`\n]+`", "", FENCE.sub(lambda m: m["mark"], page.read_text()))
        for comment in re.findall(r"<!--(.*?)-->", prose, re.S):
            comment = comment.strip()
            if comment not in known and not re.fullmatch(r"generated: \w+|end of generated", comment):
                wrong.append(f"{name_of(page)}: what is <!-- {comment} -->? tests/docs.py knows 'not run: REASON' before ```sh and ```console, "
                             "'not linted: REASON' before ```yaml")
    report("marks", wrong)


def check_json():
    found = [block for page in documents() for block in blocks(page) if block.kind == "json" and "…" not in block.text]
    wrong = []
    for block in found:
        try:
            json.loads(NAMED.sub("", block.text, count=1))
        except ValueError as error:
            wrong.append(f"{block.where}: {error}")
    report("json", wrong, f"{len(found)} blocks are JSON")


def check_examples(weir):
    for page in documents():
        found = [block for block in blocks(page) if block.kind == "console"]
        for block in found:
            if block.reason("not run"):
                print(f"SKIP {block.where}: {block.reason('not run')}")
        if any(not block.reason("not run") for block in found):
            done = subprocess.run([*PYTHON, ROOT / "tools/doc_examples.py", page, weir, ROOT / "tests/rules"], timeout=120,
                                  capture_output=True, text=True, check=False)
            report(f"examples of {name_of(page)}", [done.stdout + done.stderr] if done.returncode else [])


def main():
    weir = pathlib.Path(sys.argv[1]).resolve()
    pages = [pathlib.Path(each).resolve() for each in sys.argv[2:]]
    if not pages:
        check_links()
        check_mentions()
        check_reference()
        check_metrics()
        check_container(weir)
        check_texts()
        check_diagrams(weir)
        check_results()
        check_marks()
        check_yaml(weir)
        check_json()
        check_examples(weir)
        pages = sorted((ROOT / "docs/guide").glob("*.md"))
    check_commands(weir, pages)
    sys.exit(1 if FAILED else 0)


if __name__ == "__main__":
    main()
