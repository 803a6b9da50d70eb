"""weir why: what it explains of denials behind a weir serve."""
import json
import os
import re
import subprocess

import pytest

from clients import get
from gateway import wait_until
from served import ENVIRONMENT, WEIR, Backend, Served

pytestmark = pytest.mark.xdist_group("why")  # they share a host
YAML = """
segment: { path: @FOLDER@/segment, size: 4MiB }
workers: 2
%s
gateway: { listen: 127.0.0.1:@PORT@, upstreams: ["@BACKEND@"] }
identity:
  client_ip: { trusted_proxies: [127.0.0.0/8] }
  tier: header:X-Plan
rules:
  - { name: api, match: { path: /api/* }, key: "user:${header:x-user}", limit: { free: 3, default: 100 }, window: 1h }
  - { name: everyone, match: { path: /api/* }, limit: 100000, window: 1h }
  - { name: tried, match: { path: /tried }, key: "user:${header:x-user}", limit: 1, window: 1h, shadow: true }
  - { name: listed, match: { path: /listed }, key: "ip:${client_ip}", limit: 5, window: 1h, block: { keys: ["ip:192.0.2.66"] } }
  - { name: needs, match: { path: /needs }, key: "${header:x-key}", on_missing_key: deny, limit: 5, window: 1h }
  - { name: short, match: { path: /short }, key: "ip:${client_ip}", limit: 1, window: 1s, algorithm: fixed_window }
  - { name: plan, match: { path: /plan }, key: "user:${header:x-user}", limit: { pro: 9, default: 1 }, window: 1h }
"""


def why(one, *arguments, cwd=None):
    return subprocess.run([WEIR, "why", *arguments], cwd=cwd or one.folder, env=ENVIRONMENT, capture_output=True, text=True,
                          timeout=20)


def denials(one, *arguments):
    done = why(one, "--json", *arguments)
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    return json.loads(done.stdout)["denials"]


