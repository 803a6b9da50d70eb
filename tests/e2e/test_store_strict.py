"""Strict rules: several hosts, one limit, exactly; and how the store is reached."""
import collections
import http.client
import json
import re
import subprocess
import time

import pytest

from clients import get, statuses
from gateway import wait_until
from measured import measured
from relay import Relay
from served import WEIR, Backend, Served, certificate
from stores import anonymous_tls, openssl_with_anonymous_ciphers
from strict import ALGORITHMS, hammer, key, rules, strict


# ---- Many hosts, one limit ----

@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_three_hosts_share_one_limit_exactly(redis_server, hosts, algorithm):
    server = redis_server()
    three = hosts(server, 3, rules(strict(more=ALGORITHMS[algorithm])), workers=2)
    names = [f"k{i}" for i in range(200)]
    passed = hammer([host.port for host in three], names, 9)
    assert {passed[name] for name in names} == {5}, collections.Counter(passed.values())
    assert len(list(server.client().scan_iter("weir:five:*", count=1000))) == 200
    for host in three:
        assert host.status()["store"]["up"] and host.rule("five")["failures"] == 0


def test_two_served_hosts_share_one_limit(redis_server):
    server, backend = redis_server(), Backend()
    yaml = """
segment: { path: @FOLDER@/segment, size: 4MiB }
workers: 2
store: { url: "%s", prefix: shop, deadline: 3s }
gateway: { listen: 127.0.0.1:@PORT@, upstreams: ["@BACKEND@"] }
metrics: 127.0.0.1:@METRICS@
%s""" % (server.url(), rules())
    two = [Served(yaml, backend).start() for _ in range(2)]
    try:
        two[0].wait_for_log(f"store {server.url()}")
        seen = [two[i % 2].get("/", **key("a")).status for i in range(12)]
        assert seen == [200] * 5 + [429] * 7
        assert set(server.client().keys()) - {b"shop::hosts"} == {b"shop:five:a"}  # agents tell who they are, after a while
        metrics = get(two[0].metrics, "/metrics").body.decode()
        assert re.search(r"^weir_store_up 1$", metrics, re.M)
        assert int(re.search(r"^weir_store_requests_total (\d+)$", metrics, re.M)[1]) >= 3
        assert 'weir_store_failures_total{reason="slow"} 0' in metrics
    finally:
        for one in two:
            one.remove()
        backend.stop()


UNSET = """
segment: { path: @FOLDER@/segment, size: 4MiB }
workers: 1
store: { url: "%s", deadline: 3s, sync_interval: 20ms }
gateway: { listen: 127.0.0.1:@PORT@, upstreams: ["@BACKEND@"] }
rules:
  - { name: fixed, match: { path: /fixed }, limit: 2, window: 1d, algorithm: fixed_window }
  - { name: log, match: { path: /log }, limit: 2, window: 1d, algorithm: sliding_window_log }
  - { name: counter, match: { path: /counter }, limit: 2, window: 1d, algorithm: sliding_window_counter }
  - { name: bucket, match: { path: /bucket }, limit: 2, window: 1d }
  - { name: here, match: { path: /here }, limit: 2, window: 1d, algorithm: fixed_window, consistency: local }
"""
HOSTS = ["counts over all hosts, exact: fixed, log, counter", "counts over all hosts, exchanged every 20 ms: bucket",
         "counts on each host: here"]


