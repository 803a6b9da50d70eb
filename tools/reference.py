#!/usr/bin/env python3
"""Writes the tables of the reference that the sources determine, between two marks in the pages of docs/:

    <!-- generated: metrics -->
    …
    <!-- end of generated -->

    tools/reference.py           writes them
    tools/reference.py --check   fails if one is not up to date

The sources are read as text, so that nothing has to be built. Whatever this script does not understand is an error:
nothing is left out silently. Each table is in at least one page.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = 110
MARKED = re.compile(r"<!-- generated: (\w+) -->\n(.*?)<!-- end of generated -->\n", re.S)


class Unknown(Exception):
    """The sources have something that this script does not know."""


# ---- C as text ----

LITERAL = r'"(?:\\.|[^"\\])*"'


def source(path):
    """The text of a source file without comments; adjacent string literals are joined."""
    text = (ROOT / path).read_text().replace("\\\n", " ")
    text = re.sub(r'("(?:\\.|[^"\\\n])*")|/\*.*?\*/|//[^\n]*', lambda m: m[1] or " ", text, flags=re.S)
    text = re.sub(r'"\s*PRI[a-z]+\d+\s*"', "lld", text)
    return re.sub(r'"\s+"', "", re.sub(r'"\s*PRI[a-z]+\d+', 'lld"', text))


def unquoted(literal):
    return literal[1:-1].replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")


def closing(text, at):
    """The place of the brace that closes the one at `at`."""
    depth = 0
    for found in re.compile(LITERAL + r"|'(?:\\.|[^'\\])'|[{}]").finditer(text, at):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if not depth:
            return found.start()
    raise Unknown("a brace that nothing closes")


def split(text):
    """The parts of an initialiser, separated by commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for found in re.finditer(LITERAL + r"|[{}(),\[\]]", text):
        depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(found[0], 0)
        if found[0] == "," and not depth:
            parts.append(text[begin:found.start()])
            begin = found.end()
    return [part.strip() for part in [*parts, text[begin:]] if part.strip()]


def initialiser(text, name):
    """The parts of `name[] = { … }`, and what comes before it."""
    found = re.search(rf"\b{name}(?:\[\w*\])+ = \{{", text)
    if not found:
        raise Unknown(f"there is no table {name}")
    return split(text[found.end():closing(text, found.end() - 1)])


def function(text, name):
    """The body of a function."""
    found = re.search(rf"^[a-z][^\n;{{}}]*\b{name}\([^;{{}}]*\)\s*\n\{{", text, re.M)
    if not found:
        raise Unknown(f"there is no function {name}")
    return text[found.end():closing(text, found.end() - 1)]


def constant(expression, known=None):
    """The value of a constant expression. Names are looked up in headers and in the file that has it."""
    values = {"INT32_MAX": 2**31 - 1, "INT32_MIN": -2**31, "UINT32_MAX": 2**32 - 1}
    expression = re.sub(r"\bU?INT64_C\(([^)]*)\)", r"\1", expression)
    for name in set(re.findall(r"\b[A-Z]\w+", expression)):
        if name not in values:
            values[name] = looked_up(name, known or "")
    if re.sub(r"\b[A-Z]\w+\b", "", expression).strip("0123456789abcdefx+-*<>() "):
        raise Unknown(f"the constant {expression}")
    return eval(expression, {"__builtins__": {}}, values) # pylint: disable=eval-used # only names, digits and operators


def looked_up(name, text):
    headers = [*(ROOT / "src").rglob("*.h"), *(ROOT / "include").rglob("*.h")]
    for each in [text, *(path.read_text() for path in headers)]:
        found = re.search(rf"#define {name}[ \t]+(.*?)[ \t]*(?:/\*.*)?$", each, re.M)
        if found:
            return constant(found[1], text)
    raise Unknown(f"the constant {name}")


# ---- Markdown ----

def cell(text):
    return text.replace("|", "\\|")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell(each) for each in row) + " |" for row in rows]
    long = [line for line in lines if len(line) > COLUMNS]
    if long:
        raise Unknown(f"more than {COLUMNS} columns: {long[0]}")
    return "\n".join(lines) + "\n"


def code(text):
    return f"`{text}`"


