"""/metrics: valid Prometheus text that counts what happens, with labels of rules and decisions only."""
import re

import pytest

from clients import get
from served import Backend, Served

YAML = """gateway:
  listen: 127.0.0.1:@PORT@
  upstreams: [@BACKEND@]
metrics: 127.0.0.1:@METRICS@
segment: { path: "@FOLDER@/segment", size: 1MiB }
workers: 1
identity: { user_id: header:X-User-Id }
rules:
  - { name: "two {a} day, \u00e9=1", match: { path: /two }, limit: 2, window: 1d }
  - { name: two, match: { path: /two }, limit: 1, window: 1d, shadow: true }
  - { name: user, match: { path: /user }, key: "user:${user_id}", limit: 5, window: 1d }
  - { name: slow, match: { path: /slow }, limit: 2, window: 1s, algorithm: leaky_bucket, on_limit: delay }
  - { name: listed, match: { path: /listed }, limit: 1, window: 1d, allow: { networks: [127.0.0.0/8] } }
"""

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def parse(text):
    """Reads the text format as strictly as Prometheus does: {(name, labels): value}, {family: type}."""
    assert text.endswith("\n")
    samples, types, helped, order = {}, {}, set(), []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in helped, f"{name} is described twice"
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("counter", "gauge", "histogram") and name not in types and name in helped
            types[name] = kind
            order.append(name)
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, labels, value = match.groups()
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            family = family if types.get(family) == "histogram" else name
            assert family == order[-1], f"{name} stands outside its family"
            assert types[family] != "counter" or name.endswith("_total")
            pairs = tuple(sorted((k, re.sub(r'\\["\\n]', lambda m: ESCAPES[m.group()], v))
                                 for k, v in LABEL.findall(labels or "")))
            assert (name, pairs) not in samples, f"{line} is there twice"
            samples[name, pairs] = float(value)
    return samples, types


@pytest.fixture
def one():
    backend = Backend()
    served = Served(YAML, backend).start()
    yield served
    served.remove()
    backend.stop()


def test_metrics(one):
    def read():
        answer = get(one.metrics, "/metrics")
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return parse(answer.body.decode())

    def decided(rule, decision, shadow="false"):
        return read()[0]["weir_decisions_total", (("decision", decision), ("rule", rule), ("shadow", shadow))]

    before, _ = read()
    odd = "two {a} day, \u00e9=1"
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    assert (decided(odd, "allow"), decided(odd, "deny")) == (2, 1)
    assert (decided("two", "allow", "true"), decided("two", "deny", "true")) == (1, 2)

    for user in ("ada", "bob", None):
        one.get("/user", headers={"X-User-Id": user} if user else {})
    samples, types = read()
    by_user = (("rule", "user"), ("shadow", "false"))
    assert decided("user", "allow") == 2 and samples["weir_missing_key_total", by_user] == 1
    for _ in range(3):
        one.get("/slow")
    assert decided("slow", "allow") + decided("slow", "delay") == 3 and decided("slow", "delay") >= 1
    for _ in range(2):
        assert one.get("/listed").status == 200
    samples, types = read()
    assert samples["weir_listed_total", (("rule", "listed"), ("shadow", "false"))] == 2

    assert samples["weir_segment_bytes", ()] == 1 << 20 and samples["weir_segment_slots", ()] > 1000
    assert 0 < samples["weir_keys_created_total", ()] < 20 and samples["weir_evicted_live_total", ()] == 0
    assert 0 <= samples["weir_segment_fill_ratio", ()] <= 1
    assert samples["weir_rules", ()] == 5
    assert samples["weir_rules_reloads_total", (("result", "failed"), ("worker", "0"))] == 0

    # Never a label per key, and the same series as before anything was asked.
    assert set(samples) == set(before)
    assert {label for _, labels in samples for label, _ in labels} == {"rule", "decision", "class", "shadow", "le", "result",
                                                                       "worker", "version"}
    assert types["weir_check_seconds"] == "histogram"


def test_the_histogram(one):
    samples = {}
    for _ in range(50):  # about one decision in 64 is timed, by chance
        for _ in range(100):
            one.get("/other")
        samples, _ = parse(get(one.metrics, "/metrics").body.decode())
        if samples["weir_check_seconds_count", ()] >= 2:
            break
    buckets = sorted((float(dict(labels)["le"]), value) for (name, labels), value in samples.items()
                     if name == "weir_check_seconds_bucket")
    assert len(buckets) == 16 and buckets[-1][0] == float("inf")
    counts = [count for _, count in buckets]
    assert counts == sorted(counts) and counts[-1] == samples["weir_check_seconds_count", ()] >= 2
    assert 0 < samples["weir_check_seconds_sum", ()] < 60


def test_only_there(one):
    assert get(one.metrics, "/weir/status").status == 200
    assert get(one.metrics, "/").status == 404
    assert get(one.metrics, "/metrics", method="POST", body=b"x").status == 405
    assert get(one.metrics, "/metrics", method="HEAD").status == 200
    assert b'"name": "a"' in one.get("/metrics").body  # the gateway passes it on
    assert b'"name": "a"' in one.get("/weir/status").body
