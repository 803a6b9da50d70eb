#!/usr/bin/env python3
"""./dev bench gateway: weir inside nginx compared with bare nginx, nginx's limit_req and HAProxy.

Every contestant has its own server with one worker on the first processor, in front of the same API server (nginx,
`return 200`, on the same processor); wrk has the second processor. All run all the time, and alternate: a round
measures each once for a second, every other round in the reverse order. A value is the median of the rounds; a ratio
is computed in each round, of adjacent measurements, and reported as the mean of the middle half of them with its
standard error. Besides the rates, which depend on the whole machine, the processor time of the worker a request is
reported, inverted, so that more is better there, too: it varies less.

weir and limit_req are closer to each other than two servers of the same kind: these differ by a hundredth or two, for as
long as they run. So the two are compared in pairs of runs of servers started for that. They are level if one is not
slower than the other by more than twice the standard error, and that is known to a hundredth at least.

What a delayed request costs is the private memory of a worker that holds many of them, beside nginx's own limit_req
that holds as many.

--instructions counts instead of timing: each contestant under valgrind's callgrind, how many instructions one more
request costs its worker. That is the same each time, whatever else the machine does.
"""
import argparse
import contextlib
import json
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

SERVER_CPU, CLIENT_CPU = "0", "1"
CONNECTIONS = 32
FEW = 4  # connections when the added latency is measured: at full load the 99th percentile is the scheduler's
DUELS = 2  # of the closest two, in each round
PRECISE = 0.01  # the standard error of a ratio that counts as level
DELAYED = 800  # requests that wait at once, for the memory they cost
COLUMNS = "{:<36} {:>8} {:<15} {:>7} {:>7} {:>9} {:>10}  {}"

WRK_REPORT = """
done = function(summary, latency, requests)
  local errors = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
  io.write(string.format("RESULT %d %d %d %d %d %d %d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9), summary.errors.status, errors))
end
"""

RULE = "  - {{ name: {name}, match: {{ path: '{path}' }}, key: '{key}', limit: {limit}, window: {window}, warn_at: 80%{more} }}\n"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def rules(*entries, key="ip:${client_ip}", more=""):
    return "rules:\n" + "".join(
        RULE.format(name=f"r{i}", path=path, key=key, limit=limit, window=window, more=more)
        for i, (path, limit, window) in enumerate(entries))


WIDE = (100_000, "1s")  # more than the machine can serve
HUNDRED = [(f"/svc{i}/*", *WIDE) for i in range(99)] + [("/api/*", *WIDE)]
WEIR, LIMIT_REQ = "nginx, weir, 1 rule", "nginx, limit_req"
LOCAL, LEASED = "nginx, weir, 1 local rule, with a store", "nginx, weir, 1 leased rule"
# nginx alone, sending five constant header lines of the same lengths as weir's: the part of weir's cost that any such
# lines have.
ADD_HEADER = "nginx, add_header, 5 lines"
HEADERS = "".join(f"add_header {name} '{value}';" for name, value in (
    ("X-RateLimit-Limit", "100000"), ("X-RateLimit-Remaining", "99999"), ("X-RateLimit-Reset", "1763427461"),
    ("RateLimit-Policy", '"r0";q=100000;w=1'), ("RateLimit", '"r0";r=99999;t=1')))


