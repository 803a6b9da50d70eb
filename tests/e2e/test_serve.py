"""weir serve: starting, reloading, stopping, and what becomes of it when something dies."""
import fcntl
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

from clients import get, raw
from gateway import wait_until
from measured import measured
from ports import free_port
from served import ENVIRONMENT, WEIR, Backend, certificate, open_folder
from serving import HEAD, RULES


# ---- Starting and stopping ----

def test_it_runs_and_stops(serve):
    one = serve()
    for what in (f"gateway on http://127.0.0.1:{one.port}", f"/* goes to {one.backend.url}", "1 rule from weir.yaml",
                 f"{one.folder}/segment", f"metrics on http://127.0.0.1:{one.metrics}/metrics"):
        one.wait_for_log(what)
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    assert one.get("/other").status == 200
    assert (one.runtime_dir.stat().st_mode & 0o777) in (0o700, 0o710)
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    assert "stopped" in one.log_text() and "error" not in one.log_text()
    assert one.nothing_left()


def test_plans_by_key(serve):
    """Rules inside weir.yaml name a file beside it, which is reloaded; a broken one changes nothing."""
    one = serve(HEAD.replace("workers: 2", "workers: 1") + """identity:
  api_key: header:X-API-Key
  tier: { from: api_key, file: plans.csv, default: free }
rules:
  - { name: api, key: "key:${api_key}", limit: { free: 5, pro: 50, default: 1 }, window: 1h, on_missing_key: share }
""", start=False)

    def put(text):
        (one.folder / ".new").write_text(text)
        (one.folder / ".new").rename(one.folder / "plans.csv")

    def limit(key):
        return one.get("/x", headers={"X-API-Key": key}).headers["X-RateLimit-Limit"]

    done = one.run()
    assert done.returncode == 1 and f"weir.yaml:9:32: error: {one.folder}/plans.csv cannot be read: No such file" in done.stderr
    put("k-1,pro\n")
    one.start()
    assert [limit("k-1"), limit("k-2")] == ["50", "5"]
    put("k-2,pro\nk-3,gone\n")
    wait_until(lambda: limit("k-2") == "50" and limit("k-1") == "5" and limit("k-3") == "1", "the new plans")
    put("k-1,pro\nk-2;pro\n")
    one.wait_for_log(f"{one.folder}/plans.csv:2:1: expected a key and a value with a comma between them")
    assert [limit("k-1"), limit("k-2")] == ["5", "50"] and "k-2;pro" not in one.log_text()
    put(f"sha256:{hashlib.sha256(b'k-1').hexdigest()},pro\n")
    wait_until(lambda: limit("k-1") == "50" and limit("k-2") == "5", "the hashed key")


def test_counters_outlive_it(serve):
    one = serve()
    assert one.get("/two").headers["X-RateLimit-Remaining"] == "1"
    one.signal(signal.SIGINT)
    assert one.end() == 0
    one.start()
    assert one.get("/two").headers["X-RateLimit-Remaining"] == "0"


def test_children_of_others_are_not_waited_for(serve):
    """sh -c 'tail -f some.log & exec weir serve' is how many containers start."""
    one = serve(start=False)
    one.log_file = one.folder / "log.txt"
    with open(one.log_file, "wb") as output:
        one.process = subprocess.Popen(["sh", "-c", f"sleep 600 & echo $! >pid; exec {WEIR} serve weir.yaml"],
                                       cwd=one.folder, env=ENVIRONMENT, stderr=output)
    one.wait_for_log("is running")
    one.signal(signal.SIGTERM)
    try:
        assert one.end() == 0
    finally:
        os.kill(int((one.folder / "pid").read_text()), signal.SIGKILL)


def test_requests_under_way_end(serve):
    one = serve()
    answers = []
    asking = threading.Thread(target=lambda: answers.append(one.get("/slow/1").status))
    asking.start()
    wait_until(lambda: one.backend.requests, "the request")
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    asking.join()
    assert answers == [200]
    assert one.nothing_left()