def test_unset_consistency_counts_over_all_hosts(redis_server, serve):
    """And the log, --check and lint state it for each rule."""
    text = UNSET % redis_server().url()
    two = [serve(text), serve(text)]
    for name in ("fixed", "log", "counter"):
        assert [two[i % 2].get(f"/{name}").status for i in range(4)] == [200, 200, 429, 429], name
    assert [two[i % 2].get("/here").status for i in range(6)] == [200] * 4 + [429] * 2
    assert two[0].get("/bucket").status == 200
    wait_until(lambda: two[1].get("/bucket").status == 429, "the other host's request")
    wait_until(lambda: two[0].get("/bucket").status == 429, "the other host's request")
    for line in HOSTS:
        two[0].wait_for_log(line)
    assert two[0].run("--check").stdout.splitlines()[1:] == HOSTS
    linted = subprocess.run([WEIR, "lint", two[0].file], capture_output=True, text=True, timeout=60)
    assert linted.stdout.splitlines()[-3:] == HOSTS
    two[0].change("deadline: 3s", "deadline: 3s, consistency: local")
    two[0].wait_for_log("counts on each host: fixed, log, counter, bucket, here")
    wait_until(lambda: two[0].get("/fixed").status == 200, "a worker that counts on its host")
    assert two[1].get("/fixed").status == 429


def test_denials_cost_the_store_nothing_after_the_first(redis_server, hosts):
    server = redis_server()
    one, = hosts(server, 1, workers=2)
    assert statuses(one.port, "/", 6, **key("a")) == [200] * 5 + [429]
    before = server.calls()
    assert set(statuses(one.port, "/", 100, **key("a"))) == {429}
    assert server.calls() == before
    assert statuses(one.port, "/", 1, **key("b")) == [200]
    assert server.calls() == before + 1


def test_several_rules_take_together_or_not_at_all(redis_server, hosts):
    text = rules(strict("wide", 10), strict("narrow", 3), "  - { name: here, key: '${header:x-key}', limit: 100, window: 1h }\n")
    server = redis_server()
    one, other = hosts(server, 2, text)
    assert [get(h.port, "/", **key("a")).status for h in (one, other, one, other, one)] == [200] * 3 + [429] * 2
    answer = get(one.port, "/", **key("a"))
    assert answer.status == 429 and 'by rule "narrow"' in one.errors()
    assert sum(host.rule("here")["allowed"] for host in (one, other)) == 3


def test_what_a_local_rule_denies_costs_the_store_nothing(redis_server, hosts):
    text = rules(strict("wide", 10), "  - { name: here, key: '${header:x-key}', limit: 2, window: 1h }\n")
    server = redis_server()
    one, = hosts(server, 1, text)
    assert statuses(one.port, "/", 2, **key("a")) == [200] * 2
    before = server.calls()
    assert set(statuses(one.port, "/", 20, **key("a"))) == {429}
    assert server.calls() == before


def test_clients_that_leave_stay_charged(redis_server, hosts):
    """Their request is in flight: a refund would cost the store a second script, without a benefit."""
    server = redis_server()
    one, = hosts(server, 1)
    assert get(one.port, "/", **key("warm")).status == 200
    before = server.calls()
    server.pause()
    waiting = [http.client.HTTPConnection("127.0.0.1", one.port) for _ in range(5)]
    for c in waiting:
        c.request("GET", "/", headers={"X-Key": "a"})
    wait_until(lambda: one.status()["store"]["requests"] >= 6, "their questions")
    for c in waiting:
        c.close()
    wait_until(lambda: one.errors().count("prematurely closed") >= 5, "their end")
    server.resume()
    wait_until(lambda: server.calls() > before, "their questions to be answered")
    wait_until(lambda: get(one.port, "/", **key("b")).status == 200, "the store to be used again")
    assert get(one.port, "/", **key("a")).status == 429
    assert one.status()["store"]["refunds"] == 0
    assert server.calls() - before <= one.status()["store"]["requests"] - 1  # a script each at most


def test_error_pages_and_redirects_send_one_request(redis_server, hosts):
    server = redis_server()
    one, = hosts(server, 1, server="location /fails { proxy_pass http://@BACKEND@; proxy_intercept_errors on; error_page 500 /page.txt; }"
                 "location = /page.txt { root @FOLDER@/html; }")
    assert statuses(one.port, "/fails", 6, **key("a")) == [500] * 5 + [429]
    assert one.status()["store"]["requests"] == 6


def test_the_phase_after_authentication(redis_server, hosts):
    server = redis_server()
    one, two = hosts(server, 2, server="weir_phase precontent;")
    assert [get(h.port, "/", **key("a")).status for h in (one, two) * 3] == [200] * 5 + [429]


