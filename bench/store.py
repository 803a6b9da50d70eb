#!/usr/bin/env python3
"""./dev bench store: limits of many hosts in Redis, compared with alternatives.

strict: bench/store.c (weir's client of the store, one connection, 64 decisions in flight) and redis-benchmark running the
common Lua token bucket (token_bucket.lua) with pipelines of 64 alternate on the same server, which has the first processor;
they have the second. Memory: 100,000 counters of the same names, each used twice, that have not recovered, compared with that script and
another common one, which has two keys a counter (token_bucket_two_keys.lua).

eventual: a gateway (one worker) with its agent on the first processor, before the API's server as in `./dev bench gateway`,
once with `consistency: local` and once with `eventual`; wrk and Redis, which would be other machines, on the second. On a
machine of its own Redis would not hold up the client: so it runs when wrk leaves it the processor (SCHED_IDLE). What it is when
Redis at the priority of wrk is measured, too. The first round with many keys is long enough for the kernel to give out
the pages of segment and ledger, and does not count.

A figure is the median of the rounds, a bar the median of the rounds' ratios.
"""
import argparse
import collections
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
PIPELINE, KEYS, STORED = 64, 100_000, 100_000
PLENTY = "limit: 100000, window: 1d, warn_at: 80%"  # none is denied, and what was used once has not recovered at once
MODULES = pathlib.Path("build/gcc/nginx").resolve()
LUA, LUA_TWO_KEYS = ((pathlib.Path(__file__).parent / f"{name}.lua").read_text()
                     for name in ("token_bucket", "token_bucket_two_keys"))
COLUMNS = "{:<60} {:>11} {:<14} {:>8} {:>8}  {}"
WRK = """
math.randomseed(os.time())
request = function() return wrk.format("GET", "PREFIX" .. math.random(KEYS)) end
done = function(summary, latency)
  local bad = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
  io.write(string.format("RESULT %d %d %d %d %d %d\\n", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), bad, summary.errors.status))
end
"""