def bytes_text(number):
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number % size == 0:
            return f"{number // size}{unit}"
    return str(number)


# ---- Options of weir.yaml and of rules ----

# Fields that a function reads: what it accepts. Functions with a table of fields of their own: that, and the fields.
READERS = {
    "weir__config_path": "a path",
    "weir__config_ms": "a duration",
    "workers_read": "`auto`, or 1 to 1024",
    "host_read": "a name of 1 to 64 bytes",
    "metrics_read": "an address",
    "hot_read": "`off`, a size, or a map",
    "ring_read": "`off`, a size, or a map",
    "log_path": "`stderr`, or a path",
    "access_read": "`off`, `stderr`, a path, or a map",
    "denied_read": "`off`, `stderr`, a path, or a map",
    "weir__config_load_level": "`on`, `off`, or a map",
    "weir__config_gateway": "a map",
    "weir__config_service": "a map",
    "weir__config_store": "a URL, or a map",
    "weir__config_notify": "a URL, or a map",
    "receiver_read": "`https://…` or `http://…`",
    "name_read": "a name in certificates",
    "fail_timeout_read": "a duration in whole seconds",
    "max_body_read": "a size, or `unlimited`",
    "printable_read": "printable, without blanks",
    "poll_read": "a duration from 100ms",
    "signals_read": "a map",
    "smooth_read": "100ms to 1m",
    "level_read": "10 to 95, with or without %",
    "body_read": "a size up to 3MiB",
    "headers_read": "a list of names; `x-*`: all that begin so",
    "deliver_read": "`http://…`, `https://…` or `unix:/path`",
    "tokens_read": "one or a list: 8 to 512 printable characters each",
    "secret_read": "8 to 512 printable characters",
    "open_read": "one or a list of `api`, `auth`, `json`",
    "families_read": "`forwarded` or `original`",
    "proxies_read": "networks",
    "read_key": "a template such as `user:${user_id}`",
    "weir__native_list": "a map",
    "weir__native_networks": "networks",
    "read_keys": "a list of keys; `*` stands for any text",
    "weir__native_cost": "a number, an attribute, or a map",
    "weir__native_response": "a map",
    "weir__native_queue": "a map",
    "weir__native_warn_at": "1 % to 99 %",
    "read_headers": "one or a list of `x-ratelimit`, `draft`, `retry-after`",
    "read_reset": "`epoch` or `delta`",
    "read_report": "`tightest`, `all`, the name of a rule, or a map",
    "read_list": "`one` or `all`",
    "read_body": "`auto`, `json`, `problem`, `none`, or a map",
    "read_other_response": "a map",
    "read_attribute": "an attribute",
    "read_priority": "`critical`, `high`, `normal` or `low`",
    "read_elastic": "a map",
    "read_adaptive": "a map",
    "read_trusted": "networks",
    "read_replaces": "a list of `{ name }`",
    "read_metadata": "a map",
}
# Fields that are not read by the table: what they accept.
BY_HAND = {
    "admin": "an address, or a map", "rules_db": "`sqlite:/PATH` or `postgresql://…`", "state": "a path",
    "queue": "`on`, or a map", "rules": "a file, a directory, rules, or a URL or map of another host's",
    "identity": "a map", "allow": "a map", "block": "a map", "response": "a map", "normalize": "`off`, or a map",
    "gateway.listen": "an address, a map, or a list of these", "gateway.tls": "a map",
    "gateway.upstreams": "servers, or a list of `{ path, servers }`",
    "service.ports": "`ratelimit`", "service.grpc": "an address, or a map", "service.http": "an address, or a map",
    "service.resp": "an address, or a map", "service.tls": "a map",
    "admin.listen": "an address", "admin.tls": "a map", "admin.rules_db": "as `rules_db`",
    "identity.NAME.from": "an attribute", "identity.NAME.file": "a path that ends in .csv, .yaml or .yml",
    "limit": "0 to 4294967295, `unlimited`, or a map of tiers to these", "window": "a duration: `1s`, `1h`, `1d`, `1mo`",
    "name": "1 to 95 bytes", "max_delay": "a duration",
    "algorithm": "see below", "timezone": "a name such as `Europe/Paris`", "lease": "a duration from 100ms",
    "match": "a map", "limits": "a list of limits", "tier": "an attribute",
}
# Fields of fields that are read without a table.
MORE = {
    "match": [("path", "patterns"), ("method", "patterns"), ("host", "patterns"), ("header", "a map of names to patterns"),
              ("query", "a map of names to patterns"), ("network", "networks"), ("normalize", "as at the top"),
              ("NAME", "patterns, of an attribute of `identity`, `user_id`, `api_key` or `tier`")],
    "listen": [("address", "an address"), ("tls", "a map"), ("http2", "`true` or `false`")],
    "upstreams": [("path", "`/exact`, `/prefix/*` or `*`"), ("servers", "`http://…`, `https://…` or `unix:/path`")],
}


