#!/usr/bin/env python3
"""./dev bench service: the decision service beside what people use today.

weir (`weir serve`, one worker), nginx's own static answers, Redis and envoyproxy/ratelimit (with its Redis) each have the
first processor, one at a time; h2load, redis-benchmark and wrk have the second. A round measures each case once; a figure is the
median of the rounds, a bar the median of the rounds' ratios. Peers that cannot be had are left out, and said so.
"""
import argparse
import contextlib
import csv
import io
import json
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

SERVER_CPU, CLIENT_CPU = "0", "1"
RATELIMIT = "github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36"
RLS = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
COLUMNS = "{:<46} {:>11} {:<11} {:>8} {:>8} {:>8}  {}"
DESCRIPTORS = """domain: d
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 4000000000 } }
"""
OWN = """rules:
  - { name: api, match: { path: /api/* }, key: 'ip:${client_ip}', limit: 1000000, window: 1s }
"""
CHECK = {"attributes": {"path": "/api/items", "method": "GET", "ip": "203.0.113.9"}}
LUA = (pathlib.Path(__file__).parent / "token_bucket.lua").read_text()
WRK = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = [[BODY]]
done = function(summary, latency)
  local bad = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout + summary.errors.status
  io.write(string.format("RESULT %d %d %d %d %d %d\\n", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), latency:percentile(99.9), bad))
