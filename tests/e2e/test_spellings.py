"""Spellings of a path that an upstream takes for the same resource, and values that are too long to be looked at whole."""
import http.server
import json
import threading
import urllib.parse

import pytest

from clients import get, raw

HEADERS = "large_client_header_buffers 8 32k;"
API = "location /v1/ { weir_api; } location = /v1/auth { weir_auth; }"
FAR = "x" * 6000
SPELLINGS = [
    "/auth/login", "/auth/login;x=1", "/auth/login/", "/auth/login%20", "/auth/%09login", "/auth;v=1/login", "/auth/login;/",
    "/x/..;/auth/login", "/auth/login;x=%2Fy", "/auth/login;" + FAR, "/auth;" + FAR + "/login", "/auth/login%3Bx",
    "/auth/login;a%2f..%2fb", "/auth/login;x%2F..%2F..%2Flogin",  # decoded first, their ';' vanish
]


def resource(target):
    """As many servers find it: parameters off, decoded, blanks and empty parts off, dots resolved."""
    parts = []
    for raw_part in target.partition("?")[0].split("/"):
        part = urllib.parse.unquote(raw_part.partition(";")[0]).partition(";")[0].strip()
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


@pytest.fixture
def upstream():
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            server.served.append(resource(self.path))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.served = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def started(gateway, rules, upstream=None, **top):
    server = API
    if upstream:
        server += "location ~ ^/(?!v1/|weir/) { proxy_pass http://127.0.0.1:%d; }" % upstream.server_address[1]
    rules = [{"limit": 2, "window": "1d", **rule} for rule in rules]
    text = json.dumps({**top, "rules": rules}).replace('"absent"', "absent")  # in quotes it is a value
    return gateway(text, server=server, http=HEADERS)