class Options:
    def __init__(self):
        self.rows, self.text = [], ""

    def table_of(self, path, name):
        self.text = source(path)
        return initialiser(self.text, name)

    def bounds(self, kind, values):
        least, most = (constant(values[each], self.text) if each in values else None for each in ("min", "max"))
        if kind == "SIZE":
            return "a size" + (f" from {bytes_text(least)}" if least else "") + (f" to {bytes_text(most)}" if most else "")
        if kind == "PERCENT":
            return f"{least} % to {most} %" if most else f"0 % to {looked_up('WEIR__PERCENT_MAX', '')} %"
        if kind == "INT" and most == 2**31 - 1 and least and least < 0:
            return "a whole number"
        return f"{least or 0} to {most}"

    def accepted(self, place, kind, values):
        if kind == "SKIP" or kind == "NODE":
            if place not in BY_HAND:
                raise Unknown(f"the option {place}: add it to BY_HAND")
            return BY_HAND[place]
        if kind == "CHOICE":
            words = [unquoted(each) for each in initialiser(self.text, values["choices"]) if each != "NULL"]
            return ", ".join(map(code, words[:-1])) + " or " + code(words[-1])
        if place == "rules.url":
            return "a URL"
        if kind == "READ":
            if values["read"] not in READERS:
                raise Unknown(f"the reader {values['read']} of {place}: add it to READERS")
            return READERS[values["read"]]
        if place in ("user", "agent_user"):
            return "the name of a user"
        if kind in ("TEXT", "STRING"):
            most = constant(values["max"], self.text) if "max" in values else None
            return f"text of up to {most} bytes" if most else "text"
        plain = {"BOOL": "`true` or `false`", "AGE": "a duration", "MAP": "a map"}
        return plain[kind] if kind in plain else self.bounds(kind, values)

    def add(self, prefix, entries, shown=None):
        """Adds a table's options. `shown`: what to call the place in the page, if not its path."""
        for entry in entries:
            parts = split(entry[1:-1])
            values = dict(re.fullmatch(r"\.(\w+) = (.*)", part, re.S).groups() for part in parts if part[0] == ".")
            name = unquoted(values.get("name") or parts[0])
            kind = next((part for part in parts if part.startswith("WEIR__FIELD_")), "WEIR__FIELD_SKIP")[12:]
            place = f"{prefix}{name}"
            self.rows.append(((shown or prefix) + name, self.accepted(place, kind, values)))
            self.inner(place, (shown or prefix) + name, kind, parts, values)

    def inner(self, place, shown, kind, parts, values):
        text = self.text
        if kind == "MAP":
            fields = next(re.fullmatch(r"WEIR__MAP_OF\((\w+)\)", part)[1] for part in parts if part.startswith("WEIR__MAP_OF"))
            self.add(f"{place}.", initialiser(text, fields), f"{shown}.")
        elif kind == "READ":
            self.of_reader(place, shown, values["read"])
        elif place in ("gateway.listen", "gateway.upstreams", "match"):
            self.rows += [(f"{shown}.{name}", what) for name, what in MORE[place.rsplit(".", maxsplit=1)[-1]]]
        if place in ("gateway.tls", "admin.tls", "service.tls"):
            self.text = source("src/config/gateway.c")
            fields = initialiser(function(self.text, "weir__config_tls"), "fields")
            self.add(f"{place}.", [each for each in fields if place != "admin.tls" or "client_ca" not in each], f"{shown}.")
        elif place == "admin":
            self.add("admin.", self.table_of("src/config/control.c", "admin_fields"))
        elif place == "rules":
            self.add("rules.", self.table_of("src/config/control.c", "origin_fields"))
        elif place == "queue" and kind == "SKIP":
            self.text = function(source("src/config/queue.c"), "weir__config_queue")
            self.add("queue.", initialiser(self.text, "fields"))
        self.text = text

    def of_reader(self, place, shown, reader):
        """The fields of a map that a function reads by a table of its own, wherever it is."""
        outer = {"weir__config_gateway": ("src/config/gateway.c", "gateway_fields"),
                 "weir__config_service": ("src/config/service.c", "service_fields"),
                 "weir__native_cost": ("src/rules/native_policy.c", "from_fields")}
        if reader in outer:
            self.add(f"{place}.", self.table_of(*outer[reader]), f"{shown}.")
            return
        if reader == "weir__config_store":
            self.store(shown)
            return
        if reader == "signals_read":
            self.signals(shown)
            return
        for path in sorted([*(ROOT / "src/config").glob("*.c"), *(ROOT / "src/rules").glob("native*.c")]):
            text = source(path)
            if not re.search(rf"^[a-z][^\n;{{}}]*\b{reader}\([^;{{}}]*\)\s*\n\{{", text, re.M):
                continue
            body = function(text, reader)
            if re.search(r"\bfields\[2\]\[2\] = ", body): # allow and block have the same
                self.add(f"{place}.", split(initialiser(body, "fields")[0][1:-1]), f"{shown}.")
            elif re.search(r"\bfields\[\] = ", body):
                self.text = body + text
                self.add(f"{place}.", initialiser(body, "fields"), f"{shown}.")
            return

    def store(self, shown):
        names = [unquoted(each) for each in self.table_of("src/config/store.c", "settings")]
        kinds = {}
        for entry in self.table_of("src/engine/store_options.c", "known_options"):
            found = re.search(r'\{"(\w+)", (\w+), [^,]*, (\w+)', entry)
            if not found and entry.startswith("#undef"):
                continue
            kinds[found[1]] = {"DURATION": f"a duration from {found[3]} µs to 1 h", "COUNT": "a whole number",
                               "BOOL": "`true` or `false`", "PREFIX": "ASCII without blanks, quotes, braces, %",
                               "TEXT": "text"}[found[2]]
        kinds |= {"url": "a URL", "password_file": "a path", "consistency": "`local`, `eventual` or `strict`",
                  "ca": "a path", "certificate": "a path", "key": "a path"}
        if set(kinds) != set(names):
            raise Unknown(f"options of the store: {set(kinds) ^ set(names)}")
        self.rows += [(f"{shown}.{name}", kinds[name]) for name in ["url", *(each for each in names if each != "url")]]

    def signals(self, shown):
        for entry in self.table_of("src/config/overload.c", "signals"):
            name, percent, full, least, most, default = re.search(r'\{"(\w+)", (\w+), (.*?), (.*?), (.*?), (\w+)\}', entry).groups()
            scale, unit = (100, " %") if percent == "true" else (1, "")
            low, high, usual = (f"{float(each) * scale:.0f}{unit}" for each in (least, most, full))
            self.rows.append((f"{shown}.{name}", f"`on` ({usual}), `off`, or {low} to {high}" +
                              ("; on by default" if default == "true" else "")))


