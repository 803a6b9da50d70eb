"""The output of nginx -t, the log, and the status."""
import http.client
import json
import os
import re
import signal
import time

import pytest

from clients import get, statuses
from gateway import wait_until

GOOD = json.dumps({"rules": [{"name": "r", "key": "ip:${client_ip}", "limit": 1, "window": "1d"}]})


def refused(g, *wanted):
    content, output = g.test()
    assert not content
    for text in wanted:
        assert re.search(text, output), output
    assert "*** " not in output  # of a sanitizer or libc


def test_good_configurations_pass(gateway):
    content, output = gateway(GOOD, start=False).test()
    assert content and "successful" in output, output


def test_every_error_of_the_rules_is_logged_with_its_line(gateway):
    g = gateway("rules:\n  - name: a\n    limit: lots\n    window: 1d\n  - nome: b\n    limit: 1\n    window: 1d\n",
                start=False)
    refused(g, r"rules\.yaml:3:12: ", r"rules\.yaml:5:5: .*did you mean \"name\"", "WEIR_ERULES")
    g.write_rules("rules:\n" + "  - {}\n" * 200)
    refused(g, r"rules\.yaml:2:5: ", r"rules\.yaml: too many errors")


@pytest.mark.parametrize("segment, size, wanted", [
    ("/nonexistent/folder/segment", "4m", "weir_segment \"/nonexistent/folder/segment\".*ENOENT"),
    (None, "10k", "ESIZE"), (None, "lots", "invalid size"), (None, "0", "invalid size"),
    ("/etc/hostname", "4m", "ENOTSEG"), ("/proc/weir", "4m", "weir_segment \"/proc/weir\"")])
def test_bad_segments(gateway, segment, size, wanted):
    refused(gateway(GOOD, start=False, segment=segment, size=size), wanted)


def test_a_segment_of_another_version(gateway):
    g = gateway(GOOD, start=False)
    assert g.test()[0]
    with open(g.segment, "r+b") as f:
        f.seek(8)
        version = int.from_bytes(f.read(4), "little")
        assert 0 < version < 1000
        f.seek(8)
        f.write((version + 1).to_bytes(4, "little"))
    refused(g, "another version of weir", "remove the file or add \"rebuild\"", "EVERSION")
    config = g.config.read_text()
    g.config.write_text(config.replace(" 4m;", " 4m rebuild mode=0640;"))
    assert g.test()[0]
    assert g.segment.stat().st_mode & 0o777 == 0o640
    g.config.write_text(config)
    assert g.test()[0]


@pytest.mark.parametrize("how, name", [("flipped", "EDAMAGED"), ("cut", "ETRUNCATED")])
def test_a_damaged_segment(gateway, how, name):
    g = gateway(GOOD, start=False)
    assert g.test()[0]
    with open(g.segment, "r+b", buffering=0) as f:
        if how == "cut":
            f.truncate(1 << 20)
        else:
            f.seek(16)  # behind magic and version
            byte = f.read(1)[0]
            f.seek(16)
            f.write(bytes([byte ^ 1]))
    size = g.segment.stat().st_size
    refused(g, "the segment is damaged; remove the file or add \"rebuild\"", name)
    assert g.segment.stat().st_size == size  # left as it is for whoever wants to look at it
    g.config.write_text(g.config.read_text().replace(" 4m;", " 4m rebuild;"))
    g.start()
    assert statuses(g.port, "/x", 2) == [200, 429]


def test_a_segment_that_another_user_put_there(gateway):
    g = gateway(GOOD, start=False)
    if os.geteuid() != 0:
        pytest.skip("needs another user's file")
    assert g.test()[0]
    os.chown(g.segment, 65534, -1)
    assert g.test()[0]  # in a folder of its own
    g.folder.chmod(0o1777)
    refused(g, r"it belongs to user nobody \(uid 65534\), .* everybody may make files there; remove it", "WEIR_EOWNER")
    g.config.write_text(g.config.read_text().replace(" 4m;", " 4m rebuild;"))
    refused(g, "WEIR_EOWNER")
    os.chown(g.segment, 0, -1)
    assert g.test()[0]


def test_something_else_in_the_ledgers_place(gateway):
    """The message must not name the segment or the rules: an operator would remove the named file."""
    g = gateway(json.dumps({"rules": [{"name": "r", "limit": 1, "window": "1d", "consistency": "eventual"}]}), start=False,
                http="weir_store redis://127.0.0.1:1;")
    ledger = g.segment.with_name("segment.ledger")
    ledger.write_text("not one\n" * 1000)
    refused(g, r"the ledger \"\S+/segment.ledger\": the file of the ledger .*\.ledger.* remove that one \(WEIR_ELEDGER\)")
    ledger.unlink()
    assert g.test()[0]


def test_another_size_is_logged(gateway):
    g = gateway(GOOD, start=False)
    assert g.test()[0]
    g.config.write_text(g.config.read_text().replace(" 4m;", " 8m;"))
    content, output = g.test()
    assert content and "keeps its size of 4194304 bytes" in output


