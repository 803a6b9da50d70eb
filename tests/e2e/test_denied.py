"""What a denied client gets, by the reason of the denial and by the way in: gateway, services, gRPC and Redis protocol."""
import json
import re

import pytest

from clients import get
from resp import Client, RespGateway, fields

RULES = """
identity: { api_key: header:X-API-Key, client_ip: { trusted_proxies: [127.0.0.0/8] } }
block: { networks: [198.51.100.0/24] }
response: { message: Slower., blocked: { message: "" } }
rules:
  - { name: api, match: { path: /api }, key: "ip:${client_ip}", limit: 10, window: 1h, block: { keys: ["ip:192.0.2.66"] } }
  - { name: key, match: { path: /key }, key: "${api_key}", on_missing_key: deny, limit: 10, window: 1h }
  - { name: tenant, match: { path: /tenant }, key: "${cookie:tenant}", on_missing_key: deny, limit: 10, window: 1h,
      response: { missing: { status: 409, message: Choose a tenant. } } }
  - { name: shut, match: { path: /shut }, limit: 0, response: { blocked: { status: 451 } } }
  - { name: strict, match: { path: /strict }, limit: 10, window: 1h, consistency: strict, on_store_failure: closed,
      algorithm: fixed_window }
  - { name: one, match: { path: /one }, limit: 1, window: 1h }
"""
SERVER = """
    weir_log_denied @FOLDER@/denied;
    location /v1/ { weir off; weir_api; weir_api_open on; }
    location = /v1/auth { weir off; weir_auth; weir_api_open on; weir_auth_headers forwarded; }
    location = /v1/auth/403 { weir off; weir_auth; weir_auth_status 403; weir_api_open on; weir_auth_headers forwarded; }
"""
STORE = "weir_store redis://127.0.0.1:1 consistency=local;"
PROBLEM = {"Accept": "application/problem+json"}
LIMIT_HEADERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy")
pytestmark = pytest.mark.xdist_group("denied")  # they share a host
# path, client; status, error, type of the problem, status of gRPC, reason
CASES = {
    "listed": ("/api", "192.0.2.66", 403, "blocked", "weir:blocked", 7, "block_list"),
    "network": ("/api", "198.51.100.1", 403, "blocked", "weir:blocked", 7, "block_list"),
    "operator": ("/api", "192.0.2.7", 403, "blocked", "weir:blocked", 7, "blocked"),
    "ban": ("/shut", "192.0.2.1", 451, "blocked", "weir:blocked", 7, "ban"),
    "credential": ("/key", "192.0.2.1", 401, "missing_attribute", "weir:missing-attribute", 16, "missing_key"),
    "missing": ("/tenant", "192.0.2.1", 409, "missing_attribute", "weir:missing-attribute", 3, "missing_key"),
    "store": ("/strict", "192.0.2.1", 503, "unavailable", "#temporary-reduced-capacity", 14, "store_failure"),
    "limit": ("/one", "192.0.2.1", 429, "rate_limit_exceeded", "#quota-exceeded", 8, "limit"),
}


@pytest.fixture(scope="module")
def host():
    g = RespGateway(RULES, http=STORE, outside=STORE, server=SERVER, stream="weir_resp_operator_password op-secret;").start()
    try:
        with Client(g.resp) as c:
            assert c.do("AUTH", "op-secret") == "OK"
            assert c.do("WEIR.BLOCK", "api", "ip:192.0.2.7", "3600") == "OK this host, all hosts later"
        assert get(g.port, "/one").status == 200
        yield g
        g.stop()
    finally:
        g.remove()


def ask(g, case, **headers):
    return get(g.port, case[0], headers={"X-Forwarded-For": case[1], **headers})


@pytest.mark.parametrize("name", CASES)
def test_gateway(host, name):
    path, client, status, error, problem, grpc, _ = case = CASES[name]
    answer = ask(host, case)
    body = json.loads(answer.body)
    assert answer.status == status and body["error"] == error
    assert answer.headers["Cache-Control"] == "no-store"
    if name != "limit":
        assert "Slower" not in body["message"] and "limit" not in body and "remaining" not in body
    if name not in ("limit", "ban"):  # 0 of 0 claims nothing
        assert not [each for each in LIMIT_HEADERS if answer.headers[each]]
    if name == "operator":
        assert 3590 <= int(answer.headers["Retry-After"]) <= 3600 and body["retry_after"] == int(answer.headers["Retry-After"])
        assert re.fullmatch(r"Access is blocked until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\.", body["message"]) and body["until"] in body["message"]
    elif name != "limit":
        assert answer.headers["Retry-After"] is None and "until" not in body
    assert answer.headers["WWW-Authenticate"] == ("Key" if status == 401 else None)
    assert body.get("missing") == {"credential": "header x-api-key", "missing": "cookie tenant"}.get(name)
    answer = ask(host, case, **PROBLEM)
    body = json.loads(answer.body)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert body["type"].endswith(problem) and body["status"] == answer.status == status
    assert ("violated-policies" in body) == (name == "limit")
    answer = get(host.port, path, method="POST", headers={"X-Forwarded-For": client, "Content-Type": "application/grpc"})
    assert answer.status == 200 and answer.headers["grpc-status"] == str(grpc) and answer.headers["WWW-Authenticate"] is None
    if name == "credential":
        assert answer.headers["grpc-message"] == "The request lacks the header x-api-key."


@pytest.mark.parametrize("name", CASES)
def test_services(host, name):
    path, client, status, error, _, _, reason = CASES[name]
    question = {"attributes": {"path": path, "ip": client}}
    if path == "/api":
        question["attributes"].update({"ip": "127.0.0.1", "headers": {"X-Forwarded-For": client}})
    answer = get(host.port, "/v1/check?status=1", method="POST", body=json.dumps(question))
    body = json.loads(answer.body)
    assert answer.status == status and body["reason"] == reason and body["decision"] == "deny"
    assert answer.headers["WWW-Authenticate"] == ("Key" if status == 401 else None)
    if reason in ("blocked", "block_list", "missing_key", "store_failure"):
        assert body["limit"] is None and body["remaining"] is None
    assert body.get("missing") == {"credential": "header x-api-key", "missing": "cookie tenant"}.get(name)
    with Client(host.resp) as c:
        words = ["path", path, "ip", "127.0.0.1", "header:x-forwarded-for", client]
        reply = fields(c.do("WEIR.CHECK", *words))
        assert reply["decision"] == b"deny" and reply["reason"] == reason.encode()
        assert (reply["remaining"] <= 0) and (reason != "blocked" or reply["limit"] == -1)
        assert reply.get("missing") == (body["missing"].encode() if "missing" in body else None)
    headers = {"X-Forwarded-Uri": path, "X-Forwarded-For": f"{client}, 127.0.0.1"}
    answer = get(host.port, "/v1/auth", headers=headers)
    assert answer.status == status and json.loads(answer.body)["error"] == error and answer.headers["X-Weir-Status"] is None
    answer = get(host.port, "/v1/auth/403", headers=headers)
    assert answer.status == (401 if status == 401 else 403)
    assert answer.headers["X-Weir-Status"] == (None if status == 401 else str(status))
    assert answer.headers["WWW-Authenticate"] == ("Key" if status == 401 else None)
