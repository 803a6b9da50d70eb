#!/usr/bin/env python3
"""./dev bench core: bench/core.c, compared with the common Lua token bucket on Redis.

The cases of weir run first. Then Redis and weir's batches at 1 million keys alternate, so that both see the same
machine; the bar is the median of their ratios. Without redis-server this part is skipped with a message.
"""
import argparse
import json
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

KEYS = 1_000_000
RATE, BURST = 10, 10_000  # tokens a second and bucket size: no key expires during the run
PIPELINE = 64
TIMES_REDIS = 400  # the bar
COLUMNS = "{:<27} {:<26} {:>7} {:>7}  {:<12} {:>8} {:<12} {}"


def note(text):
    print(f"bench/core.py: {text}", file=sys.stderr, flush=True)


def friendly(value):
    """38123456 as "38.1 M"."""
    unit = 0
    while unit < 3 and value >= 999.5:
        value /= 1000
        unit += 1
    decimals = 0 if value == int(value) or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{decimals}f}{('', ' k', ' M', ' G')[unit]}"


class Printer:
    """One line a result, as it comes: JSON, or a row of the table."""

    def __init__(self, as_json):
        self.as_json = as_json
        self.bars = []
        if not as_json:
            print(COLUMNS.format("case", "algorithm", "keys", "threads", "distribution", "value", "unit", "bar"))

    def show(self, result):
        if "bar" in result:
            self.bars.append(result)
        if self.as_json:
            print(json.dumps(result, separators=(",", ":")), flush=True)
            return
        bar = ""
        if "bar" in result:
            sense = "at most" if result.get("most") else "at least"
            bar = f"{sense} {friendly(result['bar'])}: {'holds' if result['holds'] else 'MISSED'}"
        row = COLUMNS.format(result["case"], result["algorithm"], friendly(result["keys"]), result["threads"],
                             result["distribution"], friendly(result["value"]), result["unit"], bar)
        print(row.rstrip(), flush=True)

    def finish(self):
        if not self.as_json:
            passed = sum(result["holds"] for result in self.bars)
            print(f"\n{passed} of {len(self.bars)} bars hold")


def core_lines(core, *arguments):
    """The results of bench/core.c as they come."""
    with subprocess.Popen([core, "--json", *arguments], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        sys.exit(f"bench/core.py: bench/core failed with status {process.returncode}")


class Redis:
    """A server of our own without persistence, stopped when the block ends."""

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="weir-bench-")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = str(probe.getsockname()[1])
        self.server = subprocess.Popen(
            ["redis-server", "--bind", "127.0.0.1", "--port", self.port, "--save", "", "--appendonly", "no",
             "--dir", self.directory.name], stdout=subprocess.DEVNULL)
        try:
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.server.terminate()
        self.server.wait()
        self.directory.cleanup()

    def wait(self):
        for _ in range(100):
            if self.server.poll() is None and self.cli("PING", check=False) == "PONG":
                return
            time.sleep(0.1)
        raise RuntimeError("redis-server does not reply")

    def cli(self, *command, check=True):
        done = subprocess.run(["redis-cli", "-h", "127.0.0.1", "-p", self.port, *command], capture_output=True,
                              text=True, check=check)
        return done.stdout.strip()

    def memory(self):
        for line in self.cli("INFO", "memory").splitlines():
            if line.startswith("used_memory:"):
                return int(line.split(":")[1])
        raise RuntimeError("INFO memory has no used_memory")

    def rate(self, sha, requests):
        """Decisions a second under redis-benchmark."""
        done = subprocess.run(
            ["redis-benchmark", "-h", "127.0.0.1", "-p", self.port, "-P", str(PIPELINE), "-n", str(requests),
             "-r", str(KEYS), "--csv", "EVALSHA", sha, "1", "key:__rand_int__", str(RATE), str(BURST), "1"],
            capture_output=True, text=True, check=True)
        # "test","rps",... and then the name, with commas of its own escaped by quotes, and the numbers
        header, row = [line for line in done.stdout.splitlines() if line.startswith('"')][-2:]
        return float(row.strip('"').split('","')[header.strip('"').split('","').index("rps")])

    def check(self, sha):
        """The script must do its work, or its speed means nothing."""
        replies = [self.cli("EVALSHA", sha, "1", "check", "0.001", "2", "1").split()[0] for _ in range(3)]
        self.cli("DEL", "check")
        if replies != ["1", "1", "0"]:
            raise RuntimeError(f"the Lua token bucket replied {replies} instead of 1, 1, 0")


def compare_with_redis(core, quick, printer):
    def line(case, threads, value, unit, **more):
        printer.show({"bench": "core", "case": case, "algorithm": "token_bucket", "keys": more.pop("keys", KEYS),
                      "threads": threads, "distribution": "uniform", "value": value, "unit": unit, **more})

    rounds, requests = (3, 200_000) if quick else (5, 1_000_000)
    script = pathlib.Path(__file__).with_name("token_bucket.lua").read_text()
    only_batch = ["--cases", "token", "--keys", str(KEYS), "--threads", "2", "--distributions", "uniform",
                  "--rounds", "3", "--round-ms", "100"]
    redis_rates, weir_rates = [], []

    with Redis() as redis:
        sha = redis.cli("SCRIPT", "LOAD", script)
        redis.check(sha)
        empty = redis.memory()
        redis.rate(sha, requests // 4)  # does not count: tables grow
        for _ in range(rounds):
            redis_rates.append(redis.rate(sha, requests))
            weir_rates += [line["value"] for line in core_lines(core, *only_batch) if line["case"] == "batch"]
        keys = int(redis.cli("DBSIZE"))
        bytes_a_key = (redis.memory() - empty) / keys

    ratio = statistics.median(w / r for w, r in zip(weir_rates, redis_rates, strict=True))
    # Redis decides on one thread; its client keeps the other processor busy.
    line("redis lua", 1, round(statistics.median(redis_rates)), "decisions/s", pipeline=PIPELINE)
    line("redis lua bytes a key", 1, round(bytes_a_key, 1), "bytes/key", keys=keys)
    line("batch beside redis", 2, round(statistics.median(weir_rates)), "decisions/s")
    line("batch / redis lua", 2, round(ratio, 1), "ratio", bar=TIMES_REDIS, holds=ratio >= TIMES_REDIS)


def main():
    parser = argparse.ArgumentParser(description="the benchmark of weir's core")
    parser.add_argument("--weir", required=True, help="the weir command")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--quick", action="store_true", help="under a minute")
    options = parser.parse_args()

    core = pathlib.Path(options.weir).parent / "bench" / "core"
    subprocess.run(["make", "-s", str(core)], check=True, stdout=sys.stderr)
    printer = Printer(options.json)
    for line in core_lines(core, *(["--quick"] if options.quick else [])):
        printer.show(line)
    missing = [name for name in ("redis-server", "redis-benchmark", "redis-cli") if not shutil.which(name)]
    if missing:
        note(f"{', '.join(missing)} not installed: nothing is compared with Redis")
    else:
        compare_with_redis(core, options.quick, printer)
    printer.finish()


if __name__ == "__main__":
    main()