@pytest.mark.parametrize("replace, by, wanted", [
    ("weir on;", "weir perhaps;", "invalid value \"perhaps\""),
    ("weir on;", "weir on; weir_cost -1;", "invalid cost"),
    ("weir on;", "weir on; weir_cost 1x;", "invalid cost"),
    ("weir on;", "weir on; weir_phase later;", "invalid value \"later\""),
    ("weir on;", "weir on; weir_attribute User x;", "invalid name \"User\""),
    ("weir on;", "weir on; weir_attribute client_ip $remote_addr;", "\"client_ip\" cannot be given"),
    ("weir on;", "weir on; weir_attribute u x; weir_attribute u y;", "twice"),
    ("weir on;", "weir on; weir_attribute u $nothing_like_it;", "unknown \"nothing_like_it\" variable"),
    ("weir on;", "weir on; weir_log_denied x rate=0;", "invalid parameter \"rate=0\""),
    ("weir on;", "weir on; weir_log_denied off rate=1;", "takes no parameters"),
    ("weir on;", "weir on; weir_log_denied syslog:server=127.0.0.1;", "needs the path of a file"),
    ("weir on;", "weir on; weir_log_denied /tmp/$host.log;", "needs the path of a file"),
    (" 4m;", " 4m; weir_denials 1k;", "invalid parameter \"1k\""),
    (" 4m;", " 4m; weir_denials 65m;", "invalid parameter \"65m\" in \"weir_denials\"; use off, or a size from 64k to 64m"),
    (" 4m;", " 4m; weir_denials 1m hide;", "invalid parameter \"hide\""),
    (" 4m;", " 4m; weir_denials 1m; weir_denials off;", "is duplicate"),
    (" 4m;", " 4m mode=999;", "invalid parameter \"mode=999\""),
    (" 4m;", " 4m; weir_segment /x 4m;", "duplicate")])
def test_bad_directives(gateway, replace, by, wanted):
    g = gateway(GOOD, start=False)
    g.config.write_text(g.config.read_text().replace(replace, by))
    refused(g, wanted)


def test_weir_without_segment_or_rules(gateway):
    g = gateway(GOOD, start=False)
    config = g.config.read_text()
    g.config.write_text(re.sub("weir_segment .*;", "", config))
    refused(g, "\"weir_segment\" is missing")
    g.config.write_text(re.sub("weir_rules .*;", "", config))
    refused(g, "\"weir_rules\" is missing")
    g.config.write_text(re.sub("weir_(rules|segment|status).*?;", "", config).replace("weir on;", ""))
    assert g.test()[0]  # loaded and not used


def test_a_refused_reload_leaves_all_as_it_was(gateway):
    g = gateway(GOOD, expected=("[emerg]",))
    g.write_rules("rules: [{}]")
    os.kill(g.master, signal.SIGHUP)
    wait_until(lambda: "[emerg]" in g.errors(), "a refusal")
    assert statuses(g.port, "/x", 2) == [200, 429]


def test_workers_after_a_refused_configuration_without_weir(gateway):
    """What it left in the master must not show in a worker that is started later for the one that runs."""
    g = gateway(GOOD, expected=("[emerg]", "exited on signal"))
    g.config.write_text("".join(line for line in g.config.read_text().splitlines(True) if " weir" not in line)
                        .replace("http {", "http { server { listen 192.0.2.1:80; }"))
    os.kill(g.master, signal.SIGHUP)
    wait_until(lambda: "[emerg]" in g.errors(), "a refusal")
    old = g.workers()
    os.kill(old[0], signal.SIGKILL)
    wait_until(lambda: g.workers() and g.workers() != old, "another worker")
    answer = get(g.port, "/x")
    assert answer.status == 200 and answer.headers["X-RateLimit-Remaining"] == "0"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs workers of another user")
def test_workers_need_no_permission_for_the_segment(gateway):
    g = gateway(GOOD, workers=2)
    assert g.segment.stat().st_mode & 0o777 == 0o600 and g.segment.stat().st_uid == 0
    assert os.stat(f"/proc/{g.workers()[0]}").st_uid != 0
    assert statuses(g.port, "/x", 2) == [200, 429]


def test_the_status_is_json_for_probes(gateway):
    rules = {"rules": [{"name": f"rule {i} \u00e9", "match": {"path": f"/p{i}"}, "limit": 1, "window": "1d"}
                       for i in range(500)]}
    g = gateway(json.dumps(rules))
    get(g.port, "/p7"), get(g.port, "/p7")
    answer = get(g.port, "/weir/status")
    assert answer.headers["Content-Type"] == "application/json" and answer.headers["Cache-Control"] == "no-store"
    status = json.loads(answer.body)
    assert status["segment"]["path"] == str(g.segment) and status["segment"]["bytes"] == 4 << 20
    assert 0 <= status["segment"]["fill"] < 0.01 and status["segment"]["created"] == 1
    assert status["rules"]["count"] == 500 and status["rules"]["reloads"] == 0
    assert len(status["by_rule"]) == 500
    assert status["by_rule"][7] == {"name": "rule 7 \u00e9", "allowed": 1, "delayed": 0, "denied": 1, "listed": 0,
                                    "missing_key": 0, "failures": 0, "rolled_back": 0, "shed": 0, "warnings": 0}
    head = get(g.port, "/weir/status", method="HEAD")
    assert head.status == 200 and head.body == b"" and get(g.port, "/weir/status", method="POST").status == 405


