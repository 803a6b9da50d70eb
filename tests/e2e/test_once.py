"""Each request of a client is decided once, whatever happens to it inside nginx; and it is decided at the right time."""
import base64
import http.client
import json

import pytest

from clients import get, statuses
from gateway import wait_until

RULES = json.dumps({"rules": [{"name": "r", "key": "ip:${client_ip}", "limit": 100, "window": "1d"}]})

SERVER = """
    location /error/ {
        proxy_pass http://@BACKEND@/fails; proxy_intercept_errors on; error_page 500 = /recovered;
    }
    location = /recovered { proxy_pass http://@BACKEND@; }
    location /named/ { proxy_pass http://@BACKEND@/fails; proxy_intercept_errors on; error_page 500 = @named; }
    location @named { proxy_pass http://@BACKEND@; }
    location /tried/ { try_files /nothing /nothing/ @named; }
    location /tried-uri/ { try_files /nothing /recovered; }
    location /file { try_files /page.txt =404; }
    location /authenticated/ { auth_request /permission; proxy_pass http://@BACKEND@; }
    location = /permission { internal; proxy_pass http://@BACKEND@; }
    location /mirrored/ { mirror /permission; proxy_pass http://@BACKEND@; }
    location /rewritten/ { rewrite ^/rewritten/(.*)$ /$1 last; }
    location /accel/ { proxy_pass http://@BACKEND@/elsewhere; }
    location /missing/ { root @FOLDER@/html; error_page 404 /page.txt; }
    location = /page.txt { root @FOLDER@/html; }
    location /dir/ { root @FOLDER@/html; index page.txt; rewrite ^ / break; }
    location /precondition { try_files /page.txt =404; }
    location /posted/ { post_action @named; proxy_pass http://@BACKEND@; }
    location /any/ { satisfy any; deny all; auth_request /permission; proxy_pass http://@BACKEND@; }
    location /refused/ { auth_request /forbidden; error_page 403 = @named; proxy_pass http://@BACKEND@; }
    location = /forbidden { internal; return 403; }
    location /included/ { ssi on; ssi_types *; default_type text/html; root @FOLDER@/html; try_files /include.html =404; }
    location /late/ { weir_phase precontent; auth_request /permission; try_files /nothing @named; }
"""


def test_every_way_through_nginx_costs_one(gateway):
    g = gateway(RULES, server=SERVER)
    (g.folder / "html" / "include.html").write_text('<!--#include virtual="/recovered" --><!--#include virtual="/named/x" -->')
    left = 100
    for path, status in [("/plain", 200), ("/error/x", 200), ("/named/x", 200), ("/tried/x", 200), ("/tried-uri/", 200),
                         ("/file", 200), ("/authenticated/", 200), ("/mirrored/", 200), ("/rewritten/x", 200),
                         ("/accel/", 200), ("/posted/", 200), ("/any/", 200),
                         ("/refused/", 200), ("/included/", 200), ("/missing/x", 404), ("/dir/", 200), ("/late/", 200)]:
        left -= 1
        answer = get(g.port, path)
        reply = answer.headers.get_all("X-RateLimit-Remaining")
        assert (path, answer.status, reply) == (path, status, [str(left)])
    left -= 1
    answer = get(g.port, "/precondition", headers={"If-Match": '"other"'})
    assert (answer.status, answer.headers["X-RateLimit-Remaining"]) == (412, str(left))
    assert g.rule("r")["allowed"] == 100 - left


def test_what_led_nowhere_is_decided_where_it_goes(gateway):
    g = gateway(json.dumps({"rules": [{"name": "r", "limit": 2, "window": "1d"}]}), server="""
        location /static/ { weir off; root @FOLDER@/html; error_page 404 = @api; }
        location @api { weir on; proxy_pass http://@BACKEND@; }""")
    assert statuses(g.port, "/static/none", 3) == [200, 200, 429]
    g = gateway(json.dumps({"rules": [{"name": "r", "limit": 2, "window": "1d"}]}), server="""
        location /static/ { weir off; root @FOLDER@/html; error_page 404 @api; }
        location @api { weir on; proxy_pass http://@BACKEND@; }""")
    assert statuses(g.port, "/static/none", 3) == [404, 404, 429]  # the error's status, but not on a denial


def test_a_denied_post_action_does_not_change_the_reply(gateway):
    """A post_action comes when the client has its answer: that is neither changed nor followed by another."""
    g = gateway(json.dumps({"rules": [{"name": "r", "limit": 1, "window": "1d"}]}), server="""
        location /posted { weir off; post_action @after; proxy_pass http://@BACKEND@; }
        location @after { weir on; proxy_pass http://@BACKEND@; }""")
    c = http.client.HTTPConnection("127.0.0.1", g.port, timeout=20)
    for _ in range(3):
        answer = get(g.port, "/posted", connection=c)
        assert (answer.status, answer.body, answer.headers["Retry-After"]) == (200, b"backend /posted\n", None)
    c.close()
    wait_until(lambda: (g.rule("r")["allowed"], g.rule("r")["denied"]) == (1, 2), "all three are decided")


