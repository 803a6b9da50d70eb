"""weir serve as a user runs it: a folder with a weir.yaml, the process, and servers for it to pass requests on to."""
import contextlib
import fcntl
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading
import time

from clients import get
from gateway import MODULE, is_alive, wait_until
from ports import free_port

WEIR = str(pathlib.Path(MODULE).parent.parent / "weir")
PRELOAD = os.environ.get("WEIR_PRELOAD", "")  # of a sanitizer
ENVIRONMENT = {**os.environ, "WEIR_MODULES": str(pathlib.Path(MODULE).parent), "LD_PRELOAD": PRELOAD}


class Backend:
    """An API whose replies contain the request as JSON; /slow/N waits N seconds first."""

    def __init__(self, name="a", tls=None):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self):
                outer.requests += 1
                outer.last = self.headers
                if self.path.startswith("/slow/"):
                    time.sleep(float(self.path.split("/")[2]))
                length = int(self.headers.get("Content-Length") or 0)
                body = json.dumps({"name": name, "path": self.path, "headers": dict(self.headers),
                                   "length": len(self.rfile.read(length))}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *arguments):
                pass

        self.requests, self.last = 0, None  # requests, and the headers of the last one
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *arguments: None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def certificate(folder, name="server"):
    """A self-signed certificate for localhost and 127.0.0.1: its path and its key's."""
    paths = str(folder / f"{name}.pem"), str(folder / f"{name}.key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-addext", "keyUsage=critical,digitalSignature,keyCertSign",
                    "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    return paths


def stale_folders():
    """Runtime directories of weir serve that no process uses any more: their lock is free."""
    stale = set()
    for path in pathlib.Path("/tmp").glob("weir-serve-??????"):
        with contextlib.suppress(OSError), open_folder(path) as folder:
            fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
            stale.add(path.name)
    return stale


@contextlib.contextmanager
def open_folder(path):
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield folder
    finally:
        os.close(folder)


class Served:
    """A weir serve. @PORT@, @METRICS@ and @FOLDER@ in the text are this one's; `head` may have @BACKEND@, too."""

    def __init__(self, yaml, backend=None):
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-serve-test-", dir=base))
        self.folder.chmod(0o755)
        self.port, self.metrics = free_port(), free_port()
        self.backend = backend
        self.file = self.folder / "weir.yaml"
        self.write(yaml)
        self.process = self.group = self.runtime_dir = None
        self.inside = []  # prefix of the command: ip netns exec …
        self.program = WEIR

    def write(self, yaml):
        """As an editor should: writes another file, then renames it."""
        text = yaml.replace("@PORT@", str(self.port)).replace("@METRICS@", str(self.metrics))
        text = text.replace("@FOLDER@", str(self.folder))
        if self.backend:
            text = text.replace("@BACKEND@", self.backend.url)
        beside = self.folder / ".weir.yaml.new"
        beside.write_text(text)
        beside.rename(self.file)

    def change(self, old, new):
        text = self.file.read_text()
        assert old in text
        self.write(text.replace(old, new))

    def run(self, *arguments, **more):
        """Runs weir serve with these arguments until it exits."""
        return subprocess.run([WEIR, "serve", *arguments, "weir.yaml"], cwd=self.folder, env=ENVIRONMENT,
                              capture_output=True, text=True, timeout=60, **more)

    def start(self, running=True, env=ENVIRONMENT, stdin=subprocess.DEVNULL, **more):
        """Waits until it runs; without `running` it returns at once, and group and runtime_dir stay unknown."""
        self.log_file = self.folder / "log.txt"
        with open(self.log_file, "wb") as output:
            self.process = subprocess.Popen([*self.inside, self.program, "serve", "weir.yaml"], cwd=self.folder, env=env,
                                            stdin=stdin, stdout=output, stderr=output, **more)
        if not running:
            return self
        self.wait_for_log("is running")
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as children:
            self.group = int(children.read().split()[0])
        command = pathlib.Path(f"/proc/{self.group}/cmdline").read_text().replace("\0", " ")
        self.runtime_dir = pathlib.Path(re.search(r"-p (\S+)", command).group(1))
        return self

    def log_text(self):
        return self.log_file.read_text(errors="replace")

    def wait_for_log(self, what, times=1, seconds=30.0):
        """Waits until the log contains the text, `times` times."""
        def is_logged():
            assert self.process.poll() is None or what in self.log_text(), self.log_text()
            return self.log_text().count(what) >= times
        try:
            wait_until(is_logged, f"'{what}'", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; the log:\n{self.log_text()}") from None

    def workers(self):
        with open(f"/proc/{self.group}/task/{self.group}/children") as children:
            return set(children.read().split())

    def signal(self, number):
        os.kill(self.process.pid, number)

    def agent_pid(self):
        """The pid of its agent; 0 while there is none of that name. Other children are nginx's."""
        for child in pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "weir-agent":
                    return int(child)
        return 0

    def wait_for_agent(self, *but):
        """Waits for an agent whose pid is none of these; returns the pid."""
        return wait_until(lambda: (pid if (pid := self.agent_pid()) not in but else 0), "the agent")

    def kill_agent(self, *but):
        """Kills the agent (SIGKILL); returns its pid."""
        pid = self.wait_for_agent(*but)
        os.kill(pid, signal.SIGKILL)
        return pid

    def end(self, seconds=40):
        """Waits for the exit; returns the code."""
        return self.process.wait(seconds)

    def nothing_left(self):
        """Waits until no process of nginx is left; returns whether the runtime directory is gone."""
        def gone():
            try:
                os.killpg(self.group, 0)
            except ProcessLookupError:
                return True
            return False
        wait_until(gone, "the end of all processes")
        return not self.runtime_dir.exists()

    def get(self, path="/", **more):
        return get(self.port, path, **more)

    def remove(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)
        assert not self.group or "AddressSanitizer" not in self.log_text() and "runtime error" not in self.log_text(), self.log_text()
        if self.group and is_alive(self.group):
            os.killpg(self.group, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
