"""Envoy's rate-limit service over gRPC: every field of it, asked by a real gRPC client."""
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import time

import grpc
import httpx
import pytest
from google.protobuf import json_format

from clients import get
from gateway import MODULE, wait_until
from rls import CHECK, LOCATIONS, OK, OVER, ROOT, client, descriptor, health_pb2, request, rls_pb2

RULES = """
domain: d
descriptors:
  - { key: ten, rate_limit: { unit: hour, requests_per_unit: 10, name: ten-an-hour } }
  - { key: two, rate_limit: { unit: day, requests_per_unit: 2 } }
  - { key: banned, rate_limit: { unit: minute, requests_per_unit: 0 } }
  - { key: free, rate_limit: { unlimited: true, replaces: [ { name: ten-an-hour } ] } }
  - { key: tried, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: q1, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: q2, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 3 } }
  - { key: odd, rate_limit: { unit: hour, unit_multiplier: 2, requests_per_unit: 5 } }
  - { key: bucket, rate_limit: { unit: hour, requests_per_unit: 5, algorithm: token_bucket } }
  - { key: week, rate_limit: { unit: week, requests_per_unit: 5 } }
  - { key: month, rate_limit: { unit: month, requests_per_unit: 5 } }
  - { key: year, rate_limit: { unit: year, requests_per_unit: 5 } }
  - { key: second, rate_limit: { unit: second, requests_per_unit: 5 } }
  - key: nested
    value: a
    descriptors:
      - { key: inner, rate_limit: { unit: minute, requests_per_unit: 7 } }
  - { key: m1, metadata: { who: first, deep: { a: 1, list: [ x, 2, true, null ] } }, rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: m2, metadata: { who: second, deep: { a: 9, b: 2.5 } }, rate_limit: { unit: hour, requests_per_unit: 1 } }
"""
SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800, "MONTH": 2592000, "YEAR": 31536000}


@pytest.fixture
def service(gateway):
    def make(http="", server="", listen="http2", **more):
        return gateway(RULES, server=LOCATIONS + server, listen=listen, http=http, **more)
    return make


def until_end(seconds, since):
    """What was left of a window by the clock at each moment since then."""
    return {seconds - now % seconds for now in range(int(since) - 1, int(time.time()) + 2)}


def unit(name):
    return rls_pb2.Unit.Value(name)


def test_one_descriptor_down_to_over_limit(service):
    began = time.time()
    with client(service().port) as c:
        for left in (9, 8, 7):
            answer = c.request("ten=a")
            assert answer.overall_code == OK and len(answer.statuses) == 1
            status = answer.statuses[0]
            assert (status.code, status.limit_remaining) == (OK, left)
            assert (status.current_limit.requests_per_unit, status.current_limit.unit, status.current_limit.name) == (
                10, unit("HOUR"), "ten-an-hour")
            assert status.duration_until_reset.seconds in until_end(3600, began) and status.duration_until_reset.nanos == 0
            assert not answer.response_headers_to_add and not answer.HasField("dynamic_metadata")
        assert c.codes("ten=a", count=9) == [OK] * 7 + [OVER] * 2
        status = c.request("ten=a").statuses[0]
        assert (status.code, status.limit_remaining) == (OVER, 0) and status.current_limit.requests_per_unit == 10
        assert status.duration_until_reset.seconds in until_end(3600, began)
        assert c.request("ten=b").statuses[0].limit_remaining == 9


def test_burst_that_the_protocol_cannot_express(gateway):
    rules = ("domain: apis\ndescriptors:\n  - { key: k, rate_limit: { unit: hour, requests_per_unit: 2, "
             "algorithm: token_bucket, burst: 4 } }\n")
    with client(gateway(rules, server=LOCATIONS, listen="http2").port) as c:
        statuses = [c.request("k=a", domain="apis").statuses[0] for _ in range(4)]
        assert [s.limit_remaining for s in statuses] == [2, 2, 1, 0]  # never more than requests_per_unit
        assert {s.current_limit.requests_per_unit for s in statuses} == {2}
        assert c.request("k=a", domain="apis").overall_code == OVER


def test_if_block_of_the_location(gateway):
    """Its configuration is another than the location's: calls stay gRPC all the same."""
    locations = LOCATIONS.replace("{ weir_rls; }", "{ weir_rls; if ($request_method = POST) { set $seen 1; } }")
    with client(gateway(RULES, server=locations, listen="http2").port) as c:
        assert c.codes("ten=if", count=11) == [OK] * 10 + [OVER]