class Servers:
    """Everything that listens; stopped when the block ends."""

    def __init__(self, weir, folder):
        self.folder = pathlib.Path(folder)
        self.program = pathlib.Path(weir).resolve()
        self.module = (pathlib.Path(weir).parent / "nginx" / "ngx_http_weir_module.so").resolve()
        self.processes = {}
        self.upstream = free_port()
        self.under = None  # a command that runs the contestants, instead of on the first processor

    def start(self, name, command, port):
        log = open(self.folder / f"{name}.log", "w")
        before = ["taskset", "-c", SERVER_CPU] if self.under is None or name == "api" else self.under
        process = subprocess.Popen([*before, *command], stdout=log, stderr=log)
        self.processes[name] = process
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            if process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"bench gateway: {name} does not start:\n" + (self.folder / f"{name}.log").read_text()[-2000:])

    def nginx(self, name, server, http="", main=""):
        port, home = free_port(), self.folder / name
        home.mkdir()
        temp = "".join(f"{kind}_temp_path {home}/{kind};" for kind in
                       ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (home / "nginx.conf").write_text(f"""
            {main}
            daemon off; {"master_process off;" if self.under else "worker_processes 1;"} pid {home}/pid; error_log {home}/error.log error;
            events {{ worker_connections 4096; }}
            http {{
                access_log off; {temp} keepalive_requests 1000000000; {http}
                upstream api {{ server 127.0.0.1:{self.upstream}; keepalive 64; keepalive_requests 1000000000; }}
                server {{ listen 127.0.0.1:{port}; {server} }}
            }}""")
        self.start(name, ["nginx", "-p", str(home), "-c", str(home / "nginx.conf"), "-e", str(home / "error.log")], port)
        return port

    PROXY = 'location / { %s proxy_pass http://api; proxy_http_version 1.1; proxy_set_header Connection ""; }'

    def weir(self, name, rule_text, server=None, segment=None, more=""):
        path = self.folder / f"{name}.yaml"
        path.write_text(rule_text)
        return self.nginx(name, server or self.PROXY % "weir on;",
                          f"weir_segment {self.folder}/{segment or name}.segment 16m; weir_rules {path}; {more}",
                          f"load_module {self.module};")

    def with_store(self, name, rule_text):
        """With a store, an agent, and a second nginx on the segment, which is used all the time: so there are units
        leased, and what is counted is a request of the steady state."""
        under, self.under = self.under, None
        store, segment = free_port(), f"{name}_shared"
        self.start(f"{name}_store", ["redis-server", "--port", str(store), "--save", ""], store)
        more = f"weir_store redis://127.0.0.1:{store} deadline=10s;"
        other = self.weir(f"{name}_other", rule_text, segment=segment, more=more)
        file = self.folder / f"{name}_agent.yaml"
        file.write_text(f"segment: {{ path: {self.folder}/{segment}.segment, size: 16MiB }}\n"
                        f"store: redis://127.0.0.1:{store}\nworkers: 1\n" + rule_text)
        self.processes[f"{name}_agent"] = subprocess.Popen([self.program, "agent", file], stderr=subprocess.DEVNULL)
        self.under = under

        def use():
            with contextlib.suppress(OSError):
                while name not in self.processes or self.processes[name].poll() is None:
                    send_requests(other, 50)
                    time.sleep(0.1)
        threading.Thread(target=use, daemon=True).start()
        time.sleep(1)
        return self.weir(name, rule_text, segment=segment, more=more)

    def haproxy(self, name):
        port, config = free_port(), self.folder / f"{name}.cfg"
        config.write_text(f"""
            global
                nbthread 1
                maxconn 4096
            defaults
                mode http
                timeout connect 5s
                timeout client 30s
                timeout server 30s
                option http-keep-alive
            frontend f
                bind 127.0.0.1:{port}
                stick-table type ip size 100k expire 30s store http_req_rate(10s)
                http-request track-sc0 src
                http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 1000000000 }}
                default_backend b
            backend b
                http-reuse always
                server s 127.0.0.1:{self.upstream}
            \n""")
        self.start(name, ["haproxy", "-f", str(config), "-db"], port)
        return port

    def worker(self, name):
        """The process id of an nginx's only worker."""
        master = int((self.folder / name / "pid").read_text())
        return int(pathlib.Path(f"/proc/{master}/task/{master}/children").read_text().split()[0])

    def complaints(self, name):
        log = self.folder / name / "error.log"
        return log.read_text()[-2000:] if log.exists() else ""

    def processor_ns(self, name):
        """Processor time of the contestant's worker so far."""
        pid = self.worker(name) if (self.folder / name / "pid").exists() else self.processes[name].pid
        return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0])

    def stop(self, *names):
        """These, or all."""
        ended = [self.processes.pop(name) for name in names or list(self.processes)]
        for process in ended:
            process.terminate()
        for process in ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            if process.poll() is None:
                process.kill()
        for name in names:
            shutil.rmtree(self.folder / name)
            (self.folder / f"{name}.segment").unlink(missing_ok=True)


def wrk(script, port, seconds, connections=CONNECTIONS):
    """Requests a second and latencies in microseconds."""
    run = subprocess.run(["taskset", "-c", CLIENT_CPU, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s",
                          "-s", script, f"http://127.0.0.1:{port}/api/items"], stdout=subprocess.PIPE, text=True, check=True)
    total, duration, p50, p99, p999, refused, errors = map(
        int, re.search(r"RESULT (.*)", run.stdout).group(1).split())
    total = max(total, 1)
    return {"total": total, "rate": total / duration * 1e6, "p50": p50, "p99": p99, "p99.9": p999,
            "refused": refused, "errors": errors}