def test_signals_that_nginx_knows(serve):
    """logrotate sends SIGUSR1, and who is used to nginx SIGQUIT for a stop: neither may cut off who is being served."""
    one = serve(HEAD + RULES + 'access_log: "@FOLDER@/access.log"\n')
    log = one.folder / "access.log"
    log.rename(one.folder / "access.log.1")
    one.signal(signal.SIGUSR1)
    one.wait_for_log("reloaded")
    one.signal(signal.SIGUSR2)
    wait_until(lambda: one.get("/x").status == 200 and log.read_text(), "a line in the log that was opened anew")
    c = http.client.HTTPConnection("127.0.0.1", one.port, timeout=20)
    before = one.backend.requests
    c.request("GET", "/slow/1")
    wait_until(lambda: one.backend.requests > before, "the request")
    one.signal(signal.SIGQUIT)
    assert c.getresponse().status == 200
    assert one.end() == 0 and one.log_text().count("stopped") == 1
    assert one.nothing_left()


@measured
def test_a_second_signal_hurries(serve):
    one = serve()
    c = http.client.HTTPConnection("127.0.0.1", one.port, timeout=20)
    fetch = one.backend.requests
    c.request("GET", "/slow/30")
    wait_until(lambda: one.backend.requests > fetch, "the request")
    before = time.monotonic()
    one.signal(signal.SIGTERM)
    one.wait_for_log("stopping")
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    assert time.monotonic() - before < 8  # and not the 10 s that requests are given
    assert one.nothing_left()


def test_headers_for_upstreams(serve):
    one = serve()
    reply = json.loads(one.get("/x%2fy?q=1", headers={"X-Forwarded-For": "192.0.2.1"}).body)
    assert reply["path"] == "/x%2fy?q=1"
    headers = reply["headers"]
    assert headers["Host"] == f"127.0.0.1:{one.port}" == headers["X-Forwarded-Host"]
    assert headers["X-Forwarded-For"] == "192.0.2.1, 127.0.0.1"
    assert headers["X-Forwarded-Proto"] == "http" and headers["X-Real-IP"] == "127.0.0.1"
    assert "Connection" not in headers and "Upgrade" not in headers
    reply = json.loads(one.get("/", headers={"Upgrade": "websocket", "Connection": "upgrade"}).body)
    assert reply["headers"]["Upgrade"] == "websocket" and reply["headers"]["Connection"] == "upgrade"
    reply = json.loads(one.get("/", headers={"Upgrade": "h2c, websocket", "Connection": "upgrade"}).body)
    assert "Connection" not in reply["headers"] and "Upgrade" not in reply["headers"]
    assert json.loads(one.get("/", method="POST", body=b"x" * 2000000).body)["length"] == 2000000
    assert one.get("/", method="POST", body=b"x", headers={"Content-Length": "99999999"}).status == 413


def test_the_host_that_is_limited_is_the_one_that_is_served(serve):
    """A request line may name a host, too, and then that counts: upstreams must not see another one, from the header."""
    one = serve(HEAD + """rules:
  - { name: shop, match: { host: shop.example }, limit: 4, window: 1h, algorithm: fixed_window }
""")

    def request(line, header="", version="1.1"):
        answer = raw(one.port, f"GET {line} HTTP/{version}\r\n{header}Connection: close\r\n\r\n".encode(), until_closed=True)
        return answer.split()[1].decode(), one.backend.last["Host"]
    for line, header, host in (("/", "shop.example", "shop.example"), ("/", "Shop.example:81", "Shop.example:81"),
                               ("http://shop.example/", "other.example", "shop.example"),
                               ("http://shop.example:82/", "shop.example", "shop.example:82")):
        assert request(line, f"Host: {header}\r\n") == ("200", host)
    for line, header in (("/", "shop.example"), ("http://shop.example/", "other.example"), ("http://SHOP.example:/", "a")):
        assert request(line, f"Host: {header}\r\n")[0] == "429"
    for line, host in (("http://other.example/", "other.example"), ("http://other.example", "other.example")):
        assert request(line, "Host: shop.example\r\n") == ("200", host)  # not the shop's
    assert request("/", version="1.0") == ("200", "localhost")


