"""The twin of the gRPC service in JSON: POST /json."""
import json

import pytest

from clients import get
from rls import LOCATIONS

RULES = """
domain: d
descriptors:
  - { key: two, rate_limit: { unit: day, requests_per_unit: 2, name: "the \\"two\\"" }, metadata: { a: { b: [1, 2.5, null] } } }
  - { key: ten, rate_limit: { unit: hour, requests_per_unit: 10 } }
  - { key: free, rate_limit: { unlimited: true } }
"""


@pytest.fixture
def post(gateway):
    def make(server="", **more):
        g = gateway(RULES, server=LOCATIONS + server, **more)

        def send(body, method="POST"):
            data = body if isinstance(body, (bytes, str)) else json.dumps(body)
            answer = get(g.port, "/json", method=method, body=data)
            kind = answer.headers["Content-Type"]
            return answer.status, json.loads(answer.body) if kind == "application/json" else answer.body
        return send
    return make


def request(*descriptors, **more):
    return {"domain": "d", "descriptors": [
        {"entries": [{"key": d.partition("=")[0], "value": d.partition("=")[2]}]} if isinstance(d, str) else d
        for d in descriptors], **more}


def entries(text):
    return {"entries": [{"key": text.partition("=")[0], "value": text.partition("=")[2]}]}


def test_replies(post):
    send = post()
    status, answer = send(request("two=a", "none=x", "free=x"))
    assert status == 200 and answer["overallCode"] == "OK"
    reset = answer["statuses"][0].pop("durationUntilReset")
    assert reset.endswith("s") and 0 < int(reset[:-1]) <= 86400
    assert answer["statuses"] == [
        {"code": "OK", "currentLimit": {"requestsPerUnit": 2, "unit": "DAY", "name": 'the "two"'}, "limitRemaining": 1},
        {"code": "OK"}, {"code": "OK", "limitRemaining": 2**32 - 1}]
    assert send(request("two=a"))[0] == 200
    status, answer = send(request("two=a"))
    assert status == 429 and answer["overallCode"] == "OVER_LIMIT" and "limitRemaining" not in answer["statuses"][0]


def test_names_and_numbers(post):
    send = post()

    def left(descriptor, **more):
        return send(request(descriptor, **more))[1]["statuses"][0]["limitRemaining"]
    for hits, negative in (("hitsAddend", "isNegativeHits"), ("hits_addend", "is_negative_hits")):
        for number in (3, "3", 3.0):
            key = f"ten={hits}{number!r}"
            assert left(key, **{hits: number}) == 7
            assert left({**entries(key), hits: number}) == 4
            assert left({**entries(key), hits: number, negative: True}) == 7
            assert left({**entries(key), hits: 0, negative: False}) == 7
            assert send(request({**entries(key), hits: str(2**64 - 1)}))[0] == 429
    for name in ("requestsPerUnit", "requests_per_unit"):
        for unit in ("MINUTE", 2):
            own = {**entries("x=a"), "limit": {name: 5, "unit": unit}}
            assert send(request(own))[1]["statuses"][0]["currentLimit"] == {"requestsPerUnit": 5, "unit": "MINUTE"}


def test_null_is_nothing(post):
    nothing = {"entries": [{"key": "ten", "value": "a"}], "limit": None, "hitsAddend": None, "isNegativeHits": None}
    assert post()(request(nothing, hitsAddend=None))[1]["statuses"][0]["limitRemaining"] == 9


def test_headers_and_metadata(post):
    send = post("weir_rls_headers on; weir_rls_metadata on;")
    answer = send(request("two=é", "ten=a"))[1]
    assert [h["key"] for h in answer["responseHeadersToAdd"]] == [
        "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"]
    assert [h["value"] for h in answer["responseHeadersToAdd"]][:2] == ["2", "1"]
    assert answer["dynamicMetadata"] == {"domain": "d", "descriptors": [{"entries": ["two=é"]}, {"entries": ["ten=a"]}],
                                         "metadata": {"a": {"b": [1, 2.5, None]}}}


def test_any_text(post):
    send = post()
    left = [send(request("ten=" + text))[1]["statuses"][0]["limitRemaining"]
            for text in ("x", "x\0", "x\0y", "\u2615", "\U0001f600", "\"\\/", "x\0y")]
    assert left == [9, 9, 9, 9, 9, 9, 8]


BAD = [
    ("", "line 1"), ("{", "line 1"), ("[]", "object"), ("null", "expected"), ("1", ""), ("{} x", "line 1"),
    ('{"domain":"d","domain":"e"}', "duplicate"), (b'{"domain":"\xff"}', "0xff"), ('{"domain":"\\ud800"}', ""),
    ("{}", "domain"), ({"domain": "", "descriptors": [{}]}, "domain"), ({"domain": "d"}, "descriptors"),
    ({"domain": 1}, "domain"), ({"domain": "d", "descriptors": {}}, "descriptors must be a list"),
    ({"domain": "d", "descriptors": [1]}, "descriptors[0]. must be an object"), ({"domain": "d", "hits": 1}, "hits is not a field"),
    (request(hitsAddend=1, hits_addend=1), "hits_addend is there twice"), (request("a=b", hitsAddend=-1), "hitsAddend has a wrong value"),
    (request("a=b", hitsAddend=2**32), "hitsAddend"), (request("a=b", hitsAddend=1.5), "hitsAddend"), (request("a=b", hitsAddend="1x"), "hitsAddend"),
    (request("a=b", hitsAddend=""), "hitsAddend"), (request("a=b", hitsAddend=[]), "hitsAddend"), (request("a=b", hitsAddend=1e300), "hitsAddend"),
    (request("a=b", {"entries": [{"key": "a"}, {"keys": "b"}]}), "descriptors[1].entries[1].keys is not a field"),
    (request({"entries": [{"key": 1}]}), "descriptors[0].entries[0].key"), (request({"entries": 1}), "entries must be a list"),
    (request({**entries("a=b"), "limit": {"unit": "FORTNIGHT"}}), "must be one of SECOND"), (request({**entries("a=b"), "limit": {"unit": 8}}), "SECOND"),
    (request({**entries("a=b"), "limit": {}}), "no unit"), (request({**entries("a=b"), "limit": 5}), "object"),
    (request({**entries("a=b"), "hitsAddend": str(2**64)}), "hitsAddend"), (request({**entries("a=b"), "isNegativeHits": "yes"}), "isNegativeHits"),
    (request(*["a=b"] * 257), "256"), ("[" * 1000 + "]" * 1000, "object"), ("[" * 100_000, "line 1"), ('{"a":' * 40_000, "line 1"),
]


def test_bad_bodies(post):
    send = post()
    for number, (body, says) in enumerate(BAD):
        status, answer = send(body)
        assert (number, status) == (number, 400) and says in answer["message"] and answer["code"] in (2, 3), (number, answer)
        assert send(request("free=a"))[0] == 200


def test_sizes_and_methods(post):
    send = post(http="client_body_buffer_size 4k;")
    assert send(request("ten=" + "x" * 250_000))[0] == 200
    assert send(request("ten=" + "x" * 270_000))[0] == 413
    assert send(b" " * 3_000_000)[0] == 413
    assert send(b"[" + b"[]," * 80_000 + b"[]]")[0] == 400
    for method in ("GET", "PUT", "DELETE"):
        assert send("{}", method=method)[0] == 405