def rows_of(options):
    return table(("option", "values"), [(code(name), what) for name, what in options.rows])


def weir_yaml():
    options = Options()
    options.add("", options.table_of("src/config/config.c", "root_fields"))
    return rows_of(options)


def rules():
    options = Options()
    text = source("src/rules/native_rule.c")
    options.text = text
    own, overload = initialiser(text, "fields"), {}
    policy = source("src/rules/native_policy.c")
    body = function(policy, "weir__native_overload")
    for entry in initialiser(body, "fields"):
        overload[re.search(r'"(\w+)"', entry)[1]] = entry
    parameters, users = {}, {}
    algorithm = source("src/rules/algorithm.c")
    for entry in initialiser(algorithm, "parameters"):
        _, who, field = split(entry[1:-1])
        name = re.search(r'"(\w+)"', field)[1]
        parameters[name], users[name] = field, unquoted(who)
    for entry in own:
        name = re.search(r'"(\w+)"', entry)[1]
        before = len(options.rows)
        options.text = body + policy if name in overload else algorithm if name in parameters else text
        options.add("", [overload.get(name) or parameters.get(name) or entry])
        if name in users and users[name] != "all":
            options.rows[before] = (name, f"{options.rows[before][1]}; of `{users[name].replace(' and ', '` and `')}`")
        if name == "algorithm":
            words = [unquoted(each) for each in initialiser(algorithm, "algorithms") if each != "NULL"]
            options.rows[before] = (name, ", ".join(map(code, words)))
    long = [row for row in options.rows if len(row[1]) > 85]
    for row in long: # a list of words that does not fit becomes a list below the table
        options.rows[options.rows.index(row)] = (row[0], "one of the words below")
    below = "".join(f"\n`{name}` is one of:\n\n" + "".join(f"- {word}\n" for word in what.split(", ")) for name, what in long)
    return rows_of(options) + below