@measured
def test_a_delayed_client_that_disconnects_is_refunded(redis_server, hosts):
    text = rules(strict("slow", 10, ", algorithm: leaky_bucket, on_limit: delay, burst: 5", window="10s"))
    one, two = hosts(redis_server(), 2, text)
    start = time.monotonic()
    assert get(one.port, "/", **key("a")).status == 200
    leaver = http.client.HTTPConnection("127.0.0.1", one.port)
    leaver.request("GET", "/", headers={"X-Key": "a"})
    time.sleep(0.2)
    leaver.close()
    time.sleep(0.2)
    assert get(two.port, "/", **key("a")).status == 200
    assert 0.8 < time.monotonic() - start < 1.7


def test_delays_come_from_the_store_too(redis_server, hosts):
    text = rules(strict("slow", 10, ", algorithm: leaky_bucket, on_limit: delay, burst: 3, max_delay: 2s", window="1s"))
    one, = hosts(redis_server(), 1, text)
    start = time.monotonic()
    assert set(statuses(one.port, "/", 4, **key("a"))) <= {200, 429}
    assert time.monotonic() - start > 0.15


# ---- How to reach it ----

def test_a_password_tls_and_client_certificates(redis_server, hosts, tmp_path):
    tmp_path.chmod(0o755)
    own = certificate(tmp_path)
    server = redis_server(password="s3cret:pass/word", tls=own, ca=own[0])
    secret = tmp_path / "password"
    secret.write_text("s3cret:pass/word\n")
    more = f"ca={own[0]} certificate={own[0]} key={own[1]} password_file={secret}"
    one, two = hosts(server.url(host="localhost"), 2, settings=more)
    assert [get(h.port, "/", **key("a")).status for h in (one, two) * 3] == [200] * 5 + [429]
    shown = one.status()["store"]
    assert "s3cret" not in json.dumps(shown) and shown["up"]
    # by its address
    three, = hosts(server.url(), 1, settings=more)
    assert get(three.port, "/", **key("a")).status == 429


def test_certificates_that_are_not_good_are_not_talked_to(redis_server, hosts, tmp_path):
    tmp_path.chmod(0o755)
    server = redis_server(tls=certificate(tmp_path))
    other = certificate(tmp_path, "other")
    wrong, = hosts(server.url(), 1, settings=f"ca={other[0]}", text=rules(strict(failure="closed")), deadline="100ms")
    assert statuses(wrong.port, "/", 6, **key("a")) == [503] * 6
    wait_until(lambda: "unavailable" in wrong.errors(), "the news")
    assert "the certificate of 127.0.0.1 is not valid" in wrong.errors()
    named, = hosts(server.url(), 1, settings=f"ca={server.tls[0]} server_name=elsewhere", text=rules(strict(failure="closed")), deadline="100ms")
    assert statuses(named.port, "/", 6, **key("a")) == [503] * 6
    wait_until(lambda: "the certificate is not for elsewhere" in named.errors(), "the news")
    loose, = hosts(server.url(), 1, settings="verify=off")
    assert get(loose.port, "/", **key("a")).status == 200 and loose.status()["store"]["up"]


def test_a_server_without_a_certificate_is_not_talked_to(redis_server, hosts, tmp_path, monkeypatch):
    tmp_path.chmod(0o755)
    relay = Relay(redis_server().port, tls=anonymous_tls())
    monkeypatch.setenv("OPENSSL_CONF", openssl_with_anonymous_ciphers(tmp_path))
    url = f"rediss://127.0.0.1:{relay.port}"
    one, = hosts(url, 1, settings=f"ca={certificate(tmp_path)[0]}", text=rules(strict(failure="closed")), deadline="300ms")
    assert statuses(one.port, "/", 6, **key("a")) == [503] * 6
    wait_until(lambda: "the certificate of 127.0.0.1 is not valid: there is none" in one.errors(), "the news")
    loose, = hosts(url, 1, settings="verify=off")
    assert get(loose.port, "/", **key("a")).status == 200 and loose.status()["store"]["up"]  # so the ciphers were agreed on
    relay.remove()