def test_the_client_behind_a_trusted_proxy(serve):
    one = serve(HEAD + "rules: rules.yaml\naccess_log: { path: access.log, format: json }\n", start=False)
    (one.folder / "rules.yaml").write_text(json.dumps({
        "identity": {"client_ip": {"trusted_proxies": ["127.0.0.1"]}},
        "rules": [{"name": "two", "match": {"path": "/two"}, "limit": 2, "window": "1h"}]}))
    one.start()
    reply = json.loads(one.get("/x", headers={"X-Forwarded-For": "192.0.2.1"}).body)
    assert reply["headers"]["X-Real-IP"] == "192.0.2.1"
    assert reply["headers"]["X-Forwarded-For"] == "192.0.2.1, 127.0.0.1"
    log = one.folder / "access.log"
    wait_until(lambda: log.exists() and log.read_text(), "the access log")
    assert json.loads(log.read_text().splitlines()[0])["client"] == "192.0.2.1"


def test_a_client_cannot_cut_its_line_in_the_access_log(serve):
    """Long values that are escaped: each is cut, and the line has its status and its decision."""
    one = serve(HEAD + RULES + "access_log: { path: access.log, format: json }\n")
    log = one.folder / "access.log"
    for path in ("/" + "%22" * 2600, "/" + "%01" * 2600, "/" + "a" * 7800):
        assert one.get(path, headers={"Host": "h" * 200}).status == 200
    wait_until(lambda: log.exists() and log.read_text().count("\n") >= 3, "three lines")
    for line in log.read_text().splitlines():
        reply = json.loads(line)
        assert reply["status"] == 200 and "decision" in reply and "rule" in reply and len(reply["path"]) > 100
    assert log.stat().st_mode & 0o777 == 0o640


def test_a_response_for_all_rules(serve):
    one = serve(HEAD + """identity: { client_ip: { trusted_proxies: [127.0.0.1] } }
block: { networks: [192.0.2.0/24] }
response: { status: 503, headers: [], body: { text: Later }, message: Wait }
rules:
  - { name: quiet, match: { path: /quiet }, limit: 1, window: 1h }
  - { name: told, match: { path: /told }, limit: 1, window: 1h, response: { headers: [draft, retry-after], body: json } }
""", start=False)
    done = one.run("--check")
    assert done.returncode == 0, done.stderr
    one.start()

    def fetch(path, **headers):
        answer = one.get(path, headers=headers)
        names = {name.lower() for name in answer.headers}
        return answer, sorted(name for name in names if "ratelimit" in name or name == "retry-after")

    answer, names = fetch("/quiet")
    assert answer.status == 200 and names == []
    answer, names = fetch("/quiet")
    assert (answer.status, answer.body, names) == (503, b"Later", [])
    answer, names = fetch("/told")
    assert answer.status == 200 and names == ["ratelimit", "ratelimit-policy"]
    answer, names = fetch("/told")
    assert answer.status == 503 and names == ["ratelimit", "ratelimit-policy", "retry-after"]
    assert json.loads(answer.body)["message"] == "Wait"
    answer, names = fetch("/none", **{"X-Forwarded-For": "192.0.2.7"})  # blocked: not a limit
    assert (answer.status, json.loads(answer.body)["error"], names) == (403, "blocked", [])

    weir_yaml = one.folder / "weir.yaml"
    weir_yaml.write_text(weir_yaml.read_text().replace("status: 503", "status: 200"))
    line = weir_yaml.read_text()[:weir_yaml.read_text().index("response:")].count("\n") + 1
    done = one.run("--check")
    assert done.returncode == 1
    assert f"weir.yaml:{line}:21: error: status must be a number from 400 to 599, not 200" in done.stderr, done.stderr


def test_no_tunnel_past_the_limits(serve):
    """A server that is ready to switch to HTTP/2 would answer any number of requests that weir never sees."""
    seen = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        def switch():
            with server.accept()[0] as c:
                seen.append(c.recv(65536))
                c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
                          if b"h2c" in seen[0] else b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                seen.append(c.recv(65536))
        thread = threading.Thread(target=switch)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        one = serve(HEAD.replace("@BACKEND@", url) + RULES)
        with socket.create_connection(("127.0.0.1", one.port), timeout=10) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
                           b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n")
            client.recv(65536)
            client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        one.signal(signal.SIGTERM)  # ends the connection that is kept to the server
        thread.join()
    assert b"h2c" not in seen[0] and seen[1] == b"", seen