def rule_files():
    """The members of a rule file beside `rules`."""
    options = Options()
    text = source("src/rules/native.c")
    options.text = text
    client = function(text, "read_client")
    options.rows.append(("identity.client_ip", "a map"))
    options.text = client + text
    options.add("identity.client_ip.", initialiser(client, "fields"))
    options.rows.append(("identity.NAME", "a source such as `header:X-User`, or a map"))
    options.text = function(text, "read_map") + text
    options.add("identity.NAME.", initialiser(function(text, "read_map"), "fields"))
    names = [unquoted(each) for each in initialiser(function(text, "weir__native_normalize"), "names")]
    options.rows.append(("normalize", "`off`, or a map"))
    options.rows += [(f"normalize.{name}", "`true` or `false`") for name in names]
    for name in ("allow", "block"):
        options.rows.append((name, "a map"))
        options.of_reader(name, name, "weir__native_list")
    options.rows.append(("response", "a map, as in a rule: the default of all rules"))
    return rows_of(options)


# ---- Directives and variables of nginx ----

CONTEXTS = {"MAIN_CONF": "{}", "SRV_CONF": "server", "LOC_CONF": "location", "LIF_CONF": "if"}
ARGUMENTS = {"NOARGS": "none", "FLAG": "`on` or `off`", "TAKE1": "1", "TAKE12": "1 or 2", "TAKE123": "1 to 3", "1MORE": "1 or more",
             "TAKE2": "2", "TAKE3": "3", "TAKE4": "4"}


def directive(entry, macros, block):
    name = re.search(r'"(\w+)"', entry)[1]
    macro = entry[1:].split("(")[0]
    flags = " ".join([*split(entry[1:-1])[1:2], entry])
    if macro in macros:
        given = split(entry[entry.index("(") + 1:entry.rindex(")")])
        flags = " ".join([macros[macro], given[1]])
    for word in ("ANYWHERE", "HERE"):
        flags = flags.replace(word, macros.get(word, ""))
    if macro == "ngx_string":
        flags = split(entry[1:-1])[1]
    contexts = CONTEXTS if block == "http" else CONTEXTS | {"SRV_CONF": "stream server"}
    places = [contexts[each].format(block) for each in CONTEXTS if re.search(rf"NGX_(HTTP|STREAM)_{each}\b", flags)]
    taken = [ARGUMENTS[each] for each in re.findall(r"NGX_CONF_(\w+)", flags)]
    if not places or not taken:
        raise Unknown(f"the directive {name}: {flags}")
    arguments = f"{taken[0]} to {taken[-1]}" if len(taken) > 1 else taken[0]
    words = re.search(r"ngx_conf_set_enum_slot, \w+, (\w+)", entry)
    return name, places, arguments, words[1] if words else None


def directives():
    rows = []
    for path, name, block in (("nginx/http/ngx_http_weir_module.c", "ngx_http_weir_commands", "http"),
                              ("nginx/stream/ngx_stream_weir_module.c", "ngx_stream_weir_directives", "stream")):
        text = source(path)
        macros = {found[1]: found[2] for found in re.finditer(r"#define (\w+)(?:\([\w, ]*\))?[ \t]+(.*)", text)}
        for entry in initialiser(text, name):
            if entry == "ngx_null_command":
                continue
            what, places, arguments, words = directive(entry, macros, block)
            if words:
                arguments = ", ".join(code(unquoted(re.search(LITERAL, each)[0])) for each in initialiser(text, words)
                                      if "ngx_null_string" not in each)
            same = [row for row in rows if row[0] == code(what)]
            if same and same[0][2] == arguments:
                rows[rows.index(same[0])] = (code(what), ", ".join([same[0][1], *places]), arguments)
            else:
                rows.append((code(what), ", ".join(places), arguments))
    return table(("directive", "in", "arguments"), rows)