def test_statuses_are_in_order_and_complete(service):
    with client(service(server="weir_rls_count_denied off;").port) as c:
        answer = c.request("none=x", "two=a", "free=x", descriptor("nested=a", "inner=z"), "tried=a", "nested=a")
        assert answer.overall_code == OK
        assert [s.code for s in answer.statuses] == [OK] * 6
        assert [s.limit_remaining for s in answer.statuses] == [0, 1, 2**32 - 1, 6, 0, 0]
        assert [s.HasField("current_limit") for s in answer.statuses] == [False, True, False, True, True, False]
        assert [s.HasField("duration_until_reset") for s in answer.statuses] == [False, True, False, True, True, False]
        assert answer.statuses[3].current_limit.unit == unit("MINUTE") and answer.statuses[1].current_limit.name == ""
        # all or nothing: the one that is over is told so, the other keeps what it has
        c.request("two=a")
        answer = c.request("ten=x", "two=a", "banned=x")
        assert answer.overall_code == OVER and [s.code for s in answer.statuses] == [OK, OVER, OVER]
        assert answer.statuses[0].limit_remaining == 10 and c.request("ten=x").statuses[0].limit_remaining == 9


def test_units(service):
    began = time.time()
    with client(service().port) as c:
        for name, seconds in SECONDS.items():
            key = {"HOUR": "ten", "DAY": "two", "MINUTE": None}.get(name, name.lower())
            if key:
                status = c.request(f"{key}=a").statuses[0]
                assert status.current_limit.unit == unit(name)
                assert status.duration_until_reset.seconds in until_end(seconds, began)
            # and as a limit of the request's own
            own = descriptor("anything=a", limit=(3, unit(name)))
            if name == "MINUTE" and time.time() % 60 > 50:
                time.sleep(11)
            statuses = [c.request(own).statuses[0] for _ in range(4)]
            if name != "SECOND":  # it may have passed meanwhile
                assert [s.code for s in statuses] == [OK] * 3 + [OVER]
            assert statuses[0].current_limit.requests_per_unit == 3 and statuses[0].current_limit.unit == unit(name)
            assert c.request(descriptor("anything=a", limit=(3, unit(name))), domain="other").statuses[0] == (
                rls_pb2.RateLimitResponse.DescriptorStatus(code=OK))  # only in a domain that is known


def test_bans_shadows_odd_windows(service):
    began = time.time()
    with client(service().port) as c:
        status = c.request("banned=x").statuses[0]
        assert (status.code, status.current_limit.requests_per_unit, status.current_limit.unit) == (OVER, 0, unit("MINUTE"))
        assert status.duration_until_reset.seconds in until_end(60, began)
        assert c.request(descriptor("x=y", limit=(0, unit("HOUR")))).overall_code == OVER
        assert c.codes("tried=a", count=3) == [OK] * 3
        status = c.request("tried=a").statuses[0]
        assert (status.code, status.limit_remaining, status.current_limit.requests_per_unit) == (OK, 0, 1)
        assert c.request("odd=a").statuses[0].current_limit.unit == unit("UNKNOWN")  # no unit is two hours long
        bucket = c.request("bucket=a").statuses[0]
        assert bucket.limit_remaining == 4 and bucket.duration_until_reset.seconds in (719, 720)


def test_hits(service):
    with client(service(server="weir_rls_count_denied off;").port) as c:
        def left(*descriptors, **more):
            return [s.limit_remaining for s in c.request(*descriptors, **more).statuses]
        assert left("ten=a", hits=4) == [6]
        assert left("ten=a") == [5]
        assert left(descriptor("ten=a", hits=0)) == [5]  # a look
        assert left(descriptor("ten=a", hits=2), hits=5) == [3]
        assert left(descriptor("ten=a", hits=3, negative=True)) == [6]
        assert left(descriptor("ten=a", negative=True), hits=2) == [8]
        assert left(descriptor("ten=a", negative=True)) == [9]
        assert left(descriptor("ten=a", hits=0), "ten=b", descriptor("ten=c", hits=5)) == [9, 9, 5]  # each its own
        assert left(descriptor("ten=a", hits=0), "ten=b", descriptor("ten=c", hits=0)) == [9, 8, 5]
        assert c.request(descriptor("ten=a", hits=10)).overall_code == OVER
        assert c.request(descriptor("ten=a", hits=2**64 - 1)).overall_code == OVER  # never fits
        assert left(descriptor("ten=a", hits=0)) == [9]
        assert left(descriptor("ten=a", hits=2**64 - 1, negative=True)) == [10]  # never beyond untouched
        assert c.request("ten=a", hits=2**32 - 1).overall_code == OVER