def test_a_page_of_ones_own_for_denials(gateway):
    g = gateway(json.dumps({"rules": [{"name": "r", "limit": 1, "window": "1d"}]}), server="""
        location /a { error_page 429 @sorry; proxy_pass http://@BACKEND@; }
        location /b { error_page 429 =503 /sorry; proxy_pass http://@BACKEND@; }
        location @sorry { default_type text/html; return 429 "<p>sorry</p>"; }
        location = /sorry { proxy_pass http://@BACKEND@; }""")
    assert get(g.port, "/a").status == 200
    answer = get(g.port, "/a")
    assert answer.status == 429 and answer.body == b"<p>sorry</p>"
    assert answer.headers["Retry-After"] and answer.headers["X-RateLimit-Remaining"] == "0"
    assert answer.headers.get_all("Cache-Control") == ["no-store"]
    answer = get(g.port, "/b")
    assert answer.status == 503 and answer.body == b"backend /sorry\n" and answer.headers["Retry-After"]
    assert [line["decision"] for line in g.log(3)] == ["allow", "deny", "deny"]
    assert g.rule("r")["denied"] == 2


def test_headers_of_the_gateway_replace_those_of_the_upstream(gateway):
    g = gateway(RULES)
    answer = get(g.port, "/limits")
    assert answer.headers.get_all("X-RateLimit-Limit") == ["100"]
    assert answer.headers.get_all("X-RateLimit-Remaining") == ["99"]
    g = gateway(json.dumps({"rules": [{"name": "r", "match": {"path": "/other"}, "limit": 1, "window": "1d"}]}))
    assert get(g.port, "/limits").headers.get_all("X-RateLimit-Limit") == ["12345"]


@pytest.mark.parametrize("where", ["http", "location"])
def test_after_realip(gateway, where):
    realip = "set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;"
    server = "location /x { %s proxy_pass http://@BACKEND@; }" % (realip if where == "location" else "")
    g = gateway(json.dumps({"rules": [{"name": "r", "key": "ip:${client_ip}", "limit": 1, "window": "1d"}]}),
                server=server, http=realip if where == "http" else "")
    for client in ("192.0.2.1", "192.0.2.2", "2001:db8::1"):
        assert statuses(g.port, "/x", 2, headers={"X-Real-IP": client}) == [200, 429]
    assert {line["key"] for line in g.log(6)} == {"ip:192.0.2.1", "ip:192.0.2.2", "ip:2001:db8::/64"}


def test_trusted_proxies_of_the_rules(gateway):
    g = gateway(json.dumps({
        "identity": {"client_ip": {"trusted_proxies": ["127.0.0.0/8", "10.0.0.0/8"]}},
        "rules": [{"name": "r", "key": "ip:${client_ip}", "limit": 1, "window": "1d"}]}))
    chain = {"X-Forwarded-For": "198.51.100.66, 192.0.2.1, 10.0.0.3"}
    assert statuses(g.port, "/x", 2, headers=chain) == [200, 429]
    assert statuses(g.port, "/x", 2, headers={"X-Forwarded-For": "192.0.2.9"}) == [200, 429]
    assert g.log(4)[0]["key"] == "ip:192.0.2.1"


def test_before_and_after_authentication(gateway):
    rules = json.dumps({"rules": [
        {"name": "tries", "match": {"path": "/early/*"}, "key": "ip:${client_ip}", "limit": 3, "window": "1d"},
        {"name": "user", "match": {"path": "/late/*"}, "key": "user:${user_id}", "limit": 2, "window": "1d"}]})
    auth = "auth_basic x; auth_basic_user_file @FOLDER@/users; proxy_pass http://@BACKEND@;"
    g = gateway(rules, server="location /early/ { %s } location /late/ { weir_phase precontent; "
                "weir_attribute user_id $remote_user; %s }" % (auth, auth))
    (g.folder / "users").write_text("ann:{PLAIN}a\nbob:{PLAIN}b\n")

    def of(user, password):
        return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}

    assert statuses(g.port, "/early/", 4, headers=of("ann", "guess")) == [401, 401, 401, 429]
    assert get(g.port, "/early/", headers=of("ann", "a")).status == 429
    assert statuses(g.port, "/late/", 4, headers=of("ann", "guess")) == [401] * 4  # not hers to lose
    assert statuses(g.port, "/late/", 3, headers=of("ann", "a")) == [200, 200, 429]
    assert statuses(g.port, "/late/", 3, headers=of("bob", "b")) == [200, 200, 429]