def variables():
    text = source("nginx/http/ngx_http_weir_variables.c")
    names = re.findall(r'\{ngx_string\("(weir_\w+)"\), NULL', text)
    return "".join(f"- `${name}`\n" for name in names)


# ---- Metrics ----

METRIC_SOURCES = ("nginx/http/ngx_http_weir_status.c", "nginx/http/ngx_http_weir_log.c", "src/stats/heartbeat_sender.c")


def metrics_found():
    """(name, type, help) of all metrics, in the order of the sources."""
    found, mentioned = {}, set()
    for path in METRIC_SOURCES:
        text = source(path)
        names = dict(re.findall(r'static const char (\w+)\[\] = "(weir_\w+)"', text))
        for variable, name in names.items():
            text = re.sub(rf"\b{variable}\b(?!\[)", f'"{name}"', text)
        mentioned |= set(re.findall(r'"(weir_[a-z_]+)"', text)) | set(re.findall(r'[\\"n](weir_[a-z_]+)[{ ]', text))
        text = text.replace('"# HELP %s Duration', '"# HELP weir_check_seconds Duration') # its name is a variable
        for name, text_of in re.findall(rf'"(weir_[a-z_]+)",\s*({LITERAL})', text):
            found.setdefault(name, ("counter" if name.endswith("_total") else "gauge", unquoted(text_of)))
        for literal in re.findall(LITERAL, text):
            for name, text_of, kind in re.findall(r"# HELP (\S+) (.*)\n# TYPE \S+ (\w+)\n", unquoted(literal)):
                if name != "%s":
                    found[name] = (kind, text_of)
    for entry in initialiser(source("src/queue/dispatcher.c"), "metrics"):
        name, kind, text_of = map(unquoted, split(entry[1:-1])[:3])
        found[f"weir_queue_{name}"] = (kind, text_of)
    missing = {name for name in mentioned if name not in found}
    if missing:
        raise Unknown(f"metrics without a help text: {sorted(missing)}")
    return [(name, *found[name]) for name in found]


def metrics():
    """A list, not a table: many help texts are longer than a cell."""
    out = []
    for name, kind, text in metrics_found():
        out += wrapped(f"`{name}` ({kind}): {text}")
    return "\n".join(out) + "\n"


def wrapped(text, first="- ", rest="  "):
    lines, line = [], first
    for word in text.split():
        if len(line) + len(word) + 1 > COLUMNS and line.strip():
            lines.append(line.rstrip())
            line = rest
        line += word + " "
    return [*lines, line.rstrip()]


# ---- Errors ----

def errors():
    text = source("include/weir/weir.h")
    listed = re.search(rf"#define WEIR_ERRORS\(X\)((?:\s*X\(\w+,\s*\d+,\s*{LITERAL}\))+)", text)
    rows = re.findall(rf"X\((\w+),\s*(\d+),\s*({LITERAL})\)", listed[1] if listed else "")
    if not rows or len(rows) != len(re.findall(r"\bX\(E", text)):
        raise Unknown("WEIR_ERRORS")
    out = []
    for name, number, message in rows:
        out += wrapped(f"`WEIR_{name}` (-{number}): {unquoted(message)}")
    return "\n".join(out) + "\n"


# Functions that report about a file, with the number of arguments before the format.
REPORTERS = {"weir__node_error": 1, "weir__node_warning": 1, "weir__report_error": 2, "weir__report_warning": 2,
             "weir__node_unknown": 4, "weir__report_unknown": 5, "weir__node_suggest": 2}
PLACEHOLDER = re.compile(r"%%|%[-+ #0]*[\d*]*(?:\.[\d*]+)?(?:hh|h|ll|l|z|j)?[a-zA-Z]")