def ask(one, path, client="192.0.2.7", **headers):
    headers = {"X-Forwarded-For": client, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return get(one.port, path, headers=headers).status


@pytest.fixture(scope="module")
def backend():
    server = Backend()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def host(backend):
    """A host with some denials."""
    one = Served(YAML % "denied_log: @FOLDER@/denied.log", backend).start()
    before = why(one, "192.0.2.7")
    assert before.returncode == 1 and "no denial of 192.0.2.7; nothing was denied" in before.stdout
    for i in range(8):
        status = ask(one, "/api/items?secret=1", X_User="42", X_Plan="free", X_Request_ID=f"id-{i}")
        assert status == (200 if i < 3 else 429)
    for _ in range(3):
        assert ask(one, "/tried", client="192.0.2.8", X_User="43") == 200
    assert ask(one, "/listed", client="192.0.2.66") == 403
    yield one
    one.remove()


def test_key_client_request_and_rule_find_the_denial(host):
    wanted = denials(host, "user:42")
    assert len(wanted) == 1
    entry = wanted[0]
    assert entry["rule"] == "api" and entry["key"] == "user:42" and entry["reason"] == "limit" and entry["count"] == 5
    assert entry["limit"] == 3 and entry["used"] == 3 and entry["tier"] == "free" and entry["cost"] == 1
    assert entry["client"] == "192.0.2.7" and entry["request_id"] == "id-3" and entry["path"] == "/api/items"
    assert entry["window"] == 3600 and not entry["shadow"] and not entry["hidden"] and not entry["cut"]
    assert entry["others"] == [{"rule": "everyone", "shadow": False, "passed": True, "limit": 100000,
                                "remaining": entry["others"][0]["remaining"]}]
    assert entry["passes"] is False and 0 < entry["retry_after"] <= 1200
    for subject in ("42", "192.0.2.7", "::ffff:192.0.2.7", "id-3", "id-7", "api"):
        assert [each["key"] for each in denials(host, subject)] == ["user:42"], subject
    assert denials(host, "4") == denials(host, "id-2") == denials(host, "192.0.2.70") == []
    assert {each["rule"] for each in denials(host)} == {"api", "tried", "listed"}


def test_the_log_of_denied_requests_has_the_same_fields(host):
    path = host.folder / "denied.log"
    wait_until(lambda: path.read_text().count("\n") >= 6, "6 lines")
    lines = [json.loads(line) for line in path.read_text().splitlines()]  # of two workers, in any order
    limited = sorted((line for line in lines if line["rule"] == "api"), key=lambda line: line["request_id"])
    listed, = (line for line in lines if line["rule"] == "listed")
    for subject, line in (("user:42", limited[0]), ("listed", listed)):
        entry, = denials(host, subject)
        known = {name: entry[name] for name in ("rule", "key", "reason", "client", "path", "cost", "others")}
        if subject == "user:42":
            known |= {name: entry[name] for name in ("limit", "window", "capacity", "used", "tier", "request_id")}
        assert {name: line[name] for name in known} == known
        assert not {"limit", "tier", "request_id"} & (set(line) - set(known))
    assert [line["request_id"] for line in limited] == [f"id-{i}" for i in range(3, 8)]


def test_text_is_of_sentences(host):
    done = why(host, "42", "--since", "1h")
    assert done.returncode == 0 and not done.stderr
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(rf"rule api denied user:42 5 times from {time} to {time}, \d+ s ago:\n"
                        r"  3 of 3 were used; the limit is 3 in 1h\n"
                        r"  the first had path /api/items, client 192.0.2.7, request id-3, tier free\n"
                        r"  rule everyone allowed it: \d+ of 100000 left\n"
                        rf"  it would pass in \d+ s, at {time}, if its tier is still free\n", done.stdout), done.stdout
    assert "it is on a block list" in why(host, "192.0.2.66").stdout
    listed = why(host).stdout
    assert listed.index("listed") < listed.index("tried") < listed.index("api ")


def test_when_it_passes_is_by_the_tier_of_that_time(host):
    assert [ask(host, "/plan", X_User="51") for _ in range(2)] == [200, 429]
    assert [ask(host, "/plan", X_User="51", X_Plan="pro") for _ in range(3)] == [200] * 3  # another plan since then
    entry, = denials(host, "plan")
    assert entry["by_tier"] and entry["tier"] is None and entry["passes"] is False
    assert re.search(r"  it would pass in [\d.]+ s, at \S+Z, if its limit is still the default\n", why(host, "plan").stdout)


def test_what_was_missing_is_named(host):
    assert ask(host, "/needs", client="192.0.2.30") == 400
    entry, = denials(host, "192.0.2.30")
    assert entry["reason"] == "missing_key" and entry["missing"] == "header x-key" and entry["passes"] is None
    assert "the request lacked the header x-key, and on_missing_key of the rule is deny" in why(host, "needs").stdout


def test_shadow_rules_would_have_denied(host):
    entry, = denials(host, "tried")
    assert entry["shadow"] and entry["key"] == "user:43" and entry["count"] == 2
    assert "rule tried (shadow) would have denied user:43 2 times" in why(host, "tried").stdout


def test_another_rule_that_blocked_the_key_has_no_figures(host):
    for action in ("block", "unblock"):
        for key, rule in (("user:77", "api"), ("*", "everyone")):
            subprocess.run([WEIR, "key", action, key, "--rule", rule], cwd=host.folder, env=ENVIRONMENT, check=True, timeout=20)
        assert ask(host, "/api/items", X_User="77") == (403 if action == "block" else 200)
    entry, = (each for each in denials(host) if each["reason"] == "blocked")
    other, = entry["others"]
    log = host.folder / "denied.log"
    wait_until(lambda: '"reason":"blocked"' in log.read_text(), "the line of the block")
    line, = (line for line in log.read_text().splitlines() if '"reason":"blocked"' in line)
    assert json.loads(line)["others"] == [other]
    assert other == {"rule": other["rule"], "shadow": False, "passed": False, "limit": -1, "remaining": -1}
    assert f"  rule {other['rule']} denied it, too\n" in why(host, entry["rule"]).stdout


def test_without_a_match_it_reports_what_is_covered(host):
    done = why(host, "192.0.2.99")
    assert done.returncode == 1
    assert re.fullmatch(r"no denial of 192\.0\.2\.99; the records have (1 denied key|[2-9] denied keys) and begin at \S+Z\n", done.stdout)
    assert "\x1b" not in why(host, "\x1b[2J").stdout
    for wrong in (("--since", "never", "x"), ("--since", "-1s", "x"), ("",), ("a", "b")):
        assert why(host, *wrong).returncode == 2, wrong


def test_a_segment_without_rules(host, tmp_path):
    entry, = json.loads(why(host, "--json", "--segment", f"{host.folder}/segment", "42", cwd=tmp_path).stdout)["denials"]
    assert entry["count"] == 5 and entry["passes"] is None
    (tmp_path / "rules.yaml").write_text("rules: [{ name: api, key: x, limit: 100, window: 1h }]")
    entry, = json.loads(why(host, "--json", "--segment", f"{host.folder}/segment", "--rules", "rules.yaml", "42",
                            cwd=tmp_path).stdout)["denials"]
    assert entry["passes"] is True and entry["retry_after"] == 0


def test_it_says_when_the_key_passes_again(host):
    for _ in range(2):
        ask(host, "/short", client="192.0.2.20")
    waits = [each for each in denials(host, "short") if not each["passes"]]
    assert all(0 <= each["retry_after"] <= 1 for each in waits)
    while not denials(host, "short")[0]["passes"]:
        pass
    assert "it would pass now" in why(host, "192.0.2.20").stdout


def test_hashed_keys_and_off(backend):
    one = Served(YAML % "denied_log: { path: @FOLDER@/denied.log, hash_keys: true }", backend).start()
    try:
        for _ in range(4):
            ask(one, "/api/x", X_User="42", X_Plan="free")
        entry, = denials(one, "user:42")
        assert entry["hidden"] and re.fullmatch("~[0-9a-f]{16}", entry["key"]) and entry["client"] is None
        assert entry["passes"] is False  # as the argument is the text of the key
        line = json.loads((one.folder / "denied.log").read_text().splitlines()[0])
        assert line["key"] == entry["key"]
        for subject in (line["key"], line["client"], "192.0.2.7"):
            assert len(denials(one, subject)) == 1, subject
        assert denials(one, line["key"])[0]["passes"] is None
        raw = (one.folder / "segment.denials").read_bytes()
        assert b"user:42" not in raw and b"192.0.2.7" not in raw and b"/api/x" in raw
        one.signal(15)
        one.end()
        os.unlink(one.folder / "segment.denials")
        one.write(YAML % "denials: off")
        one.start()
        assert ask(one, "/listed", client="192.0.2.66") == 403 and not (one.folder / "segment.denials").exists()
        done = why(one, "x")
        assert done.returncode == 1 and "does not exist: no denials are recorded" in done.stderr
        for wrong in ("1KiB", "yes", "{ size: 1MiB, hash: true }"):
            one.write(YAML % f"denials: {wrong}")
            assert "denials" in one.run("--check").stderr
    finally:
        one.remove()


def test_an_nginx_of_ones_own(gateway):
    rules = "rules: [{ name: one, key: 'ip:${client_ip}', limit: 1, window: 1h }]"
    g = gateway(rules, http="weir_attribute request_id $http_x_trace;", workers=2)
    assert [get(g.port, "/", headers={"X-Trace": f"trace-{i}"}).status for i in range(3)] == [200, 429, 429]
    found = why(g, "--json", "--segment", str(g.segment), "--rules", f"{g.folder}/rules", "trace-2")
    entry, = json.loads(found.stdout)["denials"]
    assert entry["count"] == 2 and entry["request_id"] == "trace-1" and entry["client"] == "127.0.0.1"
    assert (g.folder / "segment.denials").stat().st_size == 1 << 20