REPORTED = "domain: d\ndescriptors:\n" + "".join(
    f"  - {{ key: {name}, rate_limit: {{ unit: hour, requests_per_unit: 1000{more} }} }}\n" for name, more in (
        ("window", ""), ("bucket", ", algorithm: token_bucket"), ("leaky", ", algorithm: leaky_bucket"),
        ("log", ", algorithm: sliding_window_log"), ("counter", ", algorithm: sliding_window_counter"),
        ("wide", ", algorithm: sliding_window_counter, buckets: 10"))) + (
    "  - { key: quick, rate_limit: { unit: second, requests_per_unit: 1000, algorithm: token_bucket } }\n")
ALGORITHMS = ["window", "bucket", "leaky", "log", "counter", "wide"]


def json_caller(port):
    def call(key, hits):
        body = {"domain": "d", "descriptors": [{"entries": [{"key": key, "value": "t"}], "hitsAddend": hits}]}
        return json.loads(get(port, "/json", method="POST", body=json.dumps(body)).body)["overallCode"]
    return call


def grpc_caller(c):
    return lambda key, hits: {OK: "OK", OVER: "OVER_LIMIT"}[c.request(descriptor(f"{key}=t", hits=hits)).overall_code]


def three_responses(call, key):
    """Looks before each response, reports 400 after it: what the looks and the reports are answered, and a last look."""
    looks = [(call(key, 0), call(key, 400)) for _ in range(3)]
    assert looks == [("OK", "OK"), ("OK", "OK"), ("OK", "OVER_LIMIT")], key
    return call(key, 0)


def test_reports_count_by_default(gateway):
    """Envoy Gateway looks with 0 hits and reports usage at the end: a report that does not fit is consumed all the same."""
    with client(gateway(REPORTED, server=LOCATIONS, listen="http2").port) as c:
        call = grpc_caller(c)
        assert {key: three_responses(call, key) for key in ALGORITHMS} == dict.fromkeys(ALGORITHMS, "OVER_LIMIT")
        call("quick", 1000), call("quick", 1500)
        assert call("quick", 0) == "OVER_LIMIT"  # a debt of up to 1500, at 1000 a second
        wait_until(lambda: call("quick", 0) == "OK", "the debt to be repaid")
        # A call without hits of its own is no report: denied, it leaves no debt in a bucket.
        assert c.request(descriptor("bucket=u", hits=1000)).overall_code == OK
        assert c.codes("bucket=u", count=3) == [OVER] * 3
        assert c.request(descriptor("bucket=u", hits=0)).overall_code == OK


def test_reports_count_by_default_in_json(gateway):
    call = json_caller(gateway(REPORTED, server=LOCATIONS).port)
    assert {key: three_responses(call, key) for key in ALGORITHMS} == dict.fromkeys(ALGORITHMS, "OVER_LIMIT")


def test_reports_count_under_strict_rules(redis_server, hosts):
    """Also those that a remembered denial, or a limit of the host, denies before the store is asked."""
    one, two = hosts(redis_server(), 2, REPORTED, server=LOCATIONS, listen="http2", settings="consistency=strict")
    with client(one.port) as a, client(two.port) as b:
        for key in ALGORITHMS:
            assert three_responses(grpc_caller(a), key) == "OVER_LIMIT"
            assert grpc_caller(b)(key, 0) == "OVER_LIMIT", key
        assert a.request(descriptor("bucket=u", hits=1000)).overall_code == OK
        assert [a.request(descriptor("bucket=u", hits=1000)).overall_code for _ in range(3)] == [OVER] * 3
        reset = b.request(descriptor("bucket=u", hits=0)).statuses[0].duration_until_reset.seconds
        assert 3.9 * 3600 < reset <= 4 * 3600  # 3000 in debt: all four are to be repaid
        # Denied by one descriptor, counted under the other, too; twice the same counter counts twice.
        a.request(descriptor("bucket=u", hits=1), descriptor("counter=u", hits=300), descriptor("counter=u", hits=200))
        assert b.request(descriptor("counter=u", hits=0)).statuses[0].limit_remaining == 500