def calls(folder, functions):
    """(function, arguments, text of the file) of each call."""
    for path in sorted((ROOT / folder).rglob("*.c")):
        text = source(path)
        for call in re.finditer(r"\b(" + "|".join(functions) + r")\(", text):
            depth, at = 1, call.end()
            for token in re.compile(LITERAL + r"|[()]").finditer(text, call.end()):
                depth += {"(": 1, ")": -1}.get(token[0], 0)
                if not depth:
                    at = token.start()
                    break
            yield call[1], split(text[call.end():at]), text


def shown(literal, placeholder=PLACEHOLDER):
    return re.sub("…{2,}", "…", placeholder.sub(lambda m: "%" if m[0] == "%%" else "…", unquoted(literal))).strip()


def messages(folder):
    found = {}
    for name, arguments, text in calls(folder, REPORTERS):
        if len(arguments) <= REPORTERS[name]:
            continue # the declaration of the function
        for literal in re.findall(LITERAL, defined(arguments[REPORTERS[name]], text)):
            message = PLACEHOLDER.sub(lambda m: "%" if m[0] == "%%" else "…", unquoted(literal))
            if re.search(r"\w", message):
                found[message] = "warning" if name.endswith("warning") else "error"
    return found


def logged():
    """Errors and warnings in the log of weir serve and of the agent."""
    found = messages("src/serve")
    for _, arguments, text in calls("src", ["weir__logf"]):
        if len(arguments) < 3 or "WEIR__LOG_INFO" in arguments[1] and "?" not in arguments[1]:
            continue
        for literal in re.findall(LITERAL, defined(arguments[2], text)):
            if len(re.findall(r"[a-z]{3,}", shown(literal))) > 1:
                found[shown(literal)] = "warning" if "WARNING" in arguments[1] and "ERROR" not in arguments[1] else "error"
    return found


# nginx's own formats, as in %V and %uL.
NGINX_PLACEHOLDER = re.compile(r"%%|%[*\d]*u?[xX]?[A-Za-z]")
NGINX_LEVELS = {"NGX_LOG_EMERG": "error", "NGX_LOG_ALERT": "error", "NGX_LOG_CRIT": "error", "NGX_LOG_ERR": "error", "NGX_LOG_WARN": "warning"}


def nginx_logged():
    """Errors and warnings of the modules in nginx's error log, and about nginx.conf."""
    found = {}
    for _, arguments, _ in calls("nginx", ["ngx_log_error", "ngx_conf_log_error"]):
        for literal in re.findall(LITERAL, arguments[3] if len(arguments) > 3 else ""):
            message = shown(literal, NGINX_PLACEHOLDER)
            if arguments[0].strip() in NGINX_LEVELS and len(re.findall(r"[a-z]{3,}", message)) > 1:
                found[message] = NGINX_LEVELS[arguments[0].strip()]
    return found


def defined(argument, text):
    """The argument with macros of texts replaced."""
    for name in re.findall(r"\b[A-Z][A-Z_]{3,}\b", re.sub(LITERAL, "", argument)):
        value = re.search(rf'#define {name}[ \t]+({LITERAL})', text) or re.search(
            rf'#define {name}[ \t]+({LITERAL})', "".join(source(path) for path in (ROOT / "src").rglob("*.h")))
        if value:
            argument = argument.replace(name, value[1])
    return re.sub(r'"\s+"', "", argument)


def message_list(found):
    out = []
    for message, kind in sorted(found.items(), key=lambda one: one[0].lstrip("…\" ").lower()):
        prefix = "warning: " if kind == "warning" else ""
        out += wrapped(f"{prefix}``{message}``" if "`" in message else f"{prefix}`{message}`")
    return "\n".join(out) + "\n"


def rule_messages():
    return message_list(messages("src/rules"))


def config_messages():
    return message_list(messages("src/config"))


def printed():
    """What commands print when they fail: `weir check: …`."""
    texts = [unquoted(literal) for path in sorted((ROOT / "src/cli").rglob("*.c")) for literal in re.findall(LITERAL, source(path))]
    said = [re.sub("…{2,}", "…", PLACEHOLDER.sub("…", text.split("\n")[0])).strip() for text in texts if re.match(r"weir [a-z%]+: ", text)]
    return {text: "error" for text in said if len(re.findall(r"[a-z]{3,}", text)) > 3}