end
"""


def note(text):
    print(f"bench service: {text}", file=sys.stderr, flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def field(number, data):
    """One field of a protobuf message."""
    return bytes([number << 3 | 2, len(data)]) + data


def grpc_call():
    entry = field(1, b"user") + field(2, b"42")
    message = field(1, b"d") + field(2, field(1, entry))
    return b"\0" + len(message).to_bytes(4, "big") + message


class Servers:
    def __init__(self, folder):
        self.folder, self.processes = pathlib.Path(folder), []

    def start(self, name, command, port, **environment):
        log = open(self.folder / f"{name}.log", "w")
        process = subprocess.Popen(["taskset", "-c", SERVER_CPU, *map(str, command)], stdout=log, stderr=log,
                                   stdin=subprocess.DEVNULL, env={**os.environ, **environment})
        self.processes.append(process)
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return port
            if process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"bench service: {name} does not start:\n" + (self.folder / f"{name}.log").read_text()[-2000:])

    def weir(self, weir):
        ports = {name: free_port() for name in ("grpc", "http", "resp")}
        rules = self.folder / "rules"
        rules.mkdir()
        (rules / "own.yaml").write_text(OWN)
        (rules / "descriptors.yaml").write_text(DESCRIPTORS)
        config = self.folder / "weir.yaml"
        config.write_text(f"segment: {{ path: {self.folder}/segment, size: 64MiB }}\nworkers: 1\nrules: rules\nservice:\n" +
                          "".join(f"  {name}: 127.0.0.1:{port}\n" for name, port in ports.items()))
        self.start("weir", [weir, "serve", config], ports["http"])
        return ports

    def nginx(self):
        http2, http, home = free_port(), free_port(), self.folder / "static"
        home.mkdir()
        (home / "nginx.conf").write_text(f"""
            daemon off; worker_processes 1; pid {home}/pid; error_log {home}/error.log error;
            events {{ worker_connections 4096; }}
            http {{ access_log off; keepalive_requests 1000000000;
                server {{ listen 127.0.0.1:{http2} http2; location / {{ return 200 "ok"; }} }}
                server {{ listen 127.0.0.1:{http}; location / {{ return 200 "ok"; }} }} }}""")
        self.start("nginx", ["nginx", "-p", home, "-c", home / "nginx.conf", "-e", home / "error.log"], http)
        return http2, http

    def redis(self):
        port = free_port()
        return self.start("redis", ["redis-server", "--port", port, "--save", "", "--appendonly", "no", "--dir",
                                    self.folder], port)

    def ratelimit(self, redis):
        program = pathlib.Path("build/go/bin/service_cmd").resolve()
        if not program.exists() and shutil.which("go"):
            subprocess.run(["go", "install", RATELIMIT], env={**os.environ, "GOBIN": str(program.parent)}, check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if not program.exists():
            note("envoyproxy/ratelimit cannot be had (it needs go and the network); left out")
            return None
        config = self.folder / "runtime" / "ratelimit" / "config"
        config.mkdir(parents=True)
        (config / "c.yaml").write_text(DESCRIPTORS)
        port = free_port()
        return self.start(
            "ratelimit", [program], port, USE_STATSD="false", LOG_LEVEL="error", REDIS_SOCKET_TYPE="tcp",
            REDIS_URL=f"127.0.0.1:{redis}", RUNTIME_ROOT=str(self.folder / "runtime"), RUNTIME_SUBDIRECTORY="ratelimit",
            RUNTIME_WATCH_ROOT="false", HOST="127.0.0.1", PORT=str(free_port()), GRPC_HOST="127.0.0.1",
            GRPC_PORT=str(port), DEBUG_HOST="127.0.0.1", DEBUG_PORT=str(free_port()), GOMAXPROCS="1")

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=15)
            if process.poll() is None:
                process.kill()


def run(*command):
    return subprocess.run(["taskset", "-c", CLIENT_CPU, *map(str, command)], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.PIPE, check=True).stdout


def h2load(port, seconds, path="/", body=None):
    more = ["-d", body, "-H", "content-type: application/grpc", "-H", "te: trailers"] if body else []
    text = run("h2load", "-D", seconds, "-c", 8, "-m", 50, *more, f"http://127.0.0.1:{port}{path}")
    good, total = (int(re.search(pattern, text).group(1)) for pattern in (r"(\d+) 2xx", r"requests: (\d+) total"))
    if good < total * 0.9:
        sys.exit(f"bench service: only {good} of {total} calls were answered:\n{text}")
    return {"rate": float(re.search(r"finished in .*?, ([\d.]+) req/s", text).group(1))}


def redis_benchmark(port, pipeline, seconds, *command):
    """As many requests as take about so long; the first guess sets the count."""
    def measure(count):
        text = run("redis-benchmark", "-p", port, "-c", 32, "-P", pipeline, "-n", count, "--csv", *command)
        row = list(csv.reader(io.StringIO(text)))[-1]
        return {"rate": float(row[1]), "p50": float(row[4]) * 1000, "p99": float(row[6]) * 1000}
    return measure(max(int(measure(20000)["rate"] * seconds), 20000))


def wrk(script, port, seconds, path):
    text = run("wrk", "-t1", "-c32", f"-d{seconds}s", "-s", script, f"http://127.0.0.1:{port}{path}")
    total, duration, p50, p99, p999, bad = map(int, re.search(r"RESULT (.*)", text).group(1).split())
    if bad:
        sys.exit(f"bench service: {bad} of {total} HTTP checks failed")
    return {"rate": total / duration * 1e6, "p50": p50, "p99": p99, "p99.9": p999}


class Printer:
    def __init__(self, as_json):
        self.as_json, self.bars = as_json, []
        if not as_json:
            print(COLUMNS.format("case", "value", "unit", "p50 us", "p99 us", "p99.9 us", "bar"))

    def show(self, case, value, unit, bar=None, **more):
        line = {"bench": "service", "case": case, **more, "value": value, "unit": unit}
        told = ""
        if bar is not None:
            line.update(bar=bar, holds=value >= bar)
            told = f"at least {bar:g}: {'holds' if line['holds'] else 'MISSED'}"
            self.bars.append(line["holds"])
        if self.as_json:
            print(json.dumps(line), flush=True)
        else:
            number = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
            cells = [f"{more[key]:.0f}" if key in more else "" for key in ("p50", "p99", "p99.9")]
            print(COLUMNS.format(case, number, unit, *cells, told).rstrip(), flush=True)


def contest(servers, options, printer):
    body, script = servers.folder / "call", servers.folder / "check.lua"
    body.write_bytes(grpc_call())
    script.write_text(WRK.replace("BODY", json.dumps(CHECK)))
    weir, (http2, http), redis = servers.weir(options.weir), servers.nginx(), servers.redis()
    ratelimit = servers.ratelimit(redis)
    sha = run("redis-cli", "-p", redis, "SCRIPT", "LOAD", LUA).strip()
    lua = ("EVALSHA", sha, 1, "bucket", 10, 10000, 1)
    throttle = ("CL.THROTTLE", "bucket", 1000000, 1000000, 60)
    cases = {
        "gRPC, weir": lambda s: h2load(weir["grpc"], s, RLS, body),
        "gRPC, nginx's static answer": lambda s: h2load(http2, s),
        "RESP, weir, pipeline 64": lambda s: redis_benchmark(weir["resp"], 64, s, *throttle),
        "RESP, Redis INCR, pipeline 64": lambda s: redis_benchmark(redis, 64, s, "INCR", "n"),
        "RESP, Redis Lua token bucket, pipeline 64": lambda s: redis_benchmark(redis, 64, s, *lua),
        "RESP, weir, pipeline 1": lambda s: redis_benchmark(weir["resp"], 1, s, *throttle),
        "RESP, Redis INCR, pipeline 1": lambda s: redis_benchmark(redis, 1, s, "INCR", "n"),
        "HTTP, weir check": lambda s: wrk(script, weir["http"], s, "/v1/check"),
        "HTTP, nginx return 200": lambda s: wrk(script, http, s, "/v1/check"),
    }
    if ratelimit:
        cases["gRPC, envoyproxy/ratelimit"] = lambda s: h2load(ratelimit, s, RLS, body)
    results = {name: [] for name in cases}
    for number in range(-1, 2 if options.quick else 7):  # the first is to warm up
        for name, measure in cases.items():
            figures = measure(1 if options.quick or number < 0 else 3)
            if number >= 0:
                results[name].append(figures)
    for name, figures in results.items():
        middle = {key: statistics.median(f[key] for f in figures) for key in figures[0]}
        printer.show(name, middle.pop("rate"), "a second", **middle)

    def bar(case, name, other, least):
        if other in results:
            printer.show(case, statistics.median(a["rate"] / b["rate"] for a, b in zip(results[name], results[other])),
                         "ratio", least)

    bar("gRPC / envoyproxy/ratelimit", "gRPC, weir", "gRPC, envoyproxy/ratelimit", 5)
    bar("gRPC / static HTTP/2", "gRPC, weir", "gRPC, nginx's static answer", 0.6)
    bar("RESP / INCR, pipeline 64", "RESP, weir, pipeline 64", "RESP, Redis INCR, pipeline 64", 2)
    bar("RESP / Lua, pipeline 64", "RESP, weir, pipeline 64", "RESP, Redis Lua token bucket, pipeline 64", 15)
    bar("RESP / INCR, pipeline 1", "RESP, weir, pipeline 1", "RESP, Redis INCR, pipeline 1", 1)
    bar("HTTP check / return 200", "HTTP, weir check", "HTTP, nginx return 200", 0.7)
    note("throttlecrab is not compared")


def main():
    parser = argparse.ArgumentParser(prog="./dev bench service", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="about a minute")
    options = parser.parse_args()
    subprocess.run(["make", "-s", "nginx"], check=True, stdout=sys.stderr)
    options.weir = pathlib.Path(options.weir).resolve()
    printer = Printer(options.json)
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        os.chmod(folder, 0o755)
        servers = Servers(folder)
        try:
            contest(servers, options, printer)
        finally:
            servers.stop()
    if not options.json:
        print(f"\n{sum(printer.bars)} of {len(printer.bars)} bars hold")


main()
