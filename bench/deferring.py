"""For bench/pressure.py: denied requests a second that a gateway defers to its queue, with 202 after they are stored."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time

WRK = """
wrk.method = "POST"
wrk.body = string.rep("x", 512)
wrk.headers["Content-Type"] = "text/plain"
done = function(summary)
  io.write(string.format("RESULT %d %d\\n", summary.requests - summary.errors.status, summary.duration))
end
"""

YAML = """
segment: {{ path: {folder}/segment, size: 4MiB }}
state: {folder}/state
workers: 1
{store}
queue: {{ max: 10000000, max_bytes: 16GiB }}
gateway: {{ listen: "127.0.0.1:{port}", upstreams: ["http://127.0.0.1:9"] }}
rules:
  - {{ name: later, key: "user:${{header:x-user}}", on_missing_key: share, limit: 1, window: 1d, on_limit: queue,
      queue: {{ max: 10000000, max_bytes: 16GiB }} }}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def accepted(weir, seconds, redis):
    """Requests a second, on SQLite in the folder of the build (a disk, as a queue's should be) or on a Redis of its own."""
    with tempfile.TemporaryDirectory(prefix="queue-", dir="build") as name:
        folder, port, running = pathlib.Path(name).resolve(), free_port(), []
        folder.chmod(0o755)  # for nginx's workers, which are another user's where root runs it
        try:
            store = ""
            if redis:
                at = free_port()
                running.append(subprocess.Popen(["redis-server", "--port", str(at), "--dir", str(folder), "--appendonly", "yes",
                                                 "--appendfsync", "always", "--save", ""], stdout=subprocess.DEVNULL))
                store = f"store: redis://127.0.0.1:{at}"
                time.sleep(0.5)
            (folder / "weir.yaml").write_text(YAML.format(folder=folder, store=store, port=port))
            (folder / "wrk.lua").write_text(WRK)
            with open(folder / "log", "wb") as log:
                modules = str((pathlib.Path(weir).parent / "nginx").resolve())
                running.append(subprocess.Popen([weir, "serve", folder / "weir.yaml"], stdin=subprocess.DEVNULL, stdout=log,
                                                stderr=log, env={**os.environ, "WEIR_MODULES": modules}))
            time.sleep(2)
            run = subprocess.run(["wrk", "-t1", "-c256", f"-d{seconds}s", "-s", folder / "wrk.lua", f"http://127.0.0.1:{port}/"],
                                 stdout=subprocess.PIPE, text=True, check=True)
            count, duration = map(int, re.search(r"RESULT (\d+) (\d+)", run.stdout).groups())
            return count / duration * 1e6
        finally:
            for process in reversed(running):
                process.send_signal(signal.SIGTERM)
                process.wait(20)