def private_kib(pid):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(size) for size in re.findall(r"Private_(?:Clean|Dirty):\s+(\d+) kB", text))


def bytes_a_delayed(servers, name, port):
    """Private bytes of the worker a request that waits, beyond what the first hundred made it touch."""
    pid, waiting, before = servers.worker(name), [], 0
    for number in range(100 + DELAYED):
        if number == 100:
            time.sleep(1)
            before = private_kib(pid)
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(b"GET /api/items HTTP/1.1\r\nHost: bench\r\n\r\n")
        waiting.append(connection)
    time.sleep(1)
    size = (private_kib(pid) - before) * 1024 / DELAYED
    for connection in waiting:
        connection.close()
    return size


class Printer:
    def __init__(self, as_json):
        self.as_json, self.bars = as_json, []
        if not as_json:
            print(COLUMNS.format("case", "value", "unit", "p50 us", "p99 us", "p99.9 us", "worker ns", "bar"))

    def show(self, case, value, unit, bar=None, at_least=True, within=0, **more):
        """`within`: how far a value that is level with the bar may be from it."""
        line = {"bench": "gateway", "case": case, **more, "value": value, "unit": unit}
        verdict = ""
        if bar is not None:
            line.update(bar=bar, holds=value >= bar - within if at_least else value <= bar + within)
            if not at_least:
                line["most"] = True
            if within:
                line["within"] = within
            near = f" within {within:.4f}" if within else ""
            verdict = f"{'at least' if at_least else 'at most'} {bar:g}{near}: {'holds' if line['holds'] else 'MISSED'}"
            self.bars.append(line["holds"])
        if self.as_json:
            print(json.dumps(line), flush=True)
        else:
            number = f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
            unit += f" +-{more['error']:.4f}" if "error" in more else ""
            verdict = f"{more['beyond_bare']:+,}" if "beyond_bare" in more else verdict
            cells = [f"{more[key]:,.0f}" if key in more else "" for key in ("p50_us", "p99_us", "p999_us", "worker_ns")]
            print(COLUMNS.format(case, number, unit, *cells, verdict).rstrip(), flush=True)


def contestants(servers):
    """How each is started under a name; the port that it listens on. Who is compared stands side by side."""
    made = {
        "bare nginx": lambda name: servers.nginx(name, Servers.PROXY % ""),
        WEIR: lambda name: servers.weir(name, rules(("/api/*", *WIDE))),
        ADD_HEADER: lambda name: servers.nginx(name, Servers.PROXY % HEADERS),
        LIMIT_REQ: lambda name: servers.nginx(
            name, Servers.PROXY % "limit_req zone=z burst=1000000 nodelay;",
            "limit_req_zone $binary_remote_addr zone=z:10m rate=100000r/s;"),
        "nginx, weir, 1 rule, no headers": lambda name: servers.weir(
            name, rules(("/api/*", *WIDE), more=", response: { headers: [] }")),
        "nginx, weir, 100 rules": lambda name: servers.weir(name, rules(*HUNDRED)),
        "nginx, weir, 3 rules match": lambda name: servers.weir(
            name, rules(("/api/*", *WIDE), ("/*", *WIDE), ("/api/items", *WIDE))),
        "nginx, return 429": lambda name: servers.nginx(name, "location / { return 429; }"),
        "nginx, weir, all denied": lambda name: servers.weir(name, rules(("/api/*", 1, "1d"))),
    }
    if shutil.which("haproxy"):
        made["HAProxy, stick table"] = servers.haproxy
    else:
        print("bench gateway: haproxy is not installed; left out", file=sys.stderr)
    return made


def other_ways(servers):
    """More of what is counted, and not worth half a minute of timing each."""
    return {
        "nginx, weir, 1 rule, a header's key": lambda name: servers.weir(
            name, rules(("/api/*", *WIDE), key="key:${header:host}")),
        "nginx, weir, 1 rule, fixed window": lambda name: servers.weir(
            name, rules(("/api/*", *WIDE), more=", algorithm: fixed_window")),
        "nginx, weir, 3 rules match, one by a header": lambda name: servers.weir(
            name, rules(("/api/*", *WIDE), ("/*", *WIDE)) + RULE.format(
                name="r2", path="/api/items", key="key:${header:host}", limit=WIDE[0], window=WIDE[1], more="")),
        LOCAL: lambda name: servers.with_store(name, rules(("/api/*", *WIDE), more=", consistency: local")),
        LEASED: lambda name: servers.with_store(name, rules(("/api/*", *WIDE), more=", consistency: leased")),
    }