def test_wrong_tokens_wait(service):
    with client(service(server="weir_api_token the-right-token;").port) as c:
        def status(token):
            began = time.monotonic()
            try:
                c.should(request("ten=a"), timeout=10, metadata=[("authorization", f"Bearer {token}")])
                code = grpc.StatusCode.OK
            except grpc.RpcError as error:
                code = error.code()
            return code, time.monotonic() - began
        for at_least in (0.1, 0.2, 0.4):
            code, took = status("a-wrong-token")
            assert code == grpc.StatusCode.UNAUTHENTICATED and took >= at_least - 0.005
        assert status("the-right-token")[0] == grpc.StatusCode.OK


def test_reporting_afterwards(service):
    """Clients that look first and report later what they used (tokens of a language model): what was used counts."""
    with client(service().port) as c:
        assert c.request(descriptor("ten=a", hits=0)).overall_code == OK
        assert c.request(descriptor("ten=a", hits=8)).overall_code == OK
        assert c.request(descriptor("ten=a", hits=0)).overall_code == OK
        assert c.request(descriptor("ten=a", hits=8), "week=a").overall_code == OVER
        assert c.request(descriptor("ten=a", hits=0)).overall_code == OVER
        assert c.request(descriptor("week=a", hits=0)).statuses[0].limit_remaining == 4


def test_quota_mode_and_replaces(service):
    with client(service().port) as c:
        assert c.codes("q1=a", "q2=a", count=4) == [OK] * 3 + [OVER]
        answer = c.request("q1=a", "q2=b")
        assert answer.overall_code == OK and [s.code for s in answer.statuses] == [OVER, OK]
        answer = c.request("ten=r", "free=x")
        assert not answer.statuses[0].HasField("current_limit") and c.request("ten=r").statuses[0].limit_remaining == 9


def test_headers(service):
    began = time.time()
    with client(service(server="weir_rls_headers on;").port) as c:
        def headers(*descriptors):
            return [(h.key, h.value) for h in c.request(*descriptors).response_headers_to_add]
        got = headers("ten=a", "two=a", "none=a")  # the one with least left
        assert got[:2] == [("RateLimit-Limit", "2"), ("RateLimit-Remaining", "1")]
        assert got[2][0] == "RateLimit-Reset" and int(got[2][1]) in until_end(86400, began)
        assert headers("two=a", "ten=a")[1] == ("RateLimit-Remaining", "0")
        assert headers("ten=b", "two=a")[:2] == [("RateLimit-Limit", "2"), ("RateLimit-Remaining", "0")]
        assert headers("none=a") == [] and headers("free=a") == []
        headers("q1=a")
        assert headers("ten=a", "q1=a")[0] == ("RateLimit-Limit", "1")


def test_metadata(service):
    with client(service(server="weir_rls_metadata on;").port) as c:
        sent = [descriptor("m1=é", "x"), "m1=a", "m2=a", descriptor("own=1", hits=3, limit=(5, unit("DAY")))]
        answer = c.request(*sent, hits=1)
        reply = json_format.MessageToDict(answer.dynamic_metadata)
        assert reply == {
            "domain": "d", "hitsAddend": 1.0,
            "descriptors": [{"entries": ["m1=é", "x="]}, {"entries": ["m1=a"]}, {"entries": ["m2=a"]},
                            {"entries": ["own=1"], "limit": "requests_per_unit:5 unit:DAY", "hitsAddend": 3.0}],
            "metadata": {"who": "first", "deep": {"a": 1.0, "list": ["x", 2.0, True, None], "b": 2.5}}}
        answer = c.request("m2=a")
        assert answer.overall_code == OVER and "metadata" not in answer.dynamic_metadata.fields
        answer = c.request("ten=a")
        assert json_format.MessageToDict(answer.dynamic_metadata) == {"domain": "d", "descriptors": [{"entries": ["ten=a"]}]}


def test_calls_are_counted_under_their_rules(service):
    g = service(server="location = /weir/numbers { weir_status; }")
    with client(g.port) as c:
        c.codes("two=a", count=5)
    with httpx.Client(http1=False, http2=True) as http:
        rules = http.get(f"http://127.0.0.1:{g.port}/weir/numbers").json()["by_rule"]
    assert [(rule["allowed"], rule["denied"]) for rule in rules if rule["name"] == "d.two"] == [(2, 3)], rules