def note(text):
    print(f"bench store: {text}", file=sys.stderr, flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(*command, cpu=CLIENT_CPU, **more):
    return subprocess.run(["taskset", "-c", cpu, *map(str, command)], capture_output=True, text=True, check=True,
                          **more).stdout


class Servers:
    """What was started, on one processor each; stopped when the block ends."""

    def __init__(self, folder, server):
        self.folder, self.server, self.processes = pathlib.Path(folder), server, {}

    def start(self, name, command, port, cpu):
        with open(self.folder / f"{name}.log", "w") as log:
            process = subprocess.Popen(["taskset", "-c", cpu, *map(str, command)], stdout=log, stderr=log,
                                       stdin=subprocess.DEVNULL, env={**os.environ, "WEIR_MODULES": str(MODULES)})
        self.processes[name] = process
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return port
            except OSError:
                time.sleep(0.05)
            if process.poll() is not None:
                break
        sys.exit(f"bench store: {name} does not start:\n" + (self.folder / f"{name}.log").read_text()[-2000:])

    def stop(self, *names):
        for name in names or list(self.processes):
            process = self.processes.pop(name)
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def used(self, *names):
        """Seconds of processor that these, and all that they started, have had, by name and where: user or system."""
        found = collections.Counter()

        def add(pid):
            try:
                name, rest = pathlib.Path(f"/proc/{pid}/stat").read_text().split("(", 1)[1].rsplit(")", 1)
                children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            except (FileNotFoundError, ProcessLookupError):
                return
            for kind, ticks in zip(("user", "system"), rest.split()[11:13]):
                found[name, kind] += int(ticks) / os.sysconf("SC_CLK_TCK")
            for child in children:
                add(child)
        for name in names:
            add(self.processes[name].pid)
        return found

    def redis(self, name, cpu, leftovers=False):
        """With `leftovers` it runs while nobody else wants the processor."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        port = free_port()
        command = [self.server, "--port", port, "--save", "", "--appendonly", "no", "--dir", home]
        return Redis(self.start(name, [*(["chrt", "--idle", "0"] if leftovers else []), *command], port, cpu))

    def api(self):
        home, port = self.folder / "api", free_port()
        home.mkdir(exist_ok=True)
        (home / "nginx.conf").write_text(f"""
            daemon off; worker_processes 1; pid {home}/pid; error_log {home}/error.log error;
            events {{ worker_connections 4096; }}
            http {{ access_log off; keepalive_requests 1000000000;
                server {{ listen 127.0.0.1:{port}; location / {{ return 200 "ok"; }} }} }}""")
        return self.start("api", ["nginx", "-p", home, "-c", home / "nginx.conf", "-e", home / "error.log"], port,
                          SERVER_CPU)

    def gateway(self, weir, name, api, store, rule):
        home, port = self.folder / re.sub(r"\W+", "-", name), free_port()
        home.mkdir(mode=0o755)
        (home / "weir.yaml").write_text(
            f"segment: {{ path: {home}/segment, size: 256MiB }}\nworkers: 1\n"
            f"gateway: {{ listen: 127.0.0.1:{port}, upstreams: [http://127.0.0.1:{api}] }}\n"
            f"store: {{ url: redis://127.0.0.1:{store} }}\nrules:\n"
            f"  - {{ name: k, key: '${{path:2}}', {rule} }}\n")
        return self.start(name, [weir, "serve", home / "weir.yaml"], port, SERVER_CPU)


class Redis:
    def __init__(self, port):
        self.port = port

    def do(self, *words):
        return run("redis-cli", "-p", self.port, *words).strip()

    def info(self, section, *names):
        found = dict(line.split(":", 1) for line in self.do("INFO", section).splitlines() if ":" in line)
        return [int(found[name]) for name in names]

    def memory(self):
        return self.info("memory", "used_memory")[0]

    def calls(self, command):
        found = re.search(rf"cmdstat_{command}:calls=(\d+)", self.do("INFO", "commandstats"))
        return int(found.group(1)) if found else 0

    def work(self):
        """Since it began: scripts run, operations with those of scripts, bytes in and out."""
        names = ("total_commands_processed", "total_net_input_bytes", "total_net_output_bytes")
        return [self.calls("evalsha"), *self.info("stats", *names)]

    def lua(self, seconds):
        """The common script by redis-benchmark: as many calls as take about so long."""
        sha = self.do("SCRIPT", "LOAD", LUA)

        def measure(count):
            text = run("redis-benchmark", "-p", self.port, "-c", 1, "-P", PIPELINE, "-n", count, "-r", KEYS, "--csv",
                       "EVALSHA", sha, 1, "weir:api:__rand_int__", 10, 10000, 1)
            row = list(csv.reader(io.StringIO(text)))[-1]
            return {"rate": float(row[1]), "p50": float(row[4]) * 1000, "p99": float(row[6]) * 1000}
        return measure(max(int(measure(5000)["rate"] * seconds), 5000))

    def fill(self, *words):
        """A command for each name, which stands for NAME."""
        calls = []
        for number in range(STORED):
            filled = [word.replace("NAME", f"weir:api:{number:012d}") for word in words]
            calls.append(f"*{len(filled)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in filled))
        run("redis-cli", "-p", self.port, "--pipe", input="".join(calls))

    def lua_fill(self, script, *names):
        sha = self.do("SCRIPT", "LOAD", script)
        for _ in range(2):
            self.fill("EVALSHA", sha, str(len(names)), *names, str(10 / 3600), "10000", "1")


class Printer:
    def __init__(self, as_json):
        self.as_json, self.bars = as_json, []
        if not as_json:
            print(COLUMNS.format("case", "value", "unit", "p50 us", "p99 us", "bar"))

    def show(self, case, value, unit, least=None, most=None, **more):
        line = {"bench": "store", "case": case, **more, "value": value, "unit": unit}
        verdict = ""
        if least is not None or most is not None:
            bar = least if least is not None else most
            line.update(bar=bar, holds=value >= bar if least is not None else value <= bar,
                        **({} if least is not None else {"most": True}))
            verdict = f"at {'least' if least is not None else 'most'} {bar:g}: {'holds' if line['holds'] else 'MISSED'}"
            self.bars.append(line["holds"])
        if self.as_json:
            print(json.dumps(line), flush=True)
        else:
            number = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
            cells = [f"{more[key]:.0f}" if key in more else "" for key in ("p50", "p99")]
            print(COLUMNS.format(case, number, unit, *cells, verdict).rstrip(), flush=True)


def middle(figures):
    return {key: statistics.median(one[key] for one in figures) for key in figures[0]}


def strict(servers, options, printer):
    redis, program = servers.redis("redis", SERVER_CPU), "build/gcc/bench/store"
    weir = lambda seconds, count=PIPELINE: json.loads(  # noqa: E731
        run(program, "127.0.0.1", redis.port, count, KEYS, seconds))
    cases = {"strict, weir's client, 64 in flight": weir, "the common Lua, redis-benchmark, pipeline 64": redis.lua}
    seen = {name: [] for name in cases}
    for number in range(-1, 3 if options.quick else 7):  # the first is to warm up
        for name, measure in cases.items():
            redis.do("FLUSHALL")
            figures = measure(1 if options.quick or number < 0 else 3)
            if number >= 0:
                seen[name].append({key: figures[key] for key in ("rate", "p50", "p99")})
    for name, figures in seen.items():
        one = middle(figures)
        printer.show(name, one.pop("rate"), "a second", keys=KEYS, **one)
    ours, common = seen.values()
    printer.show("strict / the common Lua", statistics.median(a["rate"] / b["rate"] for a, b in zip(ours, common)),
                 "ratio", least=1.5)
    servers.stop("redis")


NO_VALUE = "a name and an expiry, no value"
FEW_KEYS = 1_000


def memory(servers, options, printer):
    """Memory of a counter after two requests, all that a server has for it: entry, name, value, expiry."""
    program, used = "build/gcc/bench/store", {}
    cases = {  # how to fill it, the keys a counter, and the first of them
        "weir": (lambda redis: run(program, "127.0.0.1", redis.port, PIPELINE, STORED, "fill"), 1, "NAME"),
        "the common Lua": (lambda redis: redis.lua_fill(LUA, "NAME"), 1, "NAME"),
        "the common Lua of two keys": (lambda redis: redis.lua_fill(LUA_TWO_KEYS, "{NAME}.tokens", "{NAME}.timestamp"), 2,
                                      "{NAME}.tokens"),
        # The server has the small numbers once for all keys: the least that a name with an expiry can cost.
        NO_VALUE: (lambda redis: redis.fill("PSETEX", "NAME", "36000000", "1"), 1, "NAME"),
    }
    for name, (fill, keys, first) in cases.items():
        redis = servers.redis("redis", SERVER_CPU)  # a new one: some servers free what is flushed only later
        before = redis.memory()
        fill(redis)
        found = int(redis.do("DBSIZE"))
        if found != STORED * keys:
            sys.exit(f"bench store: {found} keys instead of {STORED * keys}")
        key = first.replace("NAME", "weir:api:" + "0" * 12)
        used[name] = (redis.memory() - before) / STORED
        printer.show(f"memory, {name}", used[name], "bytes/key", encoding=redis.do("OBJECT", "ENCODING", key),
                     memory_usage=int(redis.do("MEMORY", "USAGE", key)))
        servers.stop("redis")
    for name, most in (("the common Lua", None), ("the common Lua of two keys", 0.5), (NO_VALUE, 1.2)):
        printer.show(f"memory, weir / {name}", used["weir"] / used[name], "ratio", most=most)


def wrk(servers, port, seconds, keys, connections=32):
    script = servers.folder / f"{keys}.lua"
    script.write_text(WRK.replace("PREFIX", "/k/").replace("KEYS", str(keys)))
    text = run("wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", script, f"http://127.0.0.1:{port}/")
    total, duration, p50, p99, bad, status = map(int, re.search(r"RESULT (.*)", text).group(1).split())
    if bad:
        sys.exit(f"bench store: {bad} of {total} requests failed")
    return {"rate": total / duration * 1e6, "p50": p50, "p99": p99, "denied": status, "total": total}


STORES = {"local": "remote-redis", "eventual": "remote-redis", "eventual, Redis equal": "equal-redis"}  # by case


def shares(servers, how):
    """Processor seconds so far: of the gateway and the API, by process and mode, and of Redis."""
    gateway, api, remote = servers.used(how), servers.used("api"), servers.used(STORES[how])
    split = {f"{process}, {kind}": of[name, kind] for kind in ("user", "system")
             for process, of, name in (("worker", gateway, "nginx"), ("agent", gateway, "weir-agent"), ("API", api, "nginx"))}
    return {"cpu": sum(gateway.values()) + sum(api.values()), "remote": sum(remote.values()), **split}


def gateway_rounds(servers, options, printer, redis, ports, keys):
    seen, costs = {how: [] for how in ports}, []
    warm_up = 1 if options.quick or keys < 10_000 else 8  # until the kernel has mapped most pages of the tables
    for number in range(-1, 3 if options.quick else 11):
        for how in seen:
            before, begun, used = redis.work(), time.monotonic(), shares(servers, how)
            figures = wrk(servers, ports[how], warm_up if number < 0 else 1 if options.quick else 2, keys)
            used = {name: (after - used[name]) / figures["total"] * 1e6 for name, after in shares(servers, how).items()}
            took, after = time.monotonic() - begun, redis.work()
            if number >= 0:
                seen[how].append({**figures, **used})
                if how == "eventual":
                    costs.append([(b - a) / took for a, b in zip(before, after)])
    if not redis.calls("evalsha"):
        sys.exit("bench store: nothing was exchanged")
    for how, figures in seen.items():
        one = middle(figures)
        printer.show(f"gateway, {how}, {keys:,} keys", one["rate"], "a second", keys=keys, p50=one["p50"], p99=one["p99"])
        printer.show("    processor, with agent and API", one["cpu"], "us a request", keys=keys, how=how)
        for name in (name for name in one if ", " in name):
            printer.show(f"        {name}", one[name], "us a request", keys=keys, how=how)
        printer.show("    Redis' processor", one["remote"], "us a request", keys=keys, how=how)
    runs, ops, received, sent = (statistics.median(column) for column in zip(*costs))
    printer.show(f"Redis for eventual, {keys:,} keys: scripts", runs, "a second", keys=keys)
    printer.show(f"Redis for eventual, {keys:,} keys: operations, theirs too", ops, "a second", keys=keys)
    printer.show(f"Redis for eventual, {keys:,} keys: bytes in", received, "bytes/s", keys=keys)
    printer.show(f"Redis for eventual, {keys:,} keys: bytes out", sent, "bytes/s", keys=keys)
    for how in (how for how in seen if how != "local"):
        # What noise spoils least: the gateway's processor is the bound.
        printer.show(f"by processor: local / {how}, {keys:,} keys",
                     statistics.median(b["cpu"] / a["cpu"] for a, b in zip(seen[how], seen["local"])), "ratio", keys=keys)
        printer.show(f"{how} / local, {keys:,} keys",
                     statistics.median(a["rate"] / b["rate"] for a, b in zip(seen[how], seen["local"])), "ratio",
                     least=(0.9 if keys == FEW_KEYS else 0.85) if how == "eventual" else None, keys=keys)


def eventual(servers, options, printer):
    redis = {"remote-redis": servers.redis("remote-redis", CLIENT_CPU, leftovers=True),
             "equal-redis": servers.redis("equal-redis", CLIENT_CPU)}
    api = servers.api()
    ports = {how: servers.gateway(options.weir, how, api, redis[store].port, f"{PLENTY}, consistency: {how.split(',')[0]}")
             for how, store in STORES.items()}
    for keys in (FEW_KEYS, 1_000_000):
        gateway_rounds(servers, options, printer, redis["remote-redis"], ports, keys)
    servers.stop("api", *redis, *ports)


def strict_gateway(servers, options, printer):
    redis, api = servers.redis("remote-redis", CLIENT_CPU), servers.api()
    port = servers.gateway(options.weir, "strict", api, redis.port, f"{PLENTY}, consistency: strict")
    one = wrk(servers, port, 1 if options.quick else 5, 1_000)
    printer.show("gateway, strict, 1,000 keys", one["rate"], "a second", p50=one["p50"], p99=one["p99"])
    servers.stop("strict")
    denied(servers, options, printer, api, redis)
    servers.stop("remote-redis", "api", "denying")


def denied(servers, options, printer, api, redis):
    port = servers.gateway(options.weir, "denying", api, redis.port, "limit: 1, window: 1d, consistency: strict")
    wrk(servers, port, 1, 1, 2)  # one passes, and the next is the first that is denied
    # Without the scripts of the agent's heartbeats (one HEXISTS each) and of its exchange of blocked keys (one ZRANGEBYSCORE).
    decisions = lambda: redis.calls("evalsha") - redis.calls("hexists") - redis.calls("zrangebyscore")  # noqa: E731
    before = decisions()
    figures = wrk(servers, port, 2, 1)
    if figures["denied"] != figures["total"]:
        sys.exit(f"bench store: {figures['total'] - figures['denied']} of {figures['total']} passed")
    printer.show("gateway, strict, all denied", figures["rate"], "a second", p50=figures["p50"], p99=figures["p99"])
    printer.show("scripts run for requests denied by a strict rule", decisions() - before, "runs", most=0)


PARTS = {"strict": strict, "memory": memory, "eventual": eventual, "gateway": strict_gateway}


def main():
    parser = argparse.ArgumentParser(prog="./dev bench store", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="about a minute")
    parser.add_argument("--only", choices=PARTS, action="append", help="one part, or several with one --only each")
    parser.add_argument("--server", default="redis-server", metavar="PROGRAM",
                        help="another Redis or Valkey, as `tools/servers.sh FOLDER NAME` brings them")
    options = parser.parse_args()
    options.weir = pathlib.Path(options.weir).resolve()
    subprocess.run(["make", "-s", "nginx", "build/gcc/bench/store"], check=True, stdout=sys.stderr)
    printer = Printer(options.json)
    with tempfile.TemporaryDirectory(prefix="weir-bench-", dir="/dev/shm") as folder:
        os.chmod(folder, 0o755)
        servers = Servers(folder, options.server)
        try:
            for part in PARTS:
                if not options.only or part in options.only:
                    PARTS[part](servers, options, printer)
        finally:
            servers.stop()
    if not options.json:
        print(f"\n{sum(printer.bars)} of {len(printer.bars)} bars hold")


if __name__ == "__main__":
    main()