def middle_mean(values):
    """The mean of the middle half: neither a stumble of the machine nor a lucky round counts, and yet it is steadier
    than the one value in the middle. And how far it may be off: its standard error, by how wide that half is."""
    ordered = sorted(values)
    cut = len(ordered) // 4
    kept = ordered[cut:len(ordered) - cut]
    return statistics.fmean(kept), (kept[-1] - kept[0]) / 1.35 / len(ordered) ** 0.5


def take_turns(servers, script, rounds, seconds):
    """What each contestant reached in each round, in each duel, and the two of the latency with few connections."""
    makers = contestants(servers)
    names = {name: re.sub(r"\W+", "_", name) for name in makers}
    ports = {name: make(names[name]) for name, make in makers.items()}
    results, calm = {name: [] for name in ports}, {"bare nginx": [], WEIR: []}
    duels = {WEIR: [], LIMIT_REQ: []}

    def measure_one(name, server, port):
        before = servers.processor_ns(server)
        figures = wrk(script, port, seconds)
        figures["ns"] = max(servers.processor_ns(server) - before, 1) / figures["total"]
        wanted = figures["total"] if name in ("nginx, return 429", "nginx, weir, all denied") else 0
        if figures["errors"] or abs(figures["refused"] - wanted) > 1 + figures["total"] / 1000:
            sys.exit(f"bench gateway: {name}: of {figures['total']} requests {figures['refused']} were refused, "
                     f"{figures['errors']} failed\n{servers.complaints(server)}")
        return figures

    def duel(order):
        fresh = {name: f"{names[name]}_{len(duels[name])}" for name in order(duels)}
        started = {name: makers[name](server) for name, server in fresh.items()}
        for port in started.values():
            send_requests(port, 500)  # so that neither is measured while it touches its memory for the first time
        for name, server in fresh.items():
            duels[name].append(measure_one(name, server, started[name]))
        servers.stop(*fresh.values())

    for round_number in range(-1, rounds):  # the first is to warm up
        # In both orders, so that the position within a round cancels out.
        order = list if round_number % 2 else reversed
        for name in order(ports):
            figures = measure_one(name, names[name], ports[name])
            if round_number >= 0:
                results[name].append(figures)
        for number in range(DUELS if round_number >= 0 else 0):
            duel(list if (round_number + number) % 2 else reversed)
        for name, figures in calm.items() if round_number >= 0 else ():
            figures.append(wrk(script, ports[name], seconds, FEW))
    return results, duels, calm


def contest(servers, script, rounds, seconds, printer):
    results, duels, calm = take_turns(servers, script, rounds, seconds)

    def show(name, figures, **more):
        middle = {key: statistics.median(f[key] for f in figures) for key in figures[0]}
        printer.show(name, middle["rate"], "requests/s", p50_us=middle["p50"], p99_us=middle["p99"],
                     p999_us=middle["p99.9"], **more)

    def ratio(case, name, other, bar=None, level=False):
        seen = duels if {name, other} == set(duels) else results
        pairs = list(zip(seen[name], seen[other]))
        value, error = middle_mean([a["rate"] / b["rate"] for a, b in pairs])
        printer.show(case, value, "ratio", bar, within=2 * error if level and error <= PRECISE else 0, error=error)
        value, error = middle_mean([b["ns"] / a["ns"] for a, b in pairs])
        printer.show("  by the worker's processor time", value, "ratio", error=error, of=case)

    for name, figures in results.items():
        show(name, figures, worker_ns=statistics.median(f["ns"] for f in figures))
    bare = "bare nginx"
    ratio("weir / bare nginx", WEIR, bare, 0.97)
    ratio("weir / limit_req", WEIR, LIMIT_REQ, 1.0, level=True)
    ratio("limit_req / bare nginx", LIMIT_REQ, bare)
    ratio("add_header / bare nginx", ADD_HEADER, bare)
    ratio("weir / add_header", WEIR, ADD_HEADER)
    ratio("weir, no headers / limit_req", "nginx, weir, 1 rule, no headers", LIMIT_REQ)
    ratio("weir, 100 rules / bare nginx", "nginx, weir, 100 rules", bare)
    ratio("weir, 3 rules match / bare nginx", "nginx, weir, 3 rules match", bare)
    for name, figures in calm.items():
        show(f"{name}, {FEW} connections", figures)
    added = statistics.median(a["p99"] - b["p99"] for a, b in zip(calm[WEIR], calm[bare]))
    printer.show(f"p99 that weir adds, {FEW} connections", added, "us", 50, at_least=False)
    ratio("denied / return 429", "nginx, weir, all denied", "nginx, return 429", 0.9)


