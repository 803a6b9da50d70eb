"""Hostile requests: none may crash or hang a worker, or pass a limit."""
import http.client
import json
import socket

import pytest

from clients import get, raw, statuses
from gateway import wait_until
from http2 import Http2

HEADERS = "large_client_header_buffers 8 128k; client_max_body_size 10m;"


def by_header(limit=2):
    return json.dumps({"rules": [{"name": "r", "key": "k:${header:X-Key}", "limit": limit, "window": "1d"}]})


def request(*lines, method=b"GET", path=b"/x"):
    return b"\r\n".join([method + b" " + path + b" HTTP/1.1", b"Host: x", b"Connection: close", *lines, b"", b""])


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer else None


def test_long_keys(gateway):
    g = gateway(by_header(), http=HEADERS + "weir_log_denied @F@/denied;", start=False)
    g.config.write_text(g.config.read_text().replace("@F@", str(g.folder)))
    g.start()
    for key in (b"a" * 300, b"b" * 65536, b"c" * 120_000, b"%" * 4000):
        other = key[:-1] + b"z"  # a key that differs only at its end is another
        assert [status_of(raw(g.port, request(b"X-Key: " + key))) for _ in range(3)] == [200, 200, 429]
        assert status_of(raw(g.port, request(b"X-Key: " + other))) == 200
    assert all(line["rule"] == "r" for line in g.denied(4))
    assert all(len(line) < 4096 for line in (g.folder / "denied").read_text().splitlines())
    g.log(16)


def test_bytes_that_are_no_text(gateway):
    g = gateway(by_header(1), http="ignore_invalid_headers off; weir_log_denied @F@/denied;", start=False)
    g.config.write_text(g.config.read_text().replace("@F@", str(g.folder)))
    g.start()
    for key in (b"\xff\xfe\x80", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x98\x95", b'"\\', b"\x01\x1b[2J",
                b"\x7f", b"\t"):
        sent = request(b"X-Key: x" + key + b"y")
        answers = [raw(g.port, sent, until_closed=True) for _ in range(2)]
        assert [status_of(answer) for answer in answers] == [200, 429], key
        json.loads(answers[1].partition(b"\r\n\r\n")[2])
    g.denied(9)  # readable, whatever it was
    assert status_of(raw(g.port, request(b"X-Key: a\0b"))) == 400
    assert get(g.port, "/x").status == 200
    assert status_of(raw(g.port, request(path=b"/%00%ff%zz"))) == 400
    assert status_of(raw(g.port, request(path=b"/%ff%fe/\xff"))) == 200
    assert statuses(g.port, "/x", 2) == [200, 200]  # without the header the rule does not apply


def test_a_key_is_one_line_in_every_log(gateway):
    g = gateway(json.dumps({"rules": [{"name": "r", "key": "k:${query:u}", "limit": 1, "window": "1d"}]}),
                http="weir_log_denied @F@/denied;", start=False)
    g.config.write_text(g.config.read_text().replace("@F@", str(g.folder)))
    g.start()
    forged = "2026/01/01 00:00:00 [error] forged"
    for key in ("a%0A" + forged.replace(" ", "%20"), "%0d%0a%1b[2J%00", "%ff%22", "%00", "%01" * 200):
        assert statuses(g.port, f"/x?u={key}", 2) == [200, 429], key
    lines = g.errors().splitlines()
    assert not any(line.startswith(forged) for line in lines)
    denied = [line for line in lines if " denied by rule " in line]
    assert len(denied) == 5 and f'key "k:a\\u000a{forged}"' in denied[0], denied
    keys = [line["key"] for line in g.denied(5)]
    assert keys[1:] == ["k:\r\n\x1b[2J\0", 'k:\ufffd"', "k:\0", "k:" + "\1" * 189], keys
    wait_until(lambda: (g.folder / "access.log").read_bytes().count(b'"key":"k:\\u0000"') == 2, "the same in the access log")


def test_floods_of_headers(gateway):
    g = gateway(by_header(5), http=HEADERS)
    many = [b"X-Key: part%d" % i for i in range(900)]
    answers = [raw(g.port, request(*many)) for _ in range(6)]  # one key, of all the lines
    assert [status_of(answer) for answer in answers] == [200] * 5 + [429]
    assert status_of(raw(g.port, request(*many[:-1]))) == 200
    noise = [b"N%d: v" % i for i in range(900)]
    assert status_of(raw(g.port, request(*noise, b"X-Key: n"))) == 200
    assert status_of(raw(g.port, request(*[b"A: " + b"a" * 100_000] * 20))) == 400  # nginx's own bound
    assert get(g.port, "/x").status == 200


