#!/usr/bin/env python3
"""Draws docs/images/session.svg, the terminal session of README.md: docs/diagrams/session.py [WEIR]

The commands run as they are shown, in a folder of their own; lines of output that `CUT` matches are left out.
"""
import html
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
sys.dont_write_bytecode = True
import docs # noqa: E402 # pylint: disable=wrong-import-position

# (what is shown, what runs if that differs)
SESSION = [
    ("weir init", None),
    ("weir serve &", "{ python3 examples/demo_api.py 9000 & weir serve >log 2>&1 & } ; "
                     "curl -s --retry 9 --retry-connrefused -o /dev/null http://127.0.0.1:8080/hello/1; grep -m 2 'weir: ' log"),
    ("curl -so /dev/null -w '%{http_code} ' -d x '127.0.0.1:8080/login?[1-6]'", None),
    ("curl -si -d x 127.0.0.1:8080/login", None),
    ("weir why 127.0.0.1", None),
    ("weir key block ip:127.0.0.1 --for 1h --reason scraping", None),
]
CUT = re.compile(r"Server:|Date:|Content-|Connection:|Cache-Control:|X-RateLimit-Re[st]|^\(weir lint|^\{\"error")
MARK = "end of command"
STYLE = """
rect{fill:#fbfbfd;stroke:#cbd2da}text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#24292f;white-space:pre}
.command{fill:#0550ae;font-weight:600}.deny{fill:#b42318}.allow{fill:#15803d}
text{animation:appear .2s both}@keyframes appear{from{opacity:0}}
@media (prefers-reduced-motion:reduce){text{animation:none}}
@media print{text{animation:none}}
@media (prefers-color-scheme:dark){rect{fill:#15181d;stroke:#3b424c}text{fill:#d6dbe1}.command{fill:#8ab4ff}.deny{fill:#ff9a8a}.allow{fill:#6fdc8c}}
"""


def lines_of(weir):
    script = "exec 2>&1\n" + "".join(f"{runs or shown}\necho; echo '{MARK}'\n" for shown, runs in SESSION)
    parts = docs.shell(weir, script).split(MARK + "\n")
    if len(parts) != len(SESSION) + 1:
        sys.exit(f"the session did not end: {parts[-1]}")
    for (shown, _), output in zip(SESSION, parts):
        yield "command", f"$ {shown}"
        for line in output.replace("\r", "").rstrip("\n").splitlines():
            if line.strip() and not CUT.search(line):
                yield "deny" if re.search(r" 429 Too| denied | blocked ", line) else "", re.sub(r"^\S+ \S+ (?=weir: )", "", line)


def main():
    lines = list(lines_of(pathlib.Path(sys.argv[1] if sys.argv[1:] else ROOT / "build/gcc/weir").resolve()))
    width = 28 + max(len(text) for _, text in lines) * 7.85
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {24 + 19 * len(lines)}" role="img">',
           "<title>weir in a terminal: six log-ins, the sixth is denied, and why</title>", f"<style>{STYLE}</style>",
           '<rect x=".5" y=".5" width="99.9%" height="99.7%" rx="8"/>']
    seconds = 0
    for number, (kind, text) in enumerate(lines):
        shown = re.sub(r"\b429 ?$", '<tspan class="deny">429</tspan>', html.escape(text, quote=False))
        seconds += 0.5 if kind == "command" and number else 0.04
        out.append(f'<text class="{kind}" x="14" y="{26 + 19 * number}" style="animation-delay:{seconds:.2f}s">{shown}</text>')
    (ROOT / "docs/images/session.svg").write_text("\n".join(out) + "\n</svg>\n")
    print("\n".join(text for _, text in lines))


main()