def test_a_server_does_not_redirect_requests_to_another(serve, backend):
    """nginx follows X-Accel-Redirect by default: to any path, with the client's headers, and past the rules for it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def answer():
            for _ in range(2):
                with server.accept()[0] as c:
                    c.recv(65536)
                    c.sendall(b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /inner/x\r\nContent-Length: 5\r\n"
                              b"Connection: close\r\n\r\nouter")
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        routes = f"""
    - {{ path: /outer/*, servers: ["http://127.0.0.1:{server.getsockname()[1]}"] }}
    - {{ path: "*", servers: [@BACKEND@] }}"""
        one = serve(HEAD.replace(" [@BACKEND@]", routes) + RULES)
        for _ in range(2):
            reply = one.get("/outer/x", headers={"X-API-Key": "secret"})
            assert (reply.status, reply.body, reply.headers.get("X-Accel-Redirect")) == (200, b"outer", None)
        thread.join()
    assert backend.requests == 0


# ---- Reloading ----

def remaining(answer):
    return answer.headers["X-RateLimit-Remaining"]


def test_hangup_reloads(serve):
    one = serve()
    assert remaining(one.get("/two")) == "1"
    before = one.workers()
    one.signal(signal.SIGHUP)
    one.wait_for_log("reloaded")
    wait_until(lambda: not before & one.workers(), "new workers")
    assert remaining(one.get("/two")) == "0"


@pytest.mark.parametrize("what", ["hangup", "change", "upgrade"])
def test_what_comes_while_it_starts_is_taken_up(serve, what):
    """nginx's test of the file takes as long as it takes to look names up."""
    one = serve(start=False)
    slow = one.folder / "nginx"
    slow.write_text(f'#!/bin/sh\ncase " $* " in *" -t "*) echo >>{one.folder}/tried; sleep 1;; esac\n'
                    'exec /usr/sbin/nginx "$@"\n')
    slow.chmod(0o755)
    one.start(env={**ENVIRONMENT, "WEIR_NGINX": str(slow)}, running=False)
    wait_until((one.folder / "tried").exists, "the test")
    if what == "upgrade":  # which a reload does not displace
        one.signal(signal.SIGUSR2)
        wait_until(lambda: len((one.folder / "tried").read_text()) > 1, "the second test")
    if what == "change":
        one.change("limit: 2", "limit: 5")
    else:
        one.signal(signal.SIGHUP)
    one.wait_for_log("is running")
    if what == "upgrade":
        one.wait_for_log("has taken over")
    one.wait_for_log("reloaded")
    wait_until(lambda: one.get("/two").headers["X-RateLimit-Limit"] == ("5" if what == "change" else "2"), "the limit")


def test_a_changed_file_reloads_and_a_broken_one_does_not(serve):
    one = serve()
    assert remaining(one.get("/two")) == "1"
    one.change("limit: 2", "limit: 5")
    one.wait_for_log("reloaded")
    wait_until(lambda: one.get("/two").headers["X-RateLimit-Limit"] == "5", "the new limit")

    one.change("limit: 5", "limt: 7")
    one.wait_for_log("the previous configuration stays active")
    assert re.search(r"error: weir\.yaml:10:5: .*\"limt\".*did you mean 'limit'", one.log_text()), one.log_text()
    assert one.get("/two").headers["X-RateLimit-Limit"] == "5"

    one.change("limt: 7", "limit: 9")
    one.wait_for_log("reloaded", 2)
    wait_until(lambda: one.get("/two").headers["X-RateLimit-Limit"] == "9", "the new limit")
    assert sorted(path.name for path in one.runtime_dir.glob("rules.*")) == ["rules.1.yaml", "rules.2.yaml"]


def test_a_file_that_is_gone(serve):
    one = serve()
    one.file.rename(one.folder / "away")
    one.wait_for_log("weir.yaml does not exist; the running configuration stays active")
    assert one.get().status == 200
    (one.folder / "away").rename(one.file)
    one.wait_for_log("weir.yaml exists again")
    one.signal(signal.SIGHUP)
    one.wait_for_log("reloaded")


def test_listeners_come_and_go(serve):
    one = serve()
    old, new = one.port, free_port()
    one.change(f"127.0.0.1:{old}", f"[127.0.0.1:{old:5}, 127.0.0.1:{new}]")
    one.wait_for_log("reloaded")
    assert get(old).status == get(new).status == 200

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        one.change(f":{new}]", f":{port}]")
        one.wait_for_log("the previous configuration stays active")
        one.wait_for_log(f"weir.yaml:2:29: 127.0.0.1:{port} is in use already")
        assert get(old).status == get(new).status == 200

    one.change(f", 127.0.0.1:{port}]", "]")
    one.wait_for_log("reloaded", 2)

    def closed():
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", new)) != 0
    wait_until(closed, "the end of the second listener")
    assert get(old).status == 200


def test_rules_on_disk_are_the_workers_business(serve):
    one = serve(HEAD + "rules: rules.d\n", start=False)
    rules = one.folder / "rules.d"
    rules.mkdir()
    (rules / "a.yaml").write_text(RULES)
    one.start()
    one.wait_for_log(f"1 rule from {rules}")
    assert one.get("/two").headers["X-RateLimit-Limit"] == "2"
    (rules / "new").write_text(RULES.replace("limit: 2", "limit: 4"))
    (rules / "new").rename(rules / "a.yaml")
    wait_until(lambda: one.get("/two").headers["X-RateLimit-Limit"] == "4", "the new limit")
    (rules / "new").write_text(RULES.replace("limit: 4", "limt: 4"))
    (rules / "new").rename(rules / "a.yaml")
    time.sleep(0.1)
    assert "reloaded weir.yaml" not in one.log_text()


def test_no_request_fails_while_it_reloads(serve):
    one = serve()
    statuses, stop = set(), threading.Event()

    def request():
        while not stop.is_set():
            statuses.add(one.get().status)

    asking = [threading.Thread(target=request) for _ in range(2)]
    for each in asking:
        each.start()
    for i in range(3):
        one.signal(signal.SIGHUP)
        one.wait_for_log("reloaded", i + 1)
    stop.set()
    for each in asking:
        each.join()
    assert statuses == {200}


# ---- Death ----

def test_the_death_of_nginx_is_noticed(serve):
    one = serve()
    os.kill(one.group, signal.SIGKILL)
    assert one.end() == 1
    one.wait_for_log("nginx killed by signal 9")
    assert one.nothing_left()


def test_a_killed_worker_is_restarted(serve):
    one = serve()
    before = one.workers()
    os.kill(int(min(before)), signal.SIGKILL)
    wait_until(lambda: len(one.workers()) == 2 and one.workers() != before, "a new worker")
    assert one.get().status == 200
    one.wait_for_log("exited on signal 9")
    assert one.process.poll() is None


@pytest.mark.xdist_group("folders")
def test_its_own_death_takes_nginx_along(serve):
    one = serve()
    with open_folder(one.runtime_dir) as folder, pytest.raises(BlockingIOError):  # in use: those that clean /tmp by age leave it alone
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    one.signal(signal.SIGKILL)
    one.end()
    one.nothing_left()
    left = one.runtime_dir  # nobody was left to remove it, but the next one that starts on this machine
    one.start()
    assert not left.exists() and one.get().status == 200


# ---- Upstreams ----

def test_a_dead_upstream_is_left_out(serve, backend):
    dead = free_port()
    one = serve(HEAD.replace("[@BACKEND@]", f"[http://127.0.0.1:{dead}, @BACKEND@]") + RULES)
    assert [one.get().status for _ in range(30)] == [200] * 30
    refused = [line for line in one.log_text().splitlines() if "Connection refused" in line]
    assert 1 <= len(refused) <= 6, one.log_text()  # three failures, then ten seconds without a try


def test_upstreams_share_the_load(serve, backend):
    other = Backend("b")
    try:
        one = serve(HEAD.replace("[@BACKEND@]", f"[{other.url}, @BACKEND@]").replace("workers: 2", "workers: 1") + RULES)
        names = [json.loads(one.get().body)["name"] for _ in range(10)]
        assert sorted(names) == ["a"] * 5 + ["b"] * 5
    finally:
        other.stop()


def test_upstreams_by_path(serve, backend):
    other = Backend("b")
    try:
        by_path = f"""
    - {{ path: /api/*, servers: [{other.url}] }}
    - {{ path: /one, servers: {other.url} }}
    - {{ path: /a/*, servers: [@BACKEND@] }}"""
        one = serve(HEAD.replace(" [@BACKEND@]", by_path) + RULES)

        def name(path):
            answer = one.get(path)
            return json.loads(answer.body)["name"] if answer.status == 200 else answer.status

        assert [name("/api/x"), name("/api/"), name("/one"), name("/a/b")] == ["b", "b", "b", "a"]
        assert [name("/api"), name("/one/x"), name("/"), name("/apix")] == [404] * 4
        assert [name("/two") for _ in range(3)] == [404, 404, 429]  # rules apply where nobody answers, too
    finally:
        other.stop()


def test_https_upstreams(serve, tmp_path):
    tls = certificate(tmp_path)
    secure = Backend("secure", tls)
    try:
        text = HEAD.replace("[@BACKEND@]", f"[https://localhost:{secure.port}]")
        one = serve(text.replace("gateway:\n", f"gateway:\n  upstream_tls: {{ ca: {tls[0]} }}\n") + RULES)
        assert json.loads(one.get().body)["name"] == "secure"
        one.change(f"ca: {tls[0]}", f"ca: {certificate(tmp_path, 'other')[0]}")
        one.wait_for_log("reloaded")
        wait_until(lambda: one.get().status == 502, "a refusal")
        one.change("upstream_tls: { ca:", "upstream_tls: { verify: false, ca:")
        one.wait_for_log("reloaded", 2)
        wait_until(lambda: one.get().status == 200, "an answer")
    finally:
        secure.stop()


# ---- TLS ----

def secure_get(port, ca, protocols=("http/1.1",)):
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(list(protocols))
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as s:
            return s.selected_alpn_protocol(), s.getpeercert()["subject"][0][0][1]


def test_tls(serve, tmp_path):
    tls = certificate(tmp_path)
    text = HEAD.replace("gateway:\n", f"gateway:\n  tls: {{ certificate: {tls[0]}, key: {tls[1]} }}\n") + RULES
    one = serve(text)
    one.wait_for_log(f"gateway on https://127.0.0.1:{one.port}")
    assert secure_get(one.port, tls[0]) == ("http/1.1", "server")
    assert secure_get(one.port, tls[0], ("h2", "http/1.1")) == ("h2", "server")
    c = http.client.HTTPSConnection("localhost", one.port, context=ssl.create_default_context(cafile=tls[0]))
    assert [get(one.port, "/two", connection=c).status for _ in range(3)] == [200, 200, 429]
    c.close()

    for old, new in zip(tls, certificate(tmp_path, "renewed")):
        os.rename(new, old)
    one.wait_for_log("reloaded")

    def renewed():
        try:
            return secure_get(one.port, tls[0])[1] == "renewed"
        except ssl.SSLError:  # an old worker still
            return False
    wait_until(renewed, "the new certificate")


# ---- Logs ----

def test_logs(serve):
    one = serve(HEAD + RULES + """log: { format: json }
access_log: { path: "@FOLDER@/access.log" }
denied_log: { path: "@FOLDER@/denied.log", hash_keys: true }
""")
    for _ in range(3):
        one.get("/two?x=%22")
    lines = [json.loads(line) for line in one.log_text().splitlines()]
    assert all(line["level"] == "info" and line["time"].endswith("Z") for line in lines)
    assert any("is running" in line["message"] for line in lines)

    def logged(name):
        path = one.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()]

    wait_until(lambda: len(logged("access.log")) == 3, "the access log")
    lines = sorted(logged("access.log"), key=lambda line: line["status"])  # two workers, no order
    assert [line["status"] for line in lines] == [200, 200, 429]
    assert lines[2]["decision"] == "deny" and lines[2]["rule"] == "two"
    wait_until(lambda: [line["rule"] for line in logged("denied.log")] == ["two"], "the log of denied requests")
    # Nobody finds out the client by hashing all addresses; a reload changes nothing about the hash.
    assert re.fullmatch("~[0-9a-f]{16}", logged("denied.log")[0]["client"])
    one.signal(signal.SIGHUP)
    one.wait_for_log("reloaded")
    one.get("/two")
    assert len({line["client"] for line in wait_until(lambda: len(logged("denied.log")) == 2 and logged("denied.log"),
                                                      "the second line")}) == 1


def test_logs_on_standard_error(serve):
    one = serve(HEAD + RULES + "access_log: stderr\ndenied_log: stderr\nlog: { path: serve.log }\n", start=False)
    with open(one.folder / "serve.log", "w") as output:
        output.write("before\n")
    one.log_file = one.folder / "serve.log"
    process = subprocess.Popen([WEIR, "serve", "weir.yaml"], cwd=one.folder, env=ENVIRONMENT)
    one.process = process
    one.wait_for_log("is running")
    for _ in range(3):
        one.get("/two")
    one.wait_for_log('"GET /two HTTP/1.1" 200', 2)
    one.wait_for_log('"GET /two HTTP/1.1" 429')
    one.wait_for_log('"rule":"two"')
    assert one.log_text().startswith("before\n")


def test_logs_that_are_not_read(serve):
    """A stopped terminal, or a log collector that hangs, does not stop the gateway."""
    one = serve(HEAD + RULES + "access_log: stderr\n", start=False)
    reading, writing = os.pipe()
    one.process = subprocess.Popen([WEIR, "serve", "weir.yaml"], cwd=one.folder, env=ENVIRONMENT, stderr=writing)
    os.close(writing)
    enough = threading.Timer(30, one.process.kill)  # or a line that never comes would be waited for
    enough.start()
    with open(reading, encoding="utf-8", errors="replace") as output:
        assert "is running" in output.readline()
        connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=10)
        for _ in range(700):  # 2 MiB
            assert one.get("/x", headers={"User-Agent": "a" * 3000}, connection=connection).status == 200
        connection.close()
        # The report precedes the next line that is written. The worker's thread and weir serve may still be at the lines before, so a
        # few requests follow, one after the other.
        reported = threading.Event()

        def go_on():
            while not reported.wait(0.1):
                assert one.get("/x").status == 200
        others = threading.Thread(target=go_on)
        others.start()
        try:
            loss = re.compile('log lines dropped: the reader is too slow|lines for "/dev/stderr" were dropped')  # by weir serve, or a worker
            while (line := output.readline()) and not loss.search(line):
                pass
            assert line, "the loss was not reported"
        finally:
            reported.set()
            others.join()
        one.signal(signal.SIGTERM)
        output.read()
    enough.cancel()
    assert one.end() == 0


def test_what_clients_write_into_logs(serve):
    """It is logged as theirs, whatever it contains, and hides nothing."""
    gone = free_port()
    one = serve(HEAD.replace("@BACKEND@", f"http://127.0.0.1:{gone}") + RULES +
                "access_log: stderr\nlog: { format: json }\n")
    one.get("/mark", headers={"User-Agent": "b"})
    one.wait_for_log('"path":"/mark"')
    before = next(line for line in one.log_text().splitlines() if "/mark" in line).index("/mark") + 1
    # The second piece of a long line looks like a line of nginx's own.
    output = "2026/11/15%2007:00:00%20[emerg]%201#1:%20forged".replace("#", "%23")
    one.get("/" + "a" * (4096 - before) + output)
    one.wait_for_log("forged")
    assert '"message":"nginx: forged' not in one.log_text()
    for referrer in (b"a client request body is buffered to a temporary file", b"x in /y/nginx.conf:9", b"\xff\x9b"):
        raw(one.port, b"GET /referred\xfe HTTP/1.1\r\nHost: a\r\nReferer: " + referrer + b"\r\n\r\n")
    one.wait_for_log("GET /referred", 3)
    reply = [json.loads(line.decode()) for line in one.log_file.read_bytes().splitlines() if b'"level"' in line]
    referrers = [line["message"].rpartition("referrer: ")[2] for line in reply if "referred" in line["message"]]
    assert referrers == ['"a client request body is buffered to a temporary file"', '"x in /y/nginx.conf:9"',
                         '"\\xff\\x9b"']