@pytest.mark.parametrize("mode", ["on", "dry_run"])
def test_a_second_line_is_no_other_key(gateway, backend, mode):
    """Of two lines an upstream may take either: with a key of its own for each request, nothing would limit who has one."""
    rules = """rules:
  - { name: r, key: "${header:X-API-Key}", limit: 2, window: 1h, algorithm: fixed_window }
  - { name: d, match: { header: { X-API-Key: "*" } }, key: "${header:X-Forwarded-For}", limit: 1000, window: 1h }
"""
    g = gateway(rules, weir=mode, server=f"location /api {{ proxy_pass {backend.url}; }}")

    def send_request(*lines):
        sent = "".join(f"{line}\r\n" for line in lines)
        answer = raw(g.port, f"GET /api HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{sent}\r\n".encode(), until_closed=True)
        return answer.split()[1], backend.last.get_all("X-API-Key"), backend.last.get_all("X-Forwarded-For")
    forwarded = "X-Forwarded-For: 192.0.2.1", "x-forwarded-for: 192.0.2.2"
    reply = ["real, 1, real", "", ""] if mode == "on" else ["real", "1", "real"]
    assert send_request("X-API-Key: real", "x-api-key: 1", *forwarded, "X-API-KEY: real") == (b"200", reply, ["192.0.2.1", "192.0.2.2"])
    assert send_request("X-API-Key: real") == (b"200", ["real"], None)
    assert send_request("X-API-Key: real, 1, real")[0] == b"200"  # the same key
    assert send_request("X-API-Key: real", "X-API-Key: 1", "X-API-Key: real")[0] == (b"429" if mode == "on" else b"200")


BLANKS = ["", "\t", " \t ", "\t\t\t"]
PADDED = [(before, after) for before in BLANKS for after in BLANKS]
OF_HEADERS = """
identity: { api_key: header:X-API-Key }
block: { keys: [user:666] }
rules:
  - { name: key, match: { path: /key }, key: "${api_key}", limit: 15, window: 1h, algorithm: fixed_window }
  - { name: user, match: { path: /user }, key: "user:${header:X-User}", limit: 1000, window: 1h }
  - { name: plan, match: { path: /plan, header: { X-Plan: free } }, limit: 0, window: 1h }
  - { name: cost, match: { path: /cost }, cost: header:X-Cost, limit: 150, window: 1h, algorithm: fixed_window }
  - { name: own-cost, match: { path: /own-cost }, limit: 150, window: 1h, algorithm: fixed_window }
  - { name: given, match: { path: /given }, key: "${account}", limit: 15, window: 1h, algorithm: fixed_window }
  - { name: cookie, match: { path: /cookie }, key: "${cookie:sid}", limit: 15, window: 1h, algorithm: fixed_window }
"""


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_white_space_around_a_value_is_no_part_of_it(gateway, backend, version):
    """Upstream servers strip it (RFC 9110, section 5.5): the 16 spellings of a value have one counter, one block-list entry, one
    match, one cost. nginx itself strips spaces of HTTP/1.1, but no tabs, and nothing of HTTP/2."""
    g = gateway(OF_HEADERS, listen="http2" if version == "2" else "", server=f"""weir_attribute account $http_x_account;
        location /user {{ proxy_pass {backend.url}; }}
        location /own-cost {{ weir_cost $http_x_cost; proxy_pass {backend.url}; }}""")
    connection = Http2(g.port, validate_outbound_headers=False, normalize_outbound_headers=False) if version == "2" else None

    def send_request(path, name, value):
        if connection:
            return connection.get(path, (name.lower(), value))
        return status_of(raw(g.port, request(f"{name}:{value}".encode(), path=path.encode())))

    def all_of(path, name, value):
        return [send_request(path, name, before + value + after) for before, after in PADDED]
    assert all_of("/key", "X-API-Key", "abc") == [200] * 15 + [429]
    assert all_of("/user", "X-User", "666") == [403] * 16
    assert all_of("/plan", "X-Plan", "free") == [403] * 16
    assert all_of("/cost", "X-Cost", "10") == [200] * 15 + [429]
    assert all_of("/own-cost", "X-Cost", "10") == [200] * 15 + [429]
    assert all_of("/given", "X-Account", "abc") == [200] * 15 + [429]
    assert all_of("/cookie", "Cookie", "sid=abc") == [200] * 15 + [429]
    # Blanks inside are the value's own; nothing but blanks is nothing.
    assert send_request("/key", "X-API-Key", "a\tbc") == 200
    assert [send_request("/key", "X-API-Key", blanks) for blanks in PADDED[5] * 10] == [200] * 20
    # The upstream gets the bytes that were counted.
    assert send_request("/user", "X-User", "\t 7\t") == 200 and backend.last["X-User"] == "7"