def test_attributes_and_keys_of_the_configuration(gateway):
    rules = json.dumps({"rules": [
        {"name": "r", "match": {"path": "/a/*"}, "key": "${user_id}/${tenant}", "limit": 1, "window": "1d"},
        {"name": "k", "match": {"path": "/k/*"}, "key": "k:${key}", "limit": 1, "window": "1d"},
        {"name": "t", "match": {"path": "/t/*"}, "limit": {"free": 1, "pro": 3, "default": 1}, "window": "1d",
         "key": "t:${key}"}]})
    g = gateway(rules, http="weir_attribute user_id outer; weir_attribute tenant $arg_tenant;", server="""
        location /a/inner/ { weir_attribute user_id $http_x_user; proxy_pass http://@BACKEND@; }
        location /k/ { weir_key $arg_a-$arg_b; proxy_pass http://@BACKEND@; }
        location /t/ { weir_key $arg_a; weir_attribute tier $arg_tier; proxy_pass http://@BACKEND@; }""")
    assert statuses(g.port, "/a/x?tenant=1", 2) == [200, 429]
    assert statuses(g.port, "/a/inner/?tenant=1", 2, headers={"X-User": "ann"}) == [200, 429]
    assert statuses(g.port, "/a/inner/?tenant=2", 2, headers={"X-User": "ann"}) == [200, 429]
    assert [line["key"] for line in g.log(6)[::2]] == ["outer/1", "ann/1", "ann/2"]
    assert statuses(g.port, "/k/?a=1&b=2", 2) == [200, 429]
    assert g.log(8)[-1]["key"] == "k:1-2"
    assert statuses(g.port, "/t/?a=1&tier=pro", 4) == [200, 200, 200, 429]
    assert statuses(g.port, "/a/x", 2) == [200, 200]  # without a tenant the key is missing


def test_costs(gateway):
    g = gateway(json.dumps({"rules": [{"name": "r", "key": "${query:u}", "limit": 10, "window": "1d", "cost": 2}]}),
                server="location /five { weir_cost 5; proxy_pass http://@BACKEND@; }"
                       "location /var { weir_cost $http_x_cost; proxy_pass http://@BACKEND@; }")

    def left(path, cost=None):
        answer = get(g.port, path, headers={"X-Cost": cost} if cost is not None else {})
        return answer.status, answer.headers["X-RateLimit-Remaining"]

    assert left("/x?u=1") == (200, "8")
    assert left("/five?u=1") == (200, "3")
    assert left("/five?u=1") == (429, "3")
    assert left("/var?u=1", "3") == (200, "0")
    assert left("/var?u=1", "0") == (200, "0")  # looks only
    assert left("/var?u=2") == (200, "8")  # empty: the rule's
    for nonsense in ("-5", "+1", "1e3", "0x10", "1 1", "many"):
        assert left(f"/var?u={nonsense.replace(' ', '_')}", nonsense) == (200, "8")
    for huge in ("11", "4294967296", "9" * 19, "9" * 400):
        answer = get(g.port, "/var?u=3", headers={"X-Cost": huge})
        assert answer.status == 429 and "Retry-After" not in answer.headers  # it never fits
    assert left("/var?u=3", "10") == (200, "0")


def test_off_and_dry_run(gateway):
    g = gateway(json.dumps({"rules": [{"name": "r", "key": "ip:${client_ip}", "limit": 2, "window": "1d"},
                                      {"name": "slow", "match": {"path": "/dry/slow"}, "limit": 1, "window": "1h",
                                       "burst": 5, "algorithm": "leaky_bucket", "on_limit": "delay"}]}), server="""
        location /off/ { weir off; proxy_pass http://@BACKEND@; }
        location /dry/ { weir dry_run; weir_log_denied @FOLDER@/denied; proxy_pass http://@BACKEND@; }
        location /if { if ($arg_off) { weir off; } proxy_pass http://@BACKEND@; }""")
    assert statuses(g.port, "/off/", 5) == [200] * 5
    assert get(g.port, "/off/").headers["X-RateLimit-Limit"] is None
    answers = [get(g.port, "/dry/") for _ in range(4)]
    assert [a.status for a in answers] == [200] * 4
    assert not any(name.lower().startswith(("x-ratelimit", "ratelimit", "retry")) for a in answers for name in a.headers)
    log = g.log(10)
    assert [line["decision"] for line in log[-4:]] == ["allow", "allow", "deny_dry_run", "deny_dry_run"]
    assert log[-1]["rule"] == "r" and int(log[-1]["retry_after"]) > 0
    assert all(line["dry_run"] for line in g.denied(2))
    assert get(g.port, "/x").status == 429  # the same counter, enforced
    assert [get(g.port, "/if").status, get(g.port, "/if?off=1").status] == [429, 200]
    assert g.rule("r")["denied"] == 4


def test_variables_before_a_decision_and_without_a_rule(gateway):
    g = gateway(json.dumps({"rules": [{"name": "r", "match": {"path": "/r"}, "limit": 1, "window": "1d"}]}),
                server="location /off { weir off; proxy_pass http://@BACKEND@; }")
    for path in ("/off", "/unmatched", "/r", "/r"):
        get(g.port, path)
    off, unmatched, first, second = g.log(4)
    assert (off["decision"], unmatched["decision"], first["decision"], second["decision"]) == ("", "allow", "allow", "deny")
    assert (off["limit"], unmatched["limit"], unmatched["rule"]) == ("", "", "")
    assert (first["limit"], first["remaining"], first["retry_after"]) == ("1", "0", "")
    assert (second["rule"], second["remaining"], int(second["retry_after"]) > 80000) == ("r", "0", True)
