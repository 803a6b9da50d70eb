"""Several weir hosts with one store, and load that is spread over them."""
import collections
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import tempfile
import threading
import time

from building import ROOT, built
from gateway import NGINX, wait_until
from served import Served
from stores import WITH_US

SPREAD = ROOT / "build/gcc/tests/e2e/spread"
ALGORITHMS = {  # the first part of the path: fields of its rule besides limit and window
    "token": "algorithm: token_bucket",
    "interval": "algorithm: token_bucket, refill: interval",
    "leaky": "algorithm: leaky_bucket",
    "fixed": "algorithm: fixed_window",
    "first": "algorithm: fixed_window, align: first_request",
    "log": "algorithm: sliding_window_log",
    "counter": "algorithm: sliding_window_counter",
}
Record = collections.namedtuple("Record", "begun took key status host path")  # seconds on time.monotonic's clock
FORMAT = struct.Struct("=QIIHHHH")


def rule(name, limit, window, consistency, algorithm="algorithm: token_bucket", policy="local", more=""):
    """A rule for /name/KEY: a counter for each KEY."""
    return (f"  - {{ name: {name}, match: {{ path: /{name}/* }}, key: '${{path:2}}', limit: {limit}, window: {window}, "
            f"consistency: {consistency}, on_store_failure: {policy}, {algorithm}{', ' + more if more else ''} }}\n")


class Api:
    """The upstream of the hosts: an nginx that always replies, on a socket that every namespace reaches."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-api-"))
        self.folder.chmod(0o755)
        self.url = f"unix:{self.folder}/socket"
        (self.folder / "nginx.conf").write_text(f"""
            daemon off; worker_processes 1; pid {self.folder}/pid; error_log {self.folder}/error.log error;
            events {{ worker_connections 4096; }}
            http {{ access_log off; keepalive_requests 1000000000;
                server {{ listen {self.url}; location / {{ return 200 "ok"; }} }} }}""")
        self.process = subprocess.Popen([*WITH_US, NGINX, "-p", self.folder, "-c", self.folder / "nginx.conf", "-e",
                                         self.folder / "error.log"], stdin=subprocess.DEVNULL)
        wait_until((self.folder / "socket").exists, "the API")
        (self.folder / "socket").chmod(0o666)

    def remove(self):
        self.process.terminate()
        self.process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)


class Fleet:
    """`hosts` times weir serve, or one in each of `sites` (wire.Site). `store`: a URL, or a function that returns one for a site."""

    def __init__(self, rules, store, hosts=3, workers=2, sites=None, options=(), size="8MiB"):
        self.api = Api()
        self.hosts = []
        for at in range(len(sites) if sites else hosts):
            site = sites[at] if sites else None
            url = store(site) if callable(store) else store
            lines = "".join(f"  {line}\n" for line in (f"url: {url}", *options))
            host = Served(f"segment: {{ path: @FOLDER@/segment, size: {size} }}\nworkers: {workers}\n"
                          f"gateway: {{ listen: {site.address if site else '127.0.0.1'}:@PORT@, upstreams: ['{self.api.url}'] }}\n"
                          f"metrics: 127.0.0.1:@METRICS@\nstore:\n{lines}rules:\n{rules}")
            host.inside = site.inside if site else []
            host.address = site.address if site else "127.0.0.1"
            self.hosts.append(host)

    def start(self):
        for host in self.hosts:
            host.start()
        return self

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.remove()
            raise

    def __exit__(self, *_):
        self.remove()

    def targets(self):
        return [f"{host.address}:{host.port}" for host in self.hosts]

    def status(self, at):
        host = self.hosts[at]
        done = subprocess.run([*host.inside, "curl", "-sS", f"http://127.0.0.1:{host.metrics}/weir/status"],
                              capture_output=True, text=True, timeout=60, check=True)
        return json.loads(done.stdout)

    def load(self, *paths, **more):
        return Load(self.targets(), paths, **more)

    def remove(self):
        with contextlib.ExitStack() as stack:
            stack.callback(self.api.remove)
            for host in self.hosts:
                stack.callback(host.remove)


class Load:
    """spread.c while the block runs; .records after it. Give `count` or `seconds`."""

    def __init__(self, targets, paths, clients=48, seconds=0.0, count=0, rate=0, keys=1000, seed=1):
        built(SPREAD)
        handle, self.path = tempfile.mkstemp(prefix="weir-load-")
        os.close(handle)
        prefixes = ",".join(f"/{path}/" for path in paths)
        words = [SPREAD, self.path, clients, seconds, count, rate, keys, seed, prefixes, *targets]
        self.paths = paths
        self.command = [*WITH_US, *map(str, words)]

    def __enter__(self):
        self.begun = time.monotonic()
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *error):
        if error[0]:
            self.process.kill()
        assert self.process.wait(120) == 0 or error[0]
        data = pathlib.Path(self.path).read_bytes()
        os.unlink(self.path)
        data = data[:len(data) // FORMAT.size * FORMAT.size]
        self.records = [Record(begun / 1e6, took / 1e6, key, status, host, self.paths[path])
                        for begun, took, key, status, host, path, _ in FORMAT.iter_unpack(data)]

    def end(self):
        """Before its time: what was begun is finished."""
        self.process.terminate()

    def run(self):
        with self:
            pass
        return self

    def statuses(self, path=None):
        return collections.Counter(record.status for record in self.records if path in (None, record.path))

    def admitted(self, path=None):
        """How often each key passed."""
        return collections.Counter(record.key for record in self.records
                                   if record.status == 200 and path in (None, record.path))

    def between(self, begin, end, path=None):
        return [record for record in self.records if begin <= record.begun < end and path in (None, record.path)]


def meanwhile(load, job):
    """The load, and the job again and again until it is over; how often that was."""
    ended, times = threading.Event(), []

    def work():
        while not ended.is_set():
            job()
            times.append(1)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        load.run()
    finally:
        ended.set()
        thread.join()
    return len(times)


def quantile(records, part):
    """Of the times they took, in seconds."""
    times = sorted(record.took for record in records)
    return times[min(int(len(times) * part), len(times) - 1)] if times else 0.0


def median(records):
    return statistics.median(record.took for record in records)
