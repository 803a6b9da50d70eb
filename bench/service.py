#!/usr/bin/env python3
"""./dev bench service: the decision service compared with alternatives.

weir (`weir serve`, one worker), nginx's static replies, Redis, envoyproxy/ratelimit (with its Redis) and throttlecrab each have
the first processor, one at a time; the clients have the second: h2load, wrk, and for RESP bench/resp_load.c, which costs less than the servers do,
with redis-benchmark's results for comparison. Keys of RESP are drawn from 100,000. A round measures each case once; a figure is the
median of the rounds, a bar the median of the rounds' ratios. Peers that are not installed are skipped with a message.
"""
import argparse
import contextlib
import csv
import io
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

SERVER_CPU, CLIENT_CPU = "0", "1"
RESP_LOAD, PEERS = pathlib.Path("build/gcc/bench/resp_load"), pathlib.Path("build/peers")
RESP_WARM_UP = 0.1  # seconds that resp_load runs besides
KEYS = 100000
RLS = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
COLUMNS = "{:<46} {:>11} {:<11} {:>8} {:>8} {:>8} {:>8}  {}"
DESCRIPTORS = """domain: d
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 4000000000 } }
"""
OWN = """rules:
  - { name: api, match: { path: /api/* }, key: 'ip:${client_ip}', limit: 1000000, window: 1s, warn_at: 80% }
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


def peer(name):
    """The program of a peer, built if need be; None if it cannot be had."""
    built = subprocess.run(["tools/peer.sh", name, PEERS], stdout=sys.stderr, check=False)
    if built.returncode:
        note(f"{name} cannot be had; left out")
        return None
    return (PEERS / name).resolve()


class Servers:
    def __init__(self, folder):
        self.folder, self.processes = pathlib.Path(folder), {}

    def start(self, name, command, port, **environment):
        log = open(self.folder / f"{name}.log", "w")
        process = subprocess.Popen(["taskset", "-c", SERVER_CPU, *map(str, command)], stdout=log, stderr=log,
                                   stdin=subprocess.DEVNULL, env={**os.environ, **environment})
        self.processes[name] = process
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return port
            if process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"bench service: {name} does not start:\n" + (self.folder / f"{name}.log").read_text()[-2000:])

    def weir(self, weir, size="64MiB"):
        ports = {name: free_port() for name in ("grpc", "http", "resp")}
        rules = self.folder / "rules"
        rules.mkdir()
        (rules / "own.yaml").write_text(OWN)
        (rules / "descriptors.yaml").write_text(DESCRIPTORS)
        config = self.folder / "weir.yaml"
        config.write_text(f"segment: {{ path: {self.folder}/segment, size: {size} }}\nworkers: 1\nrules: rules\nservice:\n" +
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
        program = peer("ratelimit")
        if not program:
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

    def throttlecrab(self):
        program, port = peer("throttlecrab"), free_port()
        if not program:
            return None
        return self.start("throttlecrab", [program, "--redis", "--redis-host", "127.0.0.1", "--redis-port", port,
                                           "--log-level", "error"], port)

    def cpu_ns(self, name):
        """Processor time of a server's processes so far."""
        def below(process):
            for child in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split():
                yield from below(child)
            yield process
        threads = [thread for process in below(self.processes[name].pid)
                   for thread in pathlib.Path(f"/proc/{process}/task").iterdir()]
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)

    def stop(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=15)
            if process.poll() is None:
                process.kill()


