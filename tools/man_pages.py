#!/usr/bin/env python3
"""Writes the man pages: man_pages.py WEIR DOCS FOLDER

weir(1) is what `weir help` and `weir COMMAND --help` print; the others are pages of docs/: see PAGES.
"""
import pathlib
import re
import sys

import command_help
import markdown_to_man
import troff

# page: document, what it is about, the others; PARTS: further documents of a page
PAGES = {
    "weir.yaml": ("reference/weir-yaml.md", "configuration of weir's gateway and service", "weir(1), weir-rules(5), nginx(8)"),
    "weir-rules": ("reference/rules.md", "the language of weir's rules", "weir(1), weir.yaml(5)"),
    "weir-nginx": ("reference/nginx.md", "directives and variables of weir's nginx module", "weir(1), weir-rules(5), nginx(8)"),
    "weir-errors": ("reference/errors.md", "errors and warnings of weir", "weir(1), weir.yaml(5), weir-rules(5)"),
}
PARTS = {"weir.yaml": ("reference/serve.md",),
         "weir-rules": ("reference/identity.md", "reference/responses.md", "reference/descriptors.md"),
         "weir-nginx": ("reference/nginx-queue.md", "reference/nginx-logs.md")}
SEE_ALSO = [".PP", "Pages that are named here with .md are in share/doc/weir/docs of the place where weir is installed."]


def prose(text):
    """Formats a help text: options are bold, and documents that are man pages are named as such."""
    for page, (document, *_) in PAGES.items():
        text = text.replace(f"docs/{document}", f"{page}(5)")
    parts = re.split(r"((?<![\w-])--[a-z][a-z-]*)", text)
    return "".join(troff.bold(part) if at % 2 else troff.plain(part) for at, part in enumerate(parts))


def of_block(block):
    out, last = [], ""
    for term, text in block:
        if term is not None:
            out += [".TP", troff.line(troff.bold(term))] + ([troff.line(prose(text))] if text else [])
        else:
            out += ([".PP"] if last is not None else []) + [troff.line(prose(text))]
        last = term
    return out


def of_command(one, known):
    """`known`: blocks printed already, of the command that this one belongs to."""
    out = [troff.heading("SS", "weir " + " ".join(one.words))]
    for line in one.usage:
        out += [".PP" if line.startswith("weir") else ".br", troff.line(troff.plain(line, exact=True))]
    if not one.usage:
        out += [".PP", prose(one.summary)]
    for block in one.blocks:
        if block not in known:
            out += of_block(block)
    for inner in one.inner:
        out += of_command(inner, one.blocks)
    return out


def weir_1(weir, version):
    title, usage, commands = command_help.commands(weir)
    out = troff.begin("weir", 1, version, title.removeprefix("weir: "))
    out += [".SH SYNOPSIS", troff.plain(usage, exact=True), ".SH COMMANDS"]
    for one in commands:
        out += [".TP", troff.bold(one.words[0]), prose(one.summary)]
    out += [".SH DETAILS"]
    for one in commands:
        out += of_command(one, [])
    return out + [".SH SEE ALSO", "weir.yaml(5), weir-rules(5), weir-nginx(5), weir-errors(5), nginx(8)", *SEE_ALSO]


def below(text):
    """A document as a part of another: its headings are one level lower."""
    code = False
    for line in text.splitlines(True):
        code ^= line.startswith("```")
        yield "#" + line if line.startswith("#") and not code else line


def of_document(name, docs, version):
    document, what, others = PAGES[name]
    text = (docs / document).read_text(encoding="utf-8").split("\n", 1)[1]
    for part in PARTS.get(name, ()):
        text += "\n" + "".join(below((docs / part).read_text(encoding="utf-8")))
    pages = {document.rsplit("/", 1)[-1]: f"{page}(5)" for page, (document, *_) in PAGES.items()}
    body = markdown_to_man.body(text, pages)
    return [*troff.begin(name, 5, version, what), ".SH DESCRIPTION", *body, ".SH SEE ALSO", others, *SEE_ALSO]


def main():
    weir, docs, folder = sys.argv[1:]
    version = command_help.said(weir, "version")[0].split()[1]
    pages = {"weir.1": weir_1(weir, version)}
    for name in PAGES:
        pages[f"{name}.5"] = of_document(name, pathlib.Path(docs), version)
    for name, lines in pages.items():
        (pathlib.Path(folder) / name).write_text("\n".join(lines) + "\n", encoding="ascii")


main()