def test_the_fill_of_the_segment(gateway):
    g = gateway(json.dumps({"rules": [{"name": "r", "key": "${query:u}", "limit": 5, "window": "1d"}]}), size="64k")
    c = http.client.HTTPConnection("127.0.0.1", g.port)
    slots = g.status()["segment"]["slots"]
    for i in range(slots // 4):
        get(g.port, f"/x?u={i}", connection=c)
    assert 0.2 < g.status()["segment"]["fill"] < 0.3


def test_denied_requests_are_logged_and_a_flood_is_sampled(gateway):
    g = gateway(GOOD, http="weir_log_denied @; ".replace("@", "{folder}/denied rate=20"), start=False)
    g.config.write_text(g.config.read_text().replace("{folder}", str(g.folder)))
    g.start()

    def lines():
        return [json.loads(line) for line in (g.folder / "denied").read_text().splitlines()]

    c = http.client.HTTPConnection("127.0.0.1", g.port)
    began = time.monotonic()
    for _ in range(201):
        get(g.port, "/some/path", connection=c)
    took = time.monotonic() - began
    time.sleep(1.1)
    get(g.port, "/last", connection=c, headers={"X": "y"})
    seen = wait_until(lambda: (all_of := lines())[-1]["path"] == "/last" and all_of, "the last line")
    assert 20 <= len(seen) - 1 <= 20 * (int(took) + 2)  # in each second that it had a part of
    assert sum(line.get("skipped", 0) for line in seen) + len(seen) == 201
    first = seen[0]
    assert (first["rule"], first["key"], first["client"], first["path"], first["method"], first["status"]) == (
        "r", "ip:127.0.0.1", "127.0.0.1", "/some/path", "GET", 429)
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d$", first["time"]) and first["retry_after"] > 80000


def test_the_log_can_hide_clients(gateway):
    import hashlib
    import hmac
    g = gateway(GOOD, server="""
        location /plain { weir_log_denied @FOLDER@/denied; proxy_pass http://@BACKEND@; }
        location /salted { weir_log_denied @FOLDER@/salted hash=pepper; proxy_pass http://@BACKEND@; }
        location /keyed { weir_log_denied @FOLDER@/keyed hash; proxy_pass http://@BACKEND@; }
        location /none { weir_log_denied off; proxy_pass http://@BACKEND@; }""",
                http="set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;")
    for path in ("/plain", "/plain", "/salted", "/keyed", "/none"):
        get(g.port, path, headers={"X-Real-IP": "192.0.2.7"})
    salted, = g.denied(1, "salted")
    for name, text in (("client", b"192.0.2.7"), ("key", b"ip:192.0.2.7")):
        first = hmac.new(b"pepper", text, hashlib.sha256).digest()[:8]
        assert salted[name] == "~" + first.hex()
    keyed, = g.denied(1, "keyed")
    for name, text in (("client", b"192.0.2.7"), ("key", b"ip:192.0.2.7")):
        assert re.fullmatch("~[0-9a-f]{16}", keyed[name]) and keyed[name] != salted[name]
        assert keyed[name][1:] not in (hashlib.sha1(text).hexdigest()[:16], hashlib.sha256(text).hexdigest()[:16])
    assert "192.0.2.7" not in json.dumps([salted, keyed])
    g.denied(1)


def test_the_client_behind_a_trusted_proxy(gateway):
    g = gateway(json.dumps({
        "identity": {"client_ip": {"trusted_proxies": ["127.0.0.0/8"]}},
        "rules": [{"name": "r", "match": {"path": "/x"}, "key": "u:${header:X-User}", "limit": 1, "window": "1d"}]}),
        http='log_format who "$weir_client $remote_addr";', server="""
        location = /who { return 200 $weir_client; }
        location = /x { weir_log_denied @FOLDER@/denied; access_log @FOLDER@/who who; proxy_pass http://@BACKEND@; }""")
    for forwarded, client in (("203.0.113.9", "203.0.113.9"), ("198.51.100.1, 203.0.113.9, 127.0.0.3", "203.0.113.9"),
                         ("2001:DB8::1", "2001:db8::1"), ("nonsense", "127.0.0.1"), ("", "127.0.0.1")):
        assert get(g.port, "/who", headers={"X-Forwarded-For": forwarded}).body.decode() == client, forwarded
    for _ in range(2):
        get(g.port, "/x", headers={"X-Forwarded-For": "203.0.113.9", "X-User": "7"})
    line, = g.denied(1)
    assert (line["client"], line["key"]) == ("203.0.113.9", "u:7")  # though no rule asks for the address
    wait_until(lambda: (g.folder / "who").read_text() == "203.0.113.9 127.0.0.1\n" * 2, "the log")