def test_a_reload_of_the_rules(service):
    g = service(server="weir_rls_count_denied off;")
    with client(g.port) as c:
        assert c.codes("two=a", count=3) == [OK, OK, OVER]
        g.write_rules(RULES.replace("requests_per_unit: 2 }", "requests_per_unit: 4 }"))
        wait_until(lambda: c.request(descriptor("two=a", hits=0)).statuses[0].current_limit.requests_per_unit == 4, "new rules")
        assert c.codes("two=a", count=3) == [OK, OK, OVER]
        g.reload()
        assert c.codes("two=a", count=1) == [OVER]


def test_tls(service):
    g = service(start=False, listen="ssl http2",
                http="ssl_certificate @F@/cert.pem; ssl_certificate_key @F@/key.pem;")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", g.folder / "key.pem",
                    "-out", g.folder / "cert.pem"], check=True, capture_output=True, timeout=60)
    g.config.write_text(g.config.read_text().replace("@F@", str(g.folder)))
    g.start()
    credentials = grpc.ssl_channel_credentials((g.folder / "cert.pem").read_bytes())
    with client(g.port, credentials=credentials) as c:
        assert c.codes("two=a", count=3) == [OK, OK, OVER]


def test_a_thousand_at_once(service):
    """Over several connections and workers: exactly what may pass passes."""
    g = service(listen="http2 reuseport", workers=2, server="weir_rls_count_denied off;")
    g.write_rules("domain: d\ndescriptors:\n  - { key: big, rate_limit: { unit: year, requests_per_unit: 300 } }\n"
                  "  - { key: own, rate_limit: { unit: year, requests_per_unit: 1000 } }\n")
    with Clients(g.port, 8) as clients:
        def known(c):
            return c.request(descriptor("big=x", hits=0)).statuses[0].HasField("current_limit")
        wait_until(lambda: all(known(c) for c in clients), "the rules in the worker of each")
        calls = [clients[i % 8].should.future(request("own=1", "big=1"), timeout=20) for i in range(1000)]
        counted = collections.Counter(call.result().overall_code for call in calls)
        assert counted == {OK: 300, OVER: 700}
        left = clients[0].request(descriptor("big=1", hits=0), descriptor("own=1", hits=0))
        assert [s.limit_remaining for s in left.statuses] == [0, 700]


class Clients:
    def __init__(self, port, count):
        self.clients = [client(port, options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(count)]

    def __enter__(self):
        return [each.__enter__() for each in self.clients]

    def __exit__(self, *problem):
        for each in self.clients:
            each.__exit__(*problem)


def test_grpc_js(service):
    modules = ROOT / "build" / "node" / "node_modules"
    assert (modules / "@grpc" / "grpc-js").exists(), "./dev test installs it"
    g = service(http="weir_rls_headers on;")
    script = f"""
        const grpc = require("@grpc/grpc-js"), loader = require("@grpc/proto-loader");
        const load = (file) => grpc.loadPackageDefinition(loader.loadSync(file, {{
            includeDirs: ["{ROOT}/proto", "/usr/include"], keepCase: true, enums: String, longs: Number, arrays: true}}));
        const {{ RateLimitService }} = load("rls.proto").envoy.service.ratelimit.v3;
        const {{ Health }} = load("health.proto").grpc.health.v1;
        const where = ["127.0.0.1:{g.port}", grpc.credentials.createInsecure()];
        const limiter = new RateLimitService(...where), health = new Health(...where);
        const call = (client, method, request, ...more) => new Promise((resolve) =>
            client[method](request, ...more, (error, answer) => resolve(error ? [error.code, error.details] : answer)));
        const two = {{domain: "d", descriptors: [{{entries: [{{key: "two", value: "x"}}]}},
                                                 {{entries: [{{key: "unknown", value: ""}}]}}]}};
        (async () => {{
            const many = await Promise.all(Array.from({{length: 12}}, () => call(limiter, "ShouldRateLimit", two)));
            const over = await call(limiter, "ShouldRateLimit", two);
            const wrong = await call(limiter, "ShouldRateLimit", {{domain: "", descriptors: two.descriptors}});
            const compressed = new RateLimitService(...where, {{"grpc.default_compression_algorithm": 2}});
            const squeezed = await call(compressed, "ShouldRateLimit", two);
            console.log(JSON.stringify({{codes: many.map((each) => each.overall_code), over, wrong, squeezed: squeezed[0],
                                        health: await call(health, "Check", {{service: ""}})}}));
            process.exit(0);
        }})();"""
    done = subprocess.run(["node", "-e", script], env={**os.environ, "NODE_PATH": str(modules)}, capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout, done.stderr
    output = json.loads(done.stdout)
    assert output["codes"].count("OK") == 2 and output["codes"].count("OVER_LIMIT") == 10
    over = output["over"]
    assert over["overall_code"] == "OVER_LIMIT" and [each["code"] for each in over["statuses"]] == ["OVER_LIMIT", "OK"]
    assert over["statuses"][0]["current_limit"]["requests_per_unit"] == 2
    assert {each["key"] for each in over["response_headers_to_add"]} >= {"RateLimit-Limit", "RateLimit-Reset"}
    assert output["wrong"][0] == grpc.StatusCode.UNKNOWN.value[0]
    assert output["squeezed"] == grpc.StatusCode.UNIMPLEMENTED.value[0]
    assert output["health"]["status"] == "SERVING"


def test_many_calls_on_one_connection(service):
    with client(service().port) as c:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: c.request(f"ten={i % 50}").overall_code, range(2000)))
        assert collections.Counter(answers) == {OK: 500, OVER: 1500}