def test_a_server_without_tls_is_reported(redis_server, hosts):
    server = redis_server()
    one, = hosts(server.url().replace("redis:", "rediss:"), 1, settings="verify=off", deadline="50ms")
    assert statuses(one.port, "/", 12, **key("a")) == [200] * 5 + [429] * 7
    wait_until(lambda: "unavailable" in one.errors(), "the news")
    assert "the TLS handshake has no answer so far; is it a server without TLS?" in one.errors()


def test_a_socket_and_names(redis_server, hosts):
    server = redis_server(socket=True)
    one, = hosts(f"redis+unix://{server.path}", 1)
    two, = hosts(server.url(host="localhost"), 1)
    three, = hosts(server.url() + "?prefix=other", 1)
    four, = hosts(server.url(), 1, settings="hash_keys=true")
    assert [get(h.port, "/", **key("a")).status for h in (one, two) * 3] == [200] * 5 + [429]
    assert get(three.port, "/", **key("a")).status == 200
    assert get(four.port, "/", **key("a")).status == 200
    names = {name.decode() for name in server.client().keys()}
    assert len(names) == 3 and names >= {"weir:five:a", "other:five:a"} and any(name.startswith("weir:five:~") for name in names)


@measured
def test_an_unknown_name_delays_no_requests(hosts):
    one, = hosts("redis://no-such-host.invalid:6379", 1, deadline="20ms")
    start = time.monotonic()
    assert statuses(one.port, "/", 6, **key("a")) == [200] * 5 + [429]
    assert time.monotonic() - start < 1
    wait_until(lambda: "unavailable" in one.errors(), "the news")


@pytest.mark.parametrize("url, output", [
    ("redis://", "weir_store"),
    ("http://127.0.0.1", "weir_store"),
    ("redis://127.0.0.1:99999", "weir_store"),
    ("redis://127.0.0.1 deadline=soon", "deadline"),
    ("redis://127.0.0.1 nonsense=1", "nonsense"),
    ("redis://127.0.0.1 nonsense", "use name=value"),
    ("redis://127.0.0.1 consistency=often", "local, eventual, strict"),
    ("redis://127.0.0.1 password_file=/nowhere", "password_file"),
    ("rediss://127.0.0.1 ca=/nowhere.pem", "nowhere.pem"),
    ("redis://:s3cret@127.0.0.1:port", "weir_store"),
    ("redis://127.0.0.1 user=me", "without a password"),
    ("redis://127.0.0.1 retry_min=5s", "retry_min"),
])
def test_errors_are_reported_with_their_place(gateway, url, output):
    one = gateway(rules(), http=f"weir_store {url};", start=False)
    good, words = one.test()
    assert not good and output in words and re.search(r"nginx\.conf:\d+", words), words
    assert "s3cret" not in words


@pytest.mark.parametrize("store, place", [
    ("store: http://x", "3:8"), ("store: { deadline: 1s }", "3:8"), ("store: { url: 'redis://x', deadline: soon }", "3:38"),
    ("store: { url: 'redis://x', dead: 1s }", "3:28"), ("store: { url: 'redis://x', consistency: often }", "3:41"),
    ("store: { url: 'redis://x', password: a, password_file: b }", "3:56"), ("store: [redis://x]", "3:8"),
    ("store: { url: 'redis://x', user: a }", "3:8"), ("store: { url: 'redis://x', retry_min: 5s }", "3:8"),
    ("store: { url: 'rediss://x', certificate: a.pem }", "3:8"),
])
def test_errors_of_weir_yaml_have_a_place(store, place):
    one = Served("gateway: { listen: 127.0.0.1:@PORT@, upstreams: ['http://127.0.0.1:1'] }\nrules: []\n" + store + "\n")
    try:
        done = one.run("--check")
        assert done.returncode == 1 and f"weir.yaml:{place}: error:" in done.stderr, done.stderr
    finally:
        one.remove()