def cli_messages():
    return message_list(printed())


def log_messages():
    return message_list(logged())


def nginx_messages():
    return message_list(nginx_logged())


# ---- Commands ----

def help_texts():
    """By name, in their order: the texts of help.txt, with inclusions."""
    parts = re.split(r"^=== (.*)\n", (ROOT / "src/cli/help.txt").read_text(), flags=re.M)[1:]
    texts = dict(zip(parts[::2], parts[1::2]))

    def complete(text):
        return re.sub(r"^\+(.*)\n", lambda m: complete(texts[m[1]]), text, flags=re.M)

    return {name: complete(text) for name, text in texts.items()}


def commands():
    listed = re.findall(r"^  (\w+) +(.*)$", help_texts()["help"], re.M)
    rows = []
    for name, what in listed:
        summary = re.sub(r": weir .*", "", what)
        rows.append((code(f"weir {name}"), summary))
    return table(("command", "what it does"), rows)


def command_help():
    out = []
    for name, text in help_texts().items():
        if text.startswith("usage:"):
            out.append(f"### weir {name} --help\n\n```text\n{text}```\n")
    return "\n".join(out)


# ---- The C API ----

def sentence(comment):
    """The first sentence of a comment."""
    text = " ".join(re.sub(r"^\s*\*?", "", line).strip() for line in comment.splitlines()).strip()
    return re.match(r".*?(?:[.:;](?= [A-Z`])|$)", text)[0].rstrip(":;")


def c_functions():
    """The functions of the public headers by header and section, each with the first sentence of its comment."""
    out, names = [], set()
    pattern = re.compile(r"/\* ---- (?P<section>.*?) ---- \*/|(?:/\*(?P<comment>(?:(?!\*/).)*)\*/\n)?"
                         r"^(?!typedef)(?:WEIR_MUST_CHECK )?[a-z][\w \t]*?[ *](?P<name>weir_\w+)\([^;{}]*\);", re.M | re.S)
    for header in ("weir.h", "check.h", "store.h", "load.h"):
        out.append(f"\n### {header}\n")
        section = ""
        for found in pattern.finditer((ROOT / "include/weir" / header).read_text()):
            if found["section"]:
                section = found["section"]
                continue
            out += [f"\n**{section}**\n"] if section else []
            section = ""
            comment = sentence(found["comment"]) if found["comment"] else ""
            out += wrapped(f"`{found['name']}`{': ' + comment if comment else ''}")
            names.add(found["name"])
    exported = set(re.findall(r"^symbol \S+ (weir_\w+)@@", (ROOT / "tests/abi.txt").read_text(), re.M))
    exported.discard("weir_store_register") # of libweir-store alone, in a header that is not installed
    if names != exported:
        raise Unknown(f"the functions of the API: {sorted(names ^ exported)}")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip("\n") + "\n"


TABLES = {
    "weir_yaml": weir_yaml, "rules": rules, "rule_files": rule_files, "directives": directives, "variables": variables,
    "metrics": metrics, "errors": errors, "rule_messages": rule_messages, "config_messages": config_messages,
    "log_messages": log_messages, "nginx_messages": nginx_messages, "cli_messages": cli_messages,
    "c_functions": c_functions, "commands": commands, "command_help": command_help,
}


def main():
    check = sys.argv[1:] == ["--check"]
    used, stale = set(), []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        before = path.read_text()
        names = MARKED.findall(before)
        if before.count("<!-- generated:") != len(names):
            sys.exit(f"{path}: a mark of generated text is not closed")
        used |= {name for name, _ in names}
        after = MARKED.sub(lambda m: f"<!-- generated: {m[1]} -->\n\n{TABLES[m[1]]()}\n<!-- end of generated -->\n", before)
        if after != before:
            stale.append(path.relative_to(ROOT).as_posix())
            if not check:
                path.write_text(after)
    lost = set(TABLES) - used
    if lost:
        sys.exit(f"tools/reference.py: no page has the tables {sorted(lost)}")
    if check and stale:
        sys.exit(f"not up to date, run tools/reference.py: {', '.join(stale)}")


if __name__ == "__main__":
    try:
        main()
    except Unknown as unknown:
        sys.exit(f"tools/reference.py does not know {unknown}")
