"""Hooks of mkdocs: documents of the root become pages, links to sources become files of the site, and Markdown as GitHub
reads it becomes Markdown as Python's reader does."""
import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md") # of the root
LINK = re.compile(r"(\]\(|(?:src|srcset|href)=\")([^)\s\"]+)")
FENCE = re.compile(r"^ *```")
ITEM = re.compile(r"^( *)(?:-|\d+\.) ")

# The order of the pages in nav. Those that are not here come last, by name.
ORDER = {
    "Guide": ("guide", ["index", "getting-started", "concepts", "choosing-an-algorithm", "choosing-a-consistency", "protect-an-api",
                        "plans", "why-was-this-denied", "try-a-stricter-limit", "many-hosts", "alerts", "block-a-key", "rules-in-git",
                        "dashboard", "own-nginx", "headers", "queue", "overload", "llm-tokens", "envoy", "flask-and-express", "from-envoyproxy-ratelimit",
                        "from-nginx-limit-req", "from-kong", "sizing", "without-root", "containers", "upgrading", "troubleshooting"]),
    "Reference": ("reference", ["index", "weir-yaml", "rules", "identity", "algorithms", "concurrency", "responses", "headers", "descriptors",
                                "options", "commands", "help", "serve", "nginx", "nginx-queue", "nginx-logs", "directives", "http", "forward-auth", "grpc", "resp",
                                "rules-service", "rest", "store", "hosts", "queue", "overload", "c-api", "metrics", "metric-list",
                                "statistics", "denials", "files", "errors"]),
    "Internals": ("internals", ["index", "architecture", "table", "concurrency", "store", "sync", "queue", "overload", "rules-service",
                                "services", "statistics", "reliability", "testing", "performance", "results"]),
}


def is_page(path):
    return path.parent == ROOT and path.name in PAGES


def title(path):
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.M)
    return found[1].replace("`", "") if found else path.stem


def pages(folder, order):
    """The pages of a folder for nav, without those that have none of their own."""
    names = sorted(path.stem for path in (ROOT / "docs" / folder).glob("*.md"))
    names.sort(key=lambda name: order.index(name) if name in order else len(order))
    return [f"{folder}/{name}.md" for name in names]


def on_config(config):
    for section in config.nav:
        for name, entries in section.items():
            if name in ORDER:
                entries.extend(pages(*ORDER[name]))
            if name == "Project":
                if (ROOT / "CONTRIBUTING.md").exists():
                    entries.append({"Contributing": "CONTRIBUTING.md"})
                entries.append({"Decisions": pages("decisions", ["index"])})
    return config


def on_files(files, config):
    """Adds the documents of the root, and the sources that any page names."""
    for name in PAGES:
        if (ROOT / name).exists():
            files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    named = set()
    for page in [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in PAGES if (ROOT / name).exists())]:
        for _, target in LINK.findall(page.read_text(encoding="utf-8")):
            path = (page.parent / target.split("#")[0]).resolve()
            if path.is_file() and not path.is_relative_to(ROOT / "docs") and path.is_relative_to(ROOT) and not is_page(path):
                named.add(path)
    for path in sorted(named):
        # As text, which browsers show instead of offering it as a download.
        files.append(File.generated(config, f"source/{path.relative_to(ROOT).as_posix()}.txt", content=path.read_bytes()))
    return files


def moved(target, page):
    """A link of a document as it is between the files of the site; None: to what the site does not have, such as a folder."""
    if re.match(r"[a-z]+:|#", target):
        return target
    path, mark, anchor = target.partition("#")
    where = ROOT / page if page in PAGES else ROOT / "docs" / page
    file = (where.parent / path).resolve()
    if file.is_dir():
        return None
    if file.is_relative_to(ROOT / "docs"):
        place = file.relative_to(ROOT / "docs").as_posix()
    elif is_page(file):
        place = file.name
    elif file.is_file() and file.is_relative_to(ROOT):
        place = f"source/{file.relative_to(ROOT).as_posix()}.txt"
    else:
        return target # mkdocs warns of it
    return posixpath.relpath(place, posixpath.dirname(page)) + mark + anchor


def relinked(line, page):
    line = re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", lambda m: m[0] if moved(m[2], page) is not None else m[1], line)
    return LINK.sub(lambda m: m[1] + (moved(m[2], page) or m[2]), line)


def on_page_markdown(markdown, page, config, files):
    """GitHub begins a list without an empty line before it, and indents by two; Python's reader needs both otherwise."""
    del config, files
    out, fenced, listed, before = [], False, False, ""
    text = re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", lambda m: relinked(m[0], page.file.src_uri), markdown) # their text may have line breaks
    for line in text.splitlines():
        if FENCE.match(line):
            fenced = not fenced
        item = ITEM.match(line)
        if item and not fenced and before.strip() and not listed and not before.startswith("    "):
            out.append("")
        if item and not fenced:
            listed = True
        elif not line.startswith(" ") and line.strip() and not before.strip() or line.startswith("#"):
            listed = False
        indent = len(line) - len(line.lstrip(" "))
        if listed and 0 < indent < 8:
            line = " " * (4 * ((indent + 2) // 3)) + line.lstrip(" ") if not fenced else line
        if not fenced and "=\"" in line:
            line = LINK.sub(lambda m: m[1] + (moved(m[2], page.file.src_uri) or m[2]) if m[1] != "](" else m[0], line)
        defined = None if fenced else re.fullmatch(r"(\[[^\]]+\]: )(\S+)", line)
        if defined:
            line = defined[1] + (moved(defined[2], page.file.src_uri) or defined[2])
        out.append(line)
        before = line
    return "\n".join(out)
