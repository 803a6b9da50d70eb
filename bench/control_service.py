"""The rules service of a real weir serve: from publishing to enforcement on all workers, lists of many rules, and the
dashboard in Chromium. For bench/control.py."""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
YAML = """gateway: { listen: "127.0.0.1:@PORT@", upstreams: ["@BACKEND@"] }
metrics: 127.0.0.1:@METRICS@
admin: { listen: "127.0.0.1:@ADMIN@", rules: database }
state: "@FOLDER@/state"
segment: { path: "@FOLDER@/segment", size: 16MiB }
workers: 2
rules: rules.yaml
"""


@contextlib.contextmanager
def host_of(rules):
    """A weir serve whose database has so many rules, all in force."""
    os.environ.setdefault("WEIR_NGINX_MODULE", str(ROOT / "build/gcc/nginx/ngx_http_weir_module.so"))
    sys.path.insert(0, str(ROOT / "tests/e2e"))
    from controlled import Host
    from served import Backend
    backend = Backend()
    host = Host(YAML, backend)
    try:
        (host.folder / "rules.yaml").write_text("rules:\n" + "".join(
            f"  - {{ name: rule-{n:05d}, match: {{ path: /path-{n}/* }}, key: \"user:${{header:X-User-Id}}\", "
            f"limit: {n % 100 + 1}, window: 1m }}\n" for n in range(rules)))
        yield host.begin()
    finally:
        host.remove()
        backend.stop()


def percentile(values, per_cent):
    return sorted(values)[min(len(values) - 1, len(values) * per_cent // 100)]


def line(case, values, per_cent, bar, unit="s", digits=3):
    value = percentile(values, per_cent)
    return {"bench": "control", "case": case, "value": round(value, digits), "unit": unit, "rounds": len(values),
            "median": round(percentile(values, 50), digits), "bar": bar, "most": True, "holds": value <= bar}


def publishing(host, rounds):
    """Seconds from the request to publish to when the last worker has taken the rules up."""
    from controlled import both_workers, reloads, rule
    took = []
    assert host.request("POST", "/v1/rules", rule("changed", 1))[0] == 201
    for limit in range(2, rounds + 2):
        before, after = both_workers(host), {}
        etag = host.request("GET", "/v1/rules/changed")[2]["ETag"]
        assert host.request("PUT", "/v1/rules/changed", rule("changed", limit), If_Match=etag)[0] == 200
        begin = time.monotonic()
        status, reply, _ = host.request("POST", "/v1/rules/changed/publish", '{"stage": "enforced", "reason": "bench"}')
        assert status == 200, reply
        while any(after.get(worker, 0) <= before[worker] for worker in before):
            assert time.monotonic() - begin < 30, "it does not arrive"
            reloads(host, after)
            time.sleep(0.002)
        took.append(time.monotonic() - begin)
    return took


def asking(host, path, expected, rounds):
    """Milliseconds of a response with so many items, over HTTP."""
    took = []
    for _ in range(rounds):
        begin = time.monotonic()
        status, reply, _ = host.request("GET", path)
        took.append(1000 * (time.monotonic() - begin))
        assert status == 200 and len(reply["items"]) == expected, (status, len(reply["items"]))
    return took


def painting(host, rounds):
    """Milliseconds to the first paint; None where there is no Chromium."""
    if not shutil.which("chromium") or not (ROOT / "build/node/web/node_modules/playwright-core").exists():
        return None
    out = subprocess.run(["node", str(ROOT / "bench/paint.mjs"), f"http://127.0.0.1:{host.admin}", host.token, str(rounds)],
                         check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout
    return json.loads(out)


def service(quick):
    subprocess.run(["make", "-s", "all", "nginx"], check=True, cwd=ROOT, stdout=sys.stderr)
    with host_of(1000) as host:
        yield line("publish to enforced on 2 workers, 1,000 rules, p99", publishing(host, 20 if quick else 100), 99, 2)
        painted = painting(host, 5 if quick else 20)
        if painted:
            yield line("dashboard, first paint, 1,000 rules, p99", painted["paint"], 99, 1000, "ms", 0)
            yield line("dashboard, rules listed, 1,000 rules, p99", painted["rows"], 99, 2000, "ms", 0)
    with host_of(10000) as host:
        rounds = 10 if quick else 50
        yield line("10,000 rules listed at once, median", asking(host, "/v1/rules?limit=10000", 10000, rounds), 50, 100, "ms", 1)
        yield line("10,000 rules, a page of 50, p99", asking(host, "/v1/rules?limit=50", 50, rounds), 99, 100, "ms", 1)
        yield line("10,000 rules filtered by name, p99", asking(host, "/v1/rules?limit=50&q=rule-077", 50, rounds), 99, 100, "ms", 1)
