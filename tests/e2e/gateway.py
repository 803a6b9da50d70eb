"""Starts real nginx in a folder of its own, on free ports, and stops only what it started."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

from ports import free_port

NGINX = "/usr/sbin/nginx"
MODULE = os.environ["WEIR_NGINX_MODULE"]
LOG_FORMAT = (
    'log_format weir escape=json \'{"status":$status,"pid":$pid,"uri":"$request_uri","decision":"$weir_decision",'
    '"rule":"$weir_rule","key":"$weir_key","limit":"$weir_limit","remaining":"$weir_remaining",'
    '"retry_after":"$weir_retry_after"}\';'
)


def wait_until(condition, what, seconds=30.0, every=0.02):
    """Waits until the condition is true; returns its value. The caller asserts what must come sooner: the machine is shared."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(every)
    raise AssertionError(f"{what} did not come about within {seconds} s")


def is_alive(pid):
    """False for a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def pause(pid):
    """Stops a process, and waits until all of its threads are stopped: on a busy machine some continue for a while."""
    def states():
        for file in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):
                yield file.read_text().rpartition(")")[2].split()[0]
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(state == "T" for state in states()), f"the stop of {pid}")


class Gateway:
    """One nginx. `server`: directives of the server block; `http`: further directives of the http block."""

    def __init__(self, rules, server="", http="", main="", workers=1, listen="", segment=None, size="4m", weir="on"):
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-e2e-", dir=base))
        self.folder.chmod(0o755)  # workers that are not root read the rules and the files
        self.port = free_port()
        self.backend = free_port()
        self.segment = segment or self.folder / "segment"
        (self.folder / "html").mkdir()
        (self.folder / "html" / "page.txt").write_text("page\n")
        self.write_rules(rules)
        self.pids = set()
        self.config = self.folder / "nginx.conf"
        self.config.write_text(f"""
load_module {MODULE};
worker_processes {workers};
pid {self.folder}/nginx.pid;
error_log {self.folder}/error.log info;
worker_shutdown_timeout 5s;
env LD_PRELOAD;
env ASAN_OPTIONS;
env UBSAN_OPTIONS;
{main}
events {{ worker_connections 12288; }}
http {{
    {LOG_FORMAT}
    access_log {self.folder}/access.log weir;
    client_body_temp_path {self.folder}/body;
    proxy_temp_path {self.folder}/proxy;
    fastcgi_temp_path {self.folder}/fastcgi;
    uwsgi_temp_path {self.folder}/uwsgi;
    scgi_temp_path {self.folder}/scgi;
    keepalive_requests 1000000;
    weir_segment {self.segment} {size};
    weir_rules {self.folder}/rules;
    weir {weir};
    {http}
    server {{
        listen 127.0.0.1:{self.port} {listen};
        root {self.folder}/html;
        location / {{ proxy_pass http://127.0.0.1:{self.backend}; }}
        location = /weir/status {{ weir off; weir_status; access_log off; }}
        {server.replace("@BACKEND@", f"127.0.0.1:{self.backend}").replace("@FOLDER@", str(self.folder))}
    }}
    server {{
        listen 127.0.0.1:{self.backend};
        access_log off;
        location / {{ return 200 "backend $request_uri\\n"; }}
        location /fails {{ return 500; }}
        location /elsewhere {{ add_header X-Accel-Redirect /page.txt; return 200; }}
        location /limits {{ add_header X-RateLimit-Limit 12345; add_header x-ratelimit-remaining 12344; return 200; }}
    }}
}}
""")

    def write_rules(self, rules):
        """As an editor should: writes another file, then renames it."""
        folder = self.folder / "rules"
        folder.mkdir(exist_ok=True)
        beside = folder / ".rules.new"
        beside.write_text(rules)
        beside.rename(folder / "rules.yaml")

    def run(self, *arguments):
        return subprocess.run([NGINX, "-p", str(self.folder), "-c", str(self.config), *arguments],
                              capture_output=True, text=True, timeout=60,
                              env={**os.environ, "LD_PRELOAD": os.environ.get("WEIR_PRELOAD", "")})

    def test(self):
        """nginx -t: whether it succeeds, and its output."""
        done = self.run("-t")
        return done.returncode == 0, done.stderr

    def start(self):
        done = self.run()
        assert done.returncode == 0, done.stderr
        self.master = int(wait_until((self.folder / "nginx.pid").read_text, "the pid file"))
        self.pids.add(self.master)
        self.wait_for_workers()
        return self

    def wait_for_workers(self, but=()):
        """Waits until all configured workers run, and none of those before."""
        wanted = re.search(r"worker_processes\s+(\w+);", self.config.read_text())
        count = 1 if not wanted else os.cpu_count() if wanted[1] == "auto" else int(wanted[1])
        wait_until(lambda: len(self.workers()) == count and not set(but) & set(self.workers()), "all workers")

    def workers(self, master=None):
        with open(f"/proc/{master or self.master}/task/{master or self.master}/children") as f:
            children = [int(pid) for pid in f.read().split()]
        return [pid for pid in children if "worker process" in self._command(pid) and
                "shutting down" not in self._command(pid)]

    @staticmethod
    def _command(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            return ""

    def reload(self):
        before = self.workers()
        os.kill(self.master, signal.SIGHUP)
        self.wait_for_workers(before)

    def upgrade(self):
        """Another nginx takes over, as on a binary upgrade."""
        old = self.master
        os.kill(old, signal.SIGUSR2)
        pid_file = self.folder / "nginx.pid"
        wait_until(lambda: (self.folder / "nginx.pid.oldbin").exists() and pid_file.exists() and
                   pid_file.read_text().strip(), "the new binary")
        self.master = int(pid_file.read_text())
        self.pids.add(self.master)
        self.wait_for_workers()
        os.kill(old, signal.SIGQUIT)
        wait_until(lambda: not is_alive(old), "the old binary's end")

    def stop(self):
        for pid in self.pids:
            if is_alive(pid):
                os.kill(pid, signal.SIGTERM)
        for pid in self.pids:
            wait_until(lambda: not is_alive(pid), "nginx's end")
        self.pids.clear()

    def remove(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def errors(self):
        path = self.folder / "error.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def denied(self, count, name="denied"):
        """The log of denied requests; waits for so many lines, as a thread of the worker writes them."""
        path = self.folder / name
        wait_until(lambda: path.read_bytes().count(b"\n") >= count, f"{count} lines in {name}")
        lines = [json.loads(line.decode("utf-8")) for line in path.read_bytes().splitlines()]
        assert len(lines) == count
        return lines

    def log(self, count=None):
        """The access log; waits for `count` lines, as nginx writes them after the reply."""
        path = self.folder / "access.log"

        def lines():
            seen = [json.loads(line) for line in path.read_text().splitlines()]
            return seen if len(seen) >= (count or 0) else None
        seen = wait_until(lines, f"{count} lines in the access log")
        assert count is None or len(seen) == count, seen
        return seen

    def status(self):
        from clients import get
        answer = get(self.port, "/weir/status")
        assert answer.status == 200, answer
        return json.loads(answer.body)

    def rule(self, name):
        return next(rule for rule in self.status()["by_rule"] if rule["name"] == name)