def run(*command):
    done = subprocess.run(["taskset", "-c", CLIENT_CPU, *map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench service: {' '.join(map(str, command))}: {done.stderr[-2000:]}")
    return done.stdout


def percentiles(microseconds):
    inorder = sorted(microseconds)
    return {f"p{part:g}": inorder[min(int(len(inorder) * part / 100), len(inorder) - 1)] for part in (50, 99, 99.9)}


def h2load(port, seconds, log, path="/", body=None):
    """The rate; and from a run of its own, since h2load writes the time of every call to a file only, the latencies."""
    more = ["-d", body, "-H", "content-type: application/grpc", "-H", "te: trailers"] if body else []
    command = ["h2load", "-c", 8, "-m", 50, *more, f"http://127.0.0.1:{port}{path}"]
    text = run(*command, "-D", seconds)
    good, total = (int(re.search(pattern, text).group(1)) for pattern in (r"(\d+) 2xx", r"requests: (\d+) total"))
    if good < total * 0.9:
        sys.exit(f"bench service: only {good} of {total} calls got a response:\n{text}")
    log.unlink(missing_ok=True)
    run(*command, "-D", 1, f"--log-file={log}")
    return {"rate": float(re.search(r"finished in .*?, ([\d.]+) req/s", text).group(1)),
            **percentiles(int(line.split()[2]) for line in log.read_text().splitlines())}


def resp_load(servers, name, port, pipeline, seconds, lines, *command):
    """So many lines has a reply. "cpu" is what a command costs the server's processor, which is not idle meanwhile."""
    before = servers.cpu_ns(name)
    rate, p50, p99, p999 = map(float, run(RESP_LOAD, port, 32, pipeline, seconds, KEYS, lines, *command).split())
    spent_ns = servers.cpu_ns(name) - before
    return {"rate": rate, "p50": p50, "p99": p99, "p99.9": p999, "cpu": spent_ns / (rate * (seconds + RESP_WARM_UP))}


def redis_benchmark(port, pipeline, seconds, *command):
    """As many requests as take about so long; the first estimate sets the count."""
    words = [f"{word[1:]}:__rand_int__" if str(word).startswith("@") else word for word in command]

    def measure(count):
        text = run("redis-benchmark", "-p", port, "-c", 32, "-P", pipeline, "-n", count, "-r", KEYS, "--csv", *words)
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
            print(COLUMNS.format("case", "value", "unit", "p50 us", "p99 us", "p99.9 us", "cpu ns", "bar"))

    def show(self, case, value, unit, bar=None, **more):
        line = {"bench": "service", "case": case, **more, "value": value, "unit": unit}
        verdict = ""
        if bar is not None:
            line.update(bar=bar, holds=value >= bar)
            verdict = f"at least {bar:g}: {'holds' if line['holds'] else 'MISSED'}"
            self.bars.append(line["holds"])
        if self.as_json:
            print(json.dumps(line), flush=True)
        else:
            number = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
            cells = [f"{more[key]:.0f}" if key in more else "" for key in ("p50", "p99", "p99.9", "cpu")]
            print(COLUMNS.format(case, number, unit, *cells, verdict).rstrip(), flush=True)


def resp_cases(servers, weir, redis, throttlecrab):
    sha = run("redis-cli", "-p", redis, "SCRIPT", "LOAD", LUA).strip()
    contestants = {
        "weir": ("weir", weir, 6, "CL.THROTTLE", "@key", 15, 30, 60),
        "Redis INCR": ("redis", redis, 1, "INCR", "@key"),
        "Redis Lua token bucket": ("redis", redis, 3, "EVALSHA", sha, 1, "@lua", 10, 10000, 1),
    }
    if throttlecrab:
        contestants["throttlecrab"] = ("throttlecrab", throttlecrab, 6, "THROTTLE", "@key", 16, 30, 60)
    for pipeline in (64, 1):
        for contestant, (name, port, lines, *command) in contestants.items():
            yield (f"RESP, {contestant}, pipeline {pipeline}", lambda s, args=(name, port, pipeline), more=(lines, *command):
                   resp_load(servers, *args, s, *more))
        for contestant in ("weir", "Redis INCR"):
            _, port, _, *command = contestants[contestant]
            yield (f"redis-benchmark, {contestant}, pipeline {pipeline}", lambda s, args=(port, pipeline), command=command:
                   redis_benchmark(*args, s, *command))


def contest(servers, options, printer):
    body, script, log = (servers.folder / name for name in ("call", "check.lua", "h2load.log"))
    body.write_bytes(grpc_call())
    script.write_text(WRK.replace("BODY", json.dumps(CHECK)))
    weir, (http2, http), redis = servers.weir(options.weir), servers.nginx(), servers.redis()
    ratelimit = servers.ratelimit(redis)
    cases = {
        "gRPC, weir": lambda s: h2load(weir["grpc"], s, log, RLS, body),
        "gRPC, nginx's static answer": lambda s: h2load(http2, s, log),
        **dict(resp_cases(servers, weir["resp"], redis, servers.throttlecrab())),
        "HTTP, weir check": lambda s: wrk(script, weir["http"], s, "/v1/check"),
        "HTTP, nginx return 200": lambda s: wrk(script, http, s, "/v1/check"),
    }
    if ratelimit:
        cases["gRPC, envoyproxy/ratelimit"] = lambda s: h2load(ratelimit, s, log, RLS, body)
    results = {name: [] for name in cases}
    for number in range(-1, 2 if options.quick else 7):  # the first is to warm up
        for name, measure in cases.items():
            figures = measure(1 if options.quick or number < 0 else 3)
            if number >= 0:
                results[name].append(figures)
    for name, figures in results.items():
        middle = {key: statistics.median(f[key] for f in figures) for key in figures[0]}
        printer.show(name, middle.pop("rate"), "a second", **middle)
    show_bars(results, printer)


def show_bars(results, printer):
    def bar(case, name, other, least=None):
        if other in results:
            printer.show(case, statistics.median(a["rate"] / b["rate"] for a, b in zip(results[name], results[other])),
                         "ratio", least)

    bar("gRPC / envoyproxy/ratelimit", "gRPC, weir", "gRPC, envoyproxy/ratelimit", 5)
    bar("gRPC / static HTTP/2", "gRPC, weir", "gRPC, nginx's static answer", 0.6)
    for pipeline, least in ((64, 2), (1, 1)):
        case = f"pipeline {pipeline}"
        bar(f"RESP / INCR, {case}", f"RESP, weir, {case}", f"RESP, Redis INCR, {case}", least)
        bar(f"RESP / INCR, {case}, by redis-benchmark", f"redis-benchmark, weir, {case}",
            f"redis-benchmark, Redis INCR, {case}")
        bar(f"RESP / throttlecrab, {case}", f"RESP, weir, {case}", f"RESP, throttlecrab, {case}")
    bar("RESP / Lua, pipeline 64", "RESP, weir, pipeline 64", "RESP, Redis Lua token bucket, pipeline 64", 15)
    bar("HTTP check / return 200", "HTTP, weir check", "HTTP, nginx return 200", 0.75)


# ---- Bytes a key ----

def each_key(port, count, lines, *command):
    """Has every one of so many keys carry out the command once."""
    words = [str(word).encode() for word in command]
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as replies:
        for begin in range(0, count, 1000):
            made = b"".join(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in (
                b"key:%08d" % number if word == b"@key" else word for word in words))
                for number in range(begin, min(begin + 1000, count)))
            connection.sendall(made)
            for _ in range(lines * min(1000, count - begin)):
                if replies.readline().startswith(b"-"):
                    sys.exit("bench service: filling failed")


def redis_info(port, name):
    return int(re.search(rf"{name}:(\d+)", run("redis-cli", "-p", port, "INFO", "memory")).group(1))


def show_bytes(servers, options, printer):
    """All of a segment that is 90 % full with as many keys; what Redis' memory grew by."""
    segment = servers.folder / "segment"
    ports = servers.weir(options.weir, "8MiB")

    def stat(name):
        words = run("redis-cli", "-p", ports["resp"], "WEIR.STATS").split()
        return int(words[words.index(name) + 1])

    keys = stat("slots") * 9 // 10
    each_key(ports["resp"], keys, 6, "CL.THROTTLE", "@key", 15, 30, 3600)
    evicted = stat("evicted_live")
    if evicted:
        sys.exit(f"bench service: {evicted} live keys were evicted while filling")
    printer.show("bytes a key, weir", segment.stat().st_size / keys, "bytes")
    redis = servers.redis()
    sha = run("redis-cli", "-p", redis, "SCRIPT", "LOAD", LUA).strip()
    for name, lines, *command in (("INCR", 1, "INCR", "@key"), ("Lua", 3, "EVALSHA", sha, 1, "@key", 10, 10000, 1)):
        run("redis-cli", "-p", redis, "FLUSHALL")
        before = redis_info(redis, "used_memory")
        each_key(redis, keys, lines, *command)
        printer.show(f"bytes a key, Redis {name}", (redis_info(redis, "used_memory") - before) / keys, "bytes",
                     usage=int(run("redis-cli", "-p", redis, "MEMORY", "USAGE", "key:00000042")))


def main():
    parser = argparse.ArgumentParser(prog="./dev bench service", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="about a minute and a half")
    options = parser.parse_args()
    subprocess.run(["make", "-s", "nginx", RESP_LOAD], check=True, stdout=sys.stderr)
    options.weir = pathlib.Path(options.weir).resolve()
    printer = Printer(options.json)
    for part in (contest, show_bytes):
        with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
            os.chmod(folder, 0o755)
            servers = Servers(folder)
            try:
                part(servers, options, printer)
            finally:
                servers.stop()
    if not options.json:
        print(f"\n{sum(printer.bars)} of {len(printer.bars)} bars hold")


main()