def test_tokens_of_the_server(service):
    """weir_api_token around a location with weir_rls: calls need one, health checks do not."""
    with client(service(server="weir_api_token a-secret-token;").port) as c:
        for metadata in (), (("authorization", "Bearer another-token"),), (("x-weir-token", "another-token"),):
            with pytest.raises(grpc.RpcError) as refused:
                c.should(request("ten=a", hits=3), timeout=10, metadata=metadata)
            assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        for metadata, left in ((("authorization", "Bearer a-secret-token"),), 9), ((("x-weir-token", "a-secret-token"),), 8):
            assert c.should(request("ten=a"), timeout=10, metadata=metadata).statuses[0].limit_remaining == left
        assert c.check(health_pb2.HealthCheckRequest(), timeout=10).status == health_pb2.HealthCheckResponse.SERVING


def test_health(service):
    with client(service().port) as c:
        serving = health_pb2.HealthCheckResponse.SERVING
        for name in ("", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"):
            assert c.check(health_pb2.HealthCheckRequest(service=name), timeout=10).status == serving
        with pytest.raises(grpc.RpcError) as problem:
            c.check(health_pb2.HealthCheckRequest(service="other"), timeout=10)
        assert problem.value.code() == grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.RpcError) as problem:
            list(c.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=10))
        assert problem.value.code() == grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.RpcError) as problem:
            c.raw(b"\xff\xff", method=CHECK)
        assert problem.value.code() == grpc.StatusCode.INVALID_ARGUMENT


TEXT = (ROOT / "docs" / "reference" / "grpc.md").read_text()


def test_every_directive_is_described():
    source = "".join(p.read_text() for p in sorted((ROOT / "nginx" / "http").glob("*.c")))
    for name in re.findall(r'ngx_string\("(weir_rls\w*)"\)', source):
        assert f"`{name}" in TEXT, name


def test_the_documentation_is_true(service):
    """Its configuration runs, and its example of JSON gets the answer that it shows."""
    g = service(start=False)
    config, = re.findall(r"```nginx\n(.*?)```", TEXT, re.S)
    for there, here in (("/usr/lib/nginx/modules/ngx_http_weir_module.so", MODULE), ("/dev/shm/weir ", f"{g.segment} "),
                        ("/etc/weir/rules.d", f"{g.folder}/rules"), ("127.0.0.1:8081", f"127.0.0.1:{g.port}"),
                        ("127.0.0.1:8080", f"127.0.0.1:{g.backend}")):
        assert there in config
        config = config.replace(there, here)
    g.config.write_text(f"pid {g.folder}/nginx.pid; error_log {g.folder}/error.log;\n{config}")
    g.write_rules("domain: messaging\ndescriptors:\n  - { key: message_type, value: marketing, "
                  "rate_limit: { unit: day, requests_per_unit: 5 } }\n")
    g.start()
    sent, reply = re.search(r"/json -d '(.*?)'\n(.*?)\n", TEXT).groups()
    answer = get(g.backend, "/json", method="POST", body=sent).body.decode()
    assert re.sub(r'"\d+s"', '""', answer) == re.sub(r'"\d+s"', '""', reply)
    assert get(g.backend, "/healthcheck").body == b"OK"
    with client(g.port) as c:
        assert c.request("message_type=marketing", domain="messaging").statuses[0].limit_remaining == 3