def send(g, target, *headers):
    lines = [f"GET {target} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]
    return int(raw(g.port, "\r\n".join(lines).encode()).split(b" ", 2)[1])


def test_all_spellings_share_the_limit(gateway, upstream):
    g = started(gateway, [{"name": "login", "match": {"path": "/auth/login"}}], upstream)
    assert [send(g, target) for target in SPELLINGS] == [200, 200] + [429] * (len(SPELLINGS) - 2)
    assert upstream.served == ["/auth/login"] * 2
    assert all(resource(target) == "/auth/login" for target in SPELLINGS)
    assert send(g, "/Auth/Login") == 200 and send(g, "/auth/logout;x") == 200


def test_each_spelling_is_limited_from_the_first(gateway):
    for target in SPELLINGS:
        g = started(gateway, [{"name": "login", "match": {"path": "/auth/login"}, "limit": 1}])
        assert [send(g, target), send(g, "/auth/login")] == [200, 429], target[:40]


def test_case_by_choice(gateway, upstream):
    g = started(gateway, [{"name": "login", "match": {"path": "/auth/login", "normalize": {"case": True}}}], upstream)
    assert [send(g, target) for target in ("/AUTH/LOGIN", "/Auth/Login;x", "/auth/login", "/auth/logIN/")] == \
        [200, 200, 429, 429]


def test_off_is_the_path_as_it_was_sent(gateway, upstream):
    g = started(gateway, [{"name": "login", "match": {"path": "/auth/login"}, "limit": 1}], upstream, normalize="off")
    assert [send(g, target) for target in ("/auth/login", "/auth/login/", "/auth/login")] == [200, 200, 429]


def test_prefixes_keys_and_costs(gateway, upstream):
    g = started(gateway, [
        {"name": "api", "match": {"path": "/api/*"}},
        {"name": "by-path", "match": {"path": "/by/*"}, "key": "${path}"},
        {"name": "dear", "match": {"path": "/dear/*"}, "limit": 25, "cost": {"/dear/export": 20}},
    ], upstream)
    assert [send(g, t) for t in ("/api;x/items", "/y/..;/api/items", "/api/items")] == [200, 200, 429]
    assert [send(g, t) for t in ("/by/a;1", "/by/a;2=%2F3", "/by/a/", "/by/a;4%2f..%2fz", "/by/b")] == [200, 200, 429, 429, 200]
    assert [send(g, t) for t in ("/dear/export;x", "/dear/export/", "/dear/x")] == [200, 429, 200]


def test_what_is_left_out_is_left_out_in_both_spellings(gateway, upstream):
    g = started(gateway, [{"name": "rest", "match": {"path": {"not": "/public/*"}}}], upstream)
    assert [send(g, t) for t in ("/public/..;/admin", "/public/..;/admin", "/admin", "/public/a")] == [200, 200, 429, 200]


def test_the_service_knows_them_too(gateway):
    g = started(gateway, [{"name": "login", "match": {"path": "/auth/login"}}, {"name": "end", "match": {"path": "**/end"}}])

    def check(**request):
        answer = get(g.port, "/v1/check", "POST", {"Content-Type": "application/json"}, json.dumps({"attributes": request}))
        return json.loads(answer.body)["allowed"]
    assert [check(path="/auth/login;x"), check(target="/auth/login;x=%2Fy?q"), check(path="/auth/login/")] == \
        [True, True, False]
    sent = [get(g.port, "/v1/auth", headers={"X-Forwarded-Uri": target}) for target in SPELLINGS]
    assert {answer.status for answer in sent} == {429}
    assert [check(path=f"/{FAR}/end"), check(target=f"/{FAR}/end"), check(path="/a/end")] == [True, True, False]


@pytest.mark.parametrize("match, target, header", [
    ({"path": "**/login"}, f"/{FAR}/login", "A: b"),
    ({"path": {"regex": "/login$"}}, f"/{FAR}/login", "A: b"),
    ({"path": {"not": "**/public"}}, f"/{FAR}/login", "A: b"),
    ({"header": {"X-Agent": {"regex": "bot$"}}}, "/", f"X-Agent: {FAR} bot"),
    ({"query": {"q": "*bot"}}, f"/?q={FAR}bot", "A: b"),
    ({"query": {"q": {"not": "*bat"}}}, f"/?q={FAR}bot", "A: b"),
], ids=["glob", "regex", "not", "header", "argument", "not-argument"])
def test_a_value_that_is_too_long_counts_as_matching(gateway, match, target, header):
    g = started(gateway, [{"name": "r", "match": match, "limit": 1}])
    assert [send(g, target, header) for _ in range(2)] == [200, 429]


# ---- Several cookies or arguments of one name: servers take the first, the last or all of them ----

def arguments(*values, path="/x"):
    return path + "?a=0&" + "&".join(f"k={value}" for value in values), "A: b"


def cookies(*values, path="/x"):
    return path, "Cookie: a=0; " + "; ".join(f"k={value}" for value in values)


def cookie_lines(*values, path="/x"):
    return path, "\r\n".join(f"Cookie: k={value}" for value in values)


OF_ONE_NAME = pytest.mark.parametrize("kind, several", [("query", arguments), ("cookie", cookies), ("cookie", cookie_lines)],
                                      ids=["arguments", "cookies", "lines"])


@OF_ONE_NAME
@pytest.mark.parametrize("named", [False, True], ids=["", "named"])
def test_a_second_value_does_not_change_the_key(gateway, kind, several, named):
    key = "${api_key}" if named else "k:${%s:k}:x" % kind
    g = started(gateway, [{"name": "r", "key": key}], **({"identity": {"api_key": f"{kind}:k"}} if named else {}))
    spellings = [("1", "real"), ("real", "2"), ("", "real"), ("real", ""), ("3", "real", "3"), ("%25several", "4"),
                 tuple(range(40))]
    assert [send(g, *several(*values)) for values in spellings] == [200, 200] + [429] * 5
    # The same value several times is that value, and has a counter of its own.
    assert [send(g, *several(*values)) for values in (["real"], ["real", "real"], ["real"] * 9)] == [200, 200, 429]
    for literal in ("%25several", "%2525several", "%several"):
        assert send(g, *several(literal)) == 200


@OF_ONE_NAME
def test_a_rule_matches_any_of_several_values(gateway, kind, several):
    cases = [
        ("bad", ("good", "bad"), 403), ("bad", ("bad", "good"), 403), ("bad", ("good", "better"), 200),
        ({"regex": "^b.d$"}, ("x", "y", "bad"), 403), ("*", ("", "x"), 403), ("absent", ("x", ""), 403), ("absent", ("x", "y"), 200),
        ({"not": "good"}, ("good", "bad"), 403), ({"not": "good"}, ("bad", "good"), 403), ({"not": "g*"}, ("good", "great"), 200),
        ({"not": "good"}, ("good", ""), 403), ("bad", tuple(range(9)), 403), ("bad", tuple(range(8)), 200)]
    rules = [{"name": f"r{i}", "limit": 0, "match": {"path": f"/{i}", **({"query": {"k": wanted}} if kind == "query" else {"named": wanted})}}
             for i, (wanted, _, _) in enumerate(cases)]
    g = started(gateway, rules, identity={"named": f"{kind}:k"})
    for i, (wanted, values, status) in enumerate(cases):
        assert send(g, *several(*values, path=f"/{i}")) == status, (wanted, values)


@OF_ONE_NAME
def test_lists_know_each_of_several_values(gateway, kind, several):
    rule = {"name": "r", "key": "u:${%s:k}" % kind, "limit": 1, "block": {"keys": ["u:666", "u:evil*"]}}
    g = started(gateway, [{**rule, "allow": {"keys": ["u:*"]}}])
    assert [send(g, *several("1")) for _ in range(3)] == [200] * 3  # allowed
    blocked = [("1", "666"), ("666", "1"), ("", "evil1"), ("1", "2", "3", "4", "5", "6", "7", "evil2"), tuple(range(9))]
    assert [send(g, *several(*values)) for values in blocked] == [403] * 5
    assert [send(g, *several("1", "2")), send(g, *several("3", "4"))] == [200, 429]  # never allowed


def test_keys_of_two_attributes_are_blocked_in_any_combination(gateway):
    rule = {"name": "r", "key": "${query:a}:${query:b}", "limit": 9}
    for blocked, status in (("2:3", 403), ("1:4", 403), ("1:2", 200)):
        g = started(gateway, [rule], block={"keys": [blocked]})
        assert send(g, "/?a=1&b=3&a=2&b=4") == status, blocked
    assert send(g, "/?" + "&".join(f"a={i}&b={i}" for i in range(5))) == 403  # more combinations than are looked at


@OF_ONE_NAME
def test_the_highest_of_several_costs_counts(gateway, kind, several):
    cases = [(("1", "7"), 7), (("7", "1"), 7), (("1", "x"), 5), (("", "1"), 5), (("9", "x"), 9), (tuple(range(9)), 100)]
    cost = {"from": f"{kind}:k", "default": 5, "max": 100}
    g = started(gateway, [{"name": f"r{i}", "match": {"path": f"/{i}"}, "limit": 100, "algorithm": "fixed_window", "cost": cost}
                          for i in range(len(cases))])
    for i, (values, cost) in enumerate(cases):
        target, lines = several(*values, path=f"/{i}")
        answer = raw(g.port, f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n\r\n".encode())
        assert f"X-RateLimit-Remaining: {100 - cost}\r\n".encode() in answer, values


@OF_ONE_NAME
def test_several_tiers_are_none(gateway, kind, several):
    tiers = {"default": 1, "gold": 100}
    g = started(gateway, [{"name": "r", "limit": tiers}], identity={"tier": f"{kind}:k"})
    assert [send(g, *several("gold")) for _ in range(2)] == [200, 200]
    g = started(gateway, [{"name": "r", "limit": tiers}], identity={"tier": f"{kind}:k"})
    assert [send(g, *several("gold", "x")) for _ in range(2)] == [200, 429]


def test_the_services_know_several_values_too(gateway):
    g = started(gateway, [{"name": "r", "key": "${query:k}"}, {"name": "c", "key": "${cookie:k}"}])
    for sent in ({"target": "/x?k=%d&k=real"}, {"path": "/x", "query": "k=%d&k=real"}, {"headers": {"Cookie": "k=%d; k=real"}}):
        bodies = [json.dumps({"attributes": sent}).replace("%d", str(i)) for i in range(3)]
        answers = [get(g.port, "/v1/check", "POST", {"Content-Type": "application/json"}, body) for body in bodies]
        assert not json.loads(answers[2].body)["allowed"], sent
    assert get(g.port, "/v1/auth", headers={"X-Forwarded-Uri": "/x?k=1&k=real"}).status == 429
    assert get(g.port, "/v1/auth", headers={"X-Forwarded-Uri": "/x", "Cookie": "k=8; k=real"}).status == 429
