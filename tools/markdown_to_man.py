"""As much of Markdown as docs/ has, as a man page's body: headings, paragraphs, lists, code, tables, links. A table
becomes a list of its first column, since three columns of prose do not fit a terminal. What it does not know is an
error: nothing is dropped silently."""
import re

import troff

INLINE = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\(([^)]+)\)")
LIST_ITEM = re.compile(r"(-|\d+\.) (.*)")
UNKNOWN = re.compile(r"####|!\[|>|<|\* |\+ |\s+(-|\d+\.) ")
CELL = re.compile(r"(?<!\\)\|")


def inline(text, pages):
    """`pages`: by the file that a link names, the man page that has it."""
    out, at = [], 0
    for found in INLINE.finditer(text):
        code, strong, weak, link, target = found.groups()
        out.append(troff.plain(text[at:found.start()]))
        at = found.end()
        if code:
            out.append(troff.bold(code))
        elif strong:
            out.append("\\fB" + inline(strong, pages).replace("\\fR", "\\fB") + "\\fR")
        elif weak:
            out.append(f"\\fI{troff.plain(weak)}\\fR")
        elif target.split("#")[0] in pages and link.endswith(".md"):
            out.append(troff.plain(pages[target.split("#")[0]]))
        else:
            out.append(inline(link, pages))
    return "".join(out) + troff.plain(text[at:])


def table(rows, pages):
    cells = [[cell.strip().replace("\\|", "|") for cell in CELL.split(row.strip())[1:-1]] for row in rows]
    head, _, *body = cells
    out = []
    for first, *rest in body:
        out += [".TP", troff.line(inline(first, pages))]
        for number, cell in enumerate(rest):
            if not cell:
                continue
            # The first cell is the term; the others are prefixed with their column's name.
            name = f"{head[number + 1]}: ".capitalize() if number else ""
            out += [".br"] * bool(number) + [troff.line(name + inline(cell, pages))]
    return out


class Body:
    def __init__(self, text, pages):
        self.lines, self.pages, self.out = re.sub(r"<!--.*?-->\n", "", text, flags=re.S).splitlines(), pages, []
        while self.lines:
            self.block()

    def take(self, holds):
        taken = []
        while self.lines and holds(self.lines[0]):
            taken.append(self.lines.pop(0))
        return taken

    def prose(self, lines):
        return [troff.line(each) for each in inline("\n".join(each.strip() for each in lines), self.pages).splitlines()]

    def block(self):
        line = self.lines[0]
        if not line.strip():
            self.lines.pop(0)
        elif line.startswith("```"):
            self.lines.pop(0)
            self.out += troff.code(self.take(lambda each: not each.startswith("```")))
            self.lines.pop(0)
        elif line.startswith("    "):
            code = self.take(lambda each: each.startswith("    ") or not each)
            self.out += troff.code("\n".join(each[4:] for each in code).rstrip().splitlines())
        elif line.startswith("|"):
            self.out += table(self.take(lambda each: each.startswith("|")), self.pages)
        elif UNKNOWN.match(line):
            raise SystemExit(f"markdown_to_man.py: this is not known: {line}")
        elif line.startswith("#"):
            level, text = self.lines.pop(0).split(" ", 1)
            self.out.append(troff.heading("SH" if len(level) < 3 else "SS", text))
        elif LIST_ITEM.match(line):
            mark, first = LIST_ITEM.match(self.lines.pop(0)).groups()
            more = self.take(lambda each: each.startswith("  ") and not UNKNOWN.match(each))
            self.out += [r".IP \(bu 2" if mark == "-" else f".IP {mark} 4", *self.prose([first, *more])]
        else:
            self.out += [".PP", *self.prose(self.take(
                lambda each: each.strip() and each[0] not in "|#" and not each.startswith("```")
                and not LIST_ITEM.match(each) and not UNKNOWN.match(each)))]


def body(text, pages):
    return Body(text, pages).out
