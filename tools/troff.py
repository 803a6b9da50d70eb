"""Text for man pages. Options and code, which readers copy, must be rendered exactly."""

EXACT = {"-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}


def plain(text, exact=False):
    """Prose, or (exact) text that must be rendered character by character."""
    out = []
    for c in text:
        if c == "\\":
            out.append(r"\(rs")
        elif ord(c) > 126:
            out.append(f"\\[u{ord(c):04X}]")
        else:
            out.append(EXACT.get(c, c) if exact else c)
    return "".join(out)


def bold(text):
    return f"\\fB{plain(text, exact=True)}\\fR"


def line(text):
    """One line of the page: a dot or an apostrophe at its beginning would be a command."""
    return rf"\&{text}" if text[:1] in (".", "'") else text


def code(lines):
    return [".PP", ".in +4n", ".EX", *(line(plain(each, exact=True)) for each in lines), ".EE", ".in"]


def heading(macro, text):
    return f'.{macro} "{plain(text, exact=True)}"'


def begin(name, section, version, what):
    """Words are not hyphenated: half of them are names, options and paths."""
    return [r'.\" Made by tools/man_pages.py.', ".nr HY 0",
            f'.TH "{name.upper()}" "{section}" "" "weir {version}" "weir"', ".ad l", ".SH NAME",
            rf"{name} \- {plain(what)}"]