def send_requests(port, times):
    """Asks one after the other on one connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        responses = connection.makefile("rb")
        for _ in range(times):
            connection.sendall(b"GET /api/items HTTP/1.1\r\nHost: bench\r\n\r\n")
            length = 0
            while (line := responses.readline().lower()).strip():
                length = int(line.split(b":")[1]) if line.startswith(b"content-length:") else length
            if len(responses.read(length)) != length:
                sys.exit("bench gateway: a response was cut short")


def counted(servers, make, times, keep):
    """Instructions of a server that starts, serves so many requests and ends."""
    name = f"counted{len(servers.processes)}"
    out = keep / f"{name}.callgrind" if keep else "/dev/null"
    servers.under = ["valgrind", "--tool=callgrind", "--dump-instr=yes", f"--callgrind-out-file={out}"]
    port = make(name)
    send_requests(port, times)
    process = servers.processes[name]
    while process.poll() is None:  # one signal may come just before it waits for events, and go unseen
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
    log = (servers.folder / f"{name}.log").read_text()
    return int(re.search(r"Collected : (\d+)", log).group(1))


def instructions(servers, printer, keep, only):
    bare, found = None, {}
    for case, make in (contestants(servers) | other_ways(servers)).items():
        if case.startswith("HAProxy") or (only and not any(words in case for words in only)):
            continue
        few, many = 1000, 2000
        each = (counted(servers, make, many, keep) - counted(servers, make, few, None)) / (many - few)
        found[case] = each
        bare = bare or each
        printer.show(case, each, "instructions", beyond_bare=round(each - bare))
    if LOCAL in found and LEASED in found:
        printer.show("a leased rule / a local one, instructions", found[LEASED] / found[LOCAL], "ratio")


def memory(servers, printer):
    slow = ("rules:\n  - { name: slow, match: { path: '/api/*' }, limit: 1, window: 100s, burst: 100000, "
            "algorithm: leaky_bucket, on_limit: delay }\n")
    ours = servers.weir("delay", slow)
    theirs = servers.nginx("limit_req_delay", Servers.PROXY % "limit_req zone=z burst=100000;",
                           "limit_req_zone $binary_remote_addr zone=z:10m rate=1r/m;")
    nginx, weir = bytes_a_delayed(servers, "limit_req_delay", theirs), bytes_a_delayed(servers, "delay", ours)
    printer.show("a request that limit_req delays", nginx, "bytes")
    printer.show("a request that weir delays", weir, "bytes")
    printer.show("a request that weir delays, beyond limit_req's", weir - nginx, "bytes", 256, at_least=False)


def main():
    parser = argparse.ArgumentParser(prog="./dev bench gateway", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--instructions", action="store_true", help="count a request's instructions instead")
    parser.add_argument("--keep", type=pathlib.Path, help="with --instructions: a folder for callgrind's files")
    parser.add_argument("--only", nargs="*", help="with --instructions: the cases whose names have one of these words")
    options = parser.parse_args()
    subprocess.run(["make", "-s", "nginx"], check=True, stdout=sys.stderr)
    printer = Printer(options.json)
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        script = pathlib.Path(folder) / "report.lua"
        script.write_text(WRK_REPORT)
        servers = Servers(options.weir, folder)
        try:
            home = pathlib.Path(folder)
            home.chmod(0o755)
            (home / "api.conf").write_text(f"""
                daemon off; worker_processes 1; pid {home}/api.pid; error_log {home}/api.error error;
                events {{ worker_connections 4096; }}
                http {{ access_log off; keepalive_requests 1000000000;
                    server {{ listen 127.0.0.1:{servers.upstream}; location / {{ return 200 "hello\\n"; }} }} }}""")
            servers.start("api", ["nginx", "-p", folder, "-c", f"{folder}/api.conf", "-e", f"{folder}/api.error"],
                          servers.upstream)
            if options.instructions:
                instructions(servers, printer, options.keep, options.only)
                return
            contest(servers, str(script), 2 if options.quick else 32, 1, printer)
            memory(servers, printer)
        finally:
            servers.stop()
    if not options.json:
        print(f"\n{sum(printer.bars)} of {len(printer.bars)} bars hold")


main()
