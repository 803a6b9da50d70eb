"""Real Redis servers for the tests: started on free ports, stopped by their own pid."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import redis

from gateway import wait_until
from ports import free_port
from stores import program


class RedisServer:
    """One redis-server. tls: (certificate, key) of the server, and `ca` of its clients, which then need a certificate."""

    def __init__(self, password=None, tls=None, ca=None, socket=False, more=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-redis-"))
        self.folder.chmod(0o755)
        self.port = free_port()
        self.password, self.tls, self.ca, self.more = password, tls, ca, more
        self.path = str(self.folder / "redis.sock") if socket else None
        self.process = None

    def arguments(self):
        made = ["--dir", str(self.folder), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1", *self.more]
        if self.tls:
            made += ["--port", "0", "--tls-port", str(self.port), "--tls-cert-file", self.tls[0], "--tls-key-file", self.tls[1],
                     "--tls-ca-cert-file", self.ca or self.tls[0], "--tls-auth-clients", "yes" if self.ca else "no"]
        else:
            made += ["--port", str(self.port)]
        if self.path:
            made += ["--unixsocket", self.path, "--unixsocketperm", "777"]
        return made + (["--requirepass", self.password] if self.password else [])

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen([program(), *self.arguments()], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._answers, "Redis")
        return self

    def _answers(self):
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            return self.client().ping()
        except redis.exceptions.ConnectionError:
            return False

    def client(self):
        more = {"ssl": True, "ssl_cert_reqs": None, "ssl_certfile": self.tls[0], "ssl_keyfile": self.tls[1]} if self.tls else {}
        return redis.Redis(port=self.port, password=self.password, socket_timeout=5, **more)

    def url(self, scheme="redis", host="127.0.0.1"):
        return f"{scheme}{'s' if self.tls else ''}://{host}:{self.port}"

    def calls(self):
        """How often the script ran, and was loaded."""
        stats = self.client().info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha", "script|load"))

    def pause(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait(10)

    def remove(self):
        if self.process and self.process.poll() is None:
            self.resume()
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