def test_white_space_around_each_line_of_a_header(gateway, backend):
    g = gateway(OF_HEADERS.replace("limit: 15", "limit: 1"), server=f"location /key {{ proxy_pass {backend.url}; }}")
    assert status_of(raw(g.port, request(b"X-API-Key:\ta\t", b"X-API-Key:\t", b"X-API-Key: b", path=b"/key"))) == 200
    assert backend.last.get_all("X-API-Key") == ["a, , b", "", ""]
    assert status_of(raw(g.port, request(b"X-API-Key: a", b"X-API-Key:", b"X-API-Key:b\t \t", path=b"/key"))) == 429


def test_cookies_of_several_lines(gateway):
    g = gateway(json.dumps({"rules": [{"name": "r", "key": "${cookie:sid}", "limit": 1, "window": "1d"}]}))
    lines = (b"Cookie: a=1; b=2", b"Cookie: sid=42; c=3", b"Cookie: d=4")
    assert [status_of(raw(g.port, request(*lines))) for _ in range(2)] == [200, 429]
    assert status_of(raw(g.port, request(b"Cookie: sid=42"))) == 429


def test_absurd_chains_of_forwarders(gateway):
    g = gateway(json.dumps({
        "identity": {"client_ip": {"trusted_proxies": ["127.0.0.0/8", "10.0.0.0/8"]}},
        "rules": [{"name": "r", "key": "ip:${client_ip}", "limit": 1, "window": "1d"}]}), http=HEADERS)
    hops = b", ".join(b"10.0.%d.%d" % (i // 250, i % 250) for i in range(5000))
    assert status_of(raw(g.port, request(b"X-Forwarded-For: 192.0.2.1, " + hops))) == 200
    for line in (b"X-Forwarded-For: " + b"," * 60_000, b"X-Forwarded-For: not an address", b"X-Forwarded-For: 999.1.1.1",
                 b"X-Forwarded-For: 1.2.3.4:99999999999", b"X-Forwarded-For: [::::]", b"X-Forwarded-For: \xff\xff",
                 b"Forwarded: for=\"[2001:db8::1\";;;;by=,,,", b"Forwarded: " + b"for=" * 10_000):
        assert status_of(raw(g.port, request(line))) in (200, 429)
    assert get(g.port, "/x", headers={"X-Forwarded-For": "198.51.100.1"}).status == 200


def test_broken_requests(gateway):
    g = gateway(json.dumps({"rules": [{"name": "r", "limit": 3, "window": "1d"}]}),
                server="error_page 400 494 /page.txt; location = /page.txt { root @FOLDER@/html; }")
    for data in (b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
                 b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"G" * 100_000, b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
                 b"GET http://h/x HTTP/1.1\r\nHost: \xff\r\n\r\n", b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"):
        raw(g.port, data, timeout=0.5)
    assert len(g.workers()) == 1
    assert set(statuses(g.port, "/x", 4)) <= {200, 429}


def test_denied_uploads(gateway):
    g = gateway(json.dumps({"rules": [{"name": "r", "limit": 0, "window": "1d"}]}), http="lingering_timeout 1s;")
    expect = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n"
    answer = raw(g.port, expect, until_closed=True)  # a client that asks first is not asked for its body
    assert answer.startswith(b"HTTP/1.1 403") and b"\r\nConnection: close\r\n" in answer
    with socket.create_connection(("127.0.0.1", g.port), timeout=20) as s:
        for _ in range(2):  # who sends it all the same goes on
            s.sendall(expect.replace(b"1000000", b"4") + b"body")
            answer = b""
            while not answer.endswith(b"}\n"):
                answer += s.recv(65536)
            assert b"HTTP/1.1 403" in answer and b"Connection: close" not in answer
    for data in (b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
                 b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf"):
        assert raw(g.port, data).startswith(b"HTTP/1.1 403")
    pipelined = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbodyGET /y HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", g.port), timeout=20) as s:
        s.sendall(pipelined * 10)
        seen = b""
        while seen.count(b"HTTP/1.1 403") < 20:
            got = s.recv(65536)
            assert got, seen  # it must not end
            seen += got


def test_a_unix_socket_has_no_address(gateway):
    g = gateway(json.dumps({"rules": [{"name": "r", "key": "ip:${client_ip}", "limit": 1, "window": "1d"}]}), start=False)
    g.config.write_text(g.config.read_text().replace(f"listen 127.0.0.1:{g.port} ;", f"listen unix:{g.folder}/socket;"))
    g.start()
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(g.folder / "socket"))
            s.sendall(request())
            assert status_of(s.recv(65536)) == 200  # no key: the rule does not apply


@pytest.mark.parametrize("policy, wanted", [("open", 200), ("closed", 503)])
def test_a_segment_without_room(gateway, policy, wanted):
    g = gateway(json.dumps({"rules": [{"name": "r", "key": "${query:u}", "limit": 60000, "window": "1d",
                                       "algorithm": "sliding_window_log", "on_store_failure": policy}]}), size="64k")
    c = http.client.HTTPConnection("127.0.0.1", g.port)
    seen = [get(g.port, "/x?u=1", connection=c).status for _ in range(1500)]  # a log that outgrows the slab
    failures = g.rule("r")["failures"]
    assert seen[0] == 200 and seen[-1] == wanted and 0 < failures < 1500
    assert seen.count(503) == (failures if policy == "closed" else 0)
    complaints = [line for line in g.errors().splitlines() if "WEIR_EFULL" in line]
    assert len(complaints) == 1 and "rule r" in complaints[0], complaints  # not one a request


def test_a_segment_without_room_for_a_log_still_limits(gateway):
    """`local`, the default: a counter that needs no room in the slab stands in for the log, and that is counted."""
    g = gateway(json.dumps({"rules": [{"name": "r", "limit": 1200, "window": "1d", "algorithm": "sliding_window_log"}]}),
                size="64k")
    c = http.client.HTTPConnection("127.0.0.1", g.port)
    seen = [get(g.port, "/x", connection=c).status for _ in range(1500)]  # a log that outgrows the slab
    assert seen == [200] * 1200 + [429] * 300
    assert 0 < g.rule("r")["failures"] < 1500
    assert g.status()["segment"]["slab_full"] == g.rule("r")["failures"]
    complaints = [line for line in g.errors().splitlines() if "WEIR_EFULL" in line]
    assert len(complaints) == 1 and "rule r" in complaints[0], complaints


def test_fresh_keys_do_not_reset_a_key_that_is_denied(gateway):
    g = gateway(json.dumps({"rules": [{"name": "r", "key": "${query:u}", "limit": 5, "window": "1d",
                                       "algorithm": "sliding_window_log"}]}), size="256k")  # 455 logs
    assert statuses(g.port, "/x?u=victim", 6) == [200] * 5 + [429]
    c = http.client.HTTPConnection("127.0.0.1", g.port)
    assert {get(g.port, f"/x?u={i // 2}", connection=c).status for i in range(3000)} == {200}
    segment = g.status()["segment"]
    assert segment["evicted_live"] > 500 and segment["evicted_denied"] == segment["slab_full"] == 0
    assert statuses(g.port, "/x?u=victim", 3) == [429] * 3


def test_a_request_that_cannot_be_decided(gateway):
    g = gateway(json.dumps({"rules": [{"name": f"r{i}", "match": {"path": "/x"}, "limit": 1, "window": "1d"}
                                      for i in range(257)]}))
    assert statuses(g.port, "/x", 5) == [200] * 5
    assert "X-RateLimit-Limit" not in get(g.port, "/x").headers
    assert {(line["decision"], line["rule"], line["limit"]) for line in g.log(6)} == {("error", "", "")}
    complaints = [line for line in g.errors().splitlines() if "passes undecided" in line]
    assert len(complaints) == 1 and "more than 256 rules" in complaints[0], complaints  # once a minute for each kind
    assert statuses(g.port, "/y", 2) == [200] * 2


def test_clients_of_ipv6(gateway):
    g = gateway(json.dumps({"rules": [{"name": "r", "key": "ip:${client_ip}", "limit": 1, "window": "1d"}]}), start=False)
    g.config.write_text(g.config.read_text().replace(f"listen 127.0.0.1:{g.port} ;", f"listen [::]:{g.port} ipv6only=off;"))
    g.start()
    for address in ("::1", "127.0.0.1"):
        for wanted in (200, 429):
            with socket.create_connection((address, g.port)) as s:
                s.sendall(request())
                assert status_of(s.recv(65536)) == wanted
    assert [line["key"] for line in g.log(4)] == ["ip:::/64"] * 2 + ["ip:127.0.0.1"] * 2
