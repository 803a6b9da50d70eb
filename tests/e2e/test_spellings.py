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
    return gateway(json.dumps({**top, "rules": rules}), server=server, http=HEADERS)


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
    asked = [get(g.port, "/v1/auth", headers={"X-Forwarded-Uri": target}) for target in SPELLINGS]
    assert {answer.status for answer in asked} == {429}
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
