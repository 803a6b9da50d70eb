"""The help texts of the weir command, parsed: its commands, their own commands and all options. Man page and completion are
made of it, so that neither can say anything else.

    usage: weir top [--once [--json]] [FILE]      usage: the first lines
    Shows what …                                  prose begins at the margin
      --interval TIME   between two looks         an item: two to six spaces, then two or more before what it means
                        (default 1s)              and that goes on far from the margin
"""
import re
import subprocess
from typing import NamedTuple

ITEM = re.compile(r" {2,6}(\S.*?)(?: {2,}(\S.*))?$")
CONTINUED = re.compile(r" {7,}(\S.*)$")
# A value stands one space behind its option; what it means, or another part of the usage, does not look like one.
OPTION = re.compile(r"--([a-z][a-z-]*)(?: ('[^']*'|[^\s\[\](){}|-][^\s\[\](),]*))?")


class Help(NamedTuple):
    words: tuple    # ("rules", "apply")
    summary: str    # its line in `weir help`; empty for a subcommand of a command
    usage: list     # lines
    blocks: list    # between empty lines: lists of (term, text); a term of None is prose
    inner: list     # its own commands, each a Help

    def options(self):
        """By name: its values as usage and terms have them, or else as the rest has; none if it takes none."""
        items = [item for block in self.blocks for item in block if item[0] is not None]
        found = {"help": []}
        for line in self.usage + [term for term, _ in items]:
            for name, value in OPTION.findall(line):
                found.setdefault(name, []).extend([value] if value else [])
        for _, text in items:
            for name, value in OPTION.findall(text):
                found.setdefault(name, [value] if value else [])
        return found


def said(weir, *words):
    done = subprocess.run([weir, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20,
                          check=False)
    if done.returncode != 0 or not done.stdout:
        raise SystemExit(f"weir {' '.join(words)}: exit code {done.returncode}, {done.stderr}")
    return done.stdout.splitlines()


def read_blocks(lines):
    blocks = [[]]
    for line in lines:
        block = blocks[-1]
        item, more = ITEM.match(line), CONTINUED.match(line)
        if not line:
            blocks.append([])
        elif more and block and block[-1][0] is not None:
            block[-1] = (block[-1][0], f"{block[-1][1]} {more[1]}".strip())
        elif item:
            block.append((item[1], item[2] or ""))
        elif line[0] != " ":
            block.append((None, line))
        else:
            raise SystemExit(f"command_help.py: what is this line of a help text? '{line}'")
    return [block for block in blocks if block]


def read(weir, words, summary=""):
    lines = said(weir, *words, "--help")
    usage = []
    while lines and (lines[0].startswith("usage: ") or usage and lines[0].startswith("       ")):
        usage.append(lines.pop(0)[7:])
    blocks = read_blocks(lines)
    inner = []
    if usage and " COMMAND" in usage[0]:
        names = [term.split()[0] for term, _ in blocks[1]]
        inner = [read(weir, (*words, name)) for name in names]
    return Help(tuple(words), summary, usage, blocks, inner)


def commands(weir):
    """Title, usage and all commands, in the order of `weir help`."""
    title, _, usage, _, *rest = said(weir, "help")
    found = [line.split(None, 1) for line in rest]
    # These two have no options.
    return (title, usage.removeprefix("usage: "),
            [Help((name,), text, [], [], []) if name in ("help", "version") else read(weir, (name,), text)
             for name, text in found])
