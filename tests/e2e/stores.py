"""Real stores for the tests: a Redis, a Sentinel set, a cluster, each on free ports in a folder of its own.

All of them are ended by their own process, and by the kernel should the test itself die.
"""
import contextlib
import functools
import os
import pathlib
import re
import shutil
import signal
import ssl
import subprocess
import tempfile
import time

from gateway import is_alive, wait_until
from ports import free_port
from resp import Broken, Client

WITH_US = ["setpriv", "--pdeathsig", "KILL"]  # ends with the process that started it


def program():
    """The server that the tests start: the machine's own, or the one that WEIR_TEST_SERVER names."""
    return os.environ.get("WEIR_TEST_SERVER") or "redis-server"


@functools.cache
def version(server):
    """Of a program: (major, minor)."""
    output = subprocess.run([server, "--version"], check=True, capture_output=True, text=True).stdout
    return tuple(int(part) for part in re.search(r"v=(\d+)\.(\d+)", output).groups())


def folder(prefix):
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=base))


class Folder:
    def __init__(self):
        self.path = folder("weir-store-")
        self.path.chmod(0o755)

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def anonymous_tls():
    """The TLS of a server without a certificate: its ciphers authenticate nobody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AECDH:@SECLEVEL=0")
    return context


def openssl_with_anonymous_ciphers(where):
    """A configuration of OpenSSL (OPENSSL_CONF) that allows such ciphers, as a system's may."""
    file = pathlib.Path(where) / "openssl.cnf"
    file.write_text("openssl_conf = a\n[a]\nssl_conf = b\n[b]\nsystem_default = c\n[c]\nCipherString = ALL:aNULL:@SECLEVEL=0\n")
    return str(file)


class Authority:
    """Certificates: ca.pem, and NAME.pem with NAME.key that it has signed."""

    def __init__(self, where, name="authority"):
        self.folder, self.ca = pathlib.Path(where), pathlib.Path(where) / f"{name}.pem"
        self.key = self.ca.with_suffix(".key")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2,
                "-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-out", self.ca, "-keyout", self.key)

    def sign(self, name, names="DNS:localhost,IP:127.0.0.1"):
        certificate, key, request = (self.folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
                "-addext", f"subjectAltName={names}", "-out", request, "-keyout", key)
        openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.key, "-CAcreateserial", "-days", 2,
                "-copy_extensions", "copy", "-out", certificate)
        return certificate, key


class Server:
    """One redis-server. `options` are lines of its configuration."""

    def __init__(self, *options, port=None, where=None, bind=("127.0.0.1",), tls=None, password=None):
        self.port, self.password, self.tls = port or free_port(), password, tls
        self.folder = where or folder("weir-store-")
        self.made_folder = where is None
        self.process = None
        self.config = self.folder / f"{self.port}.conf"
        lines = [f"dir {self.folder}", f"bind {' '.join(bind)}", "protected-mode no", 'save ""', "appendonly no",
                 f"dbfilename {self.port}.rdb", "repl-diskless-sync-delay 0", "repl-ping-replica-period 1"]
        if version(program()) >= (7, 0):
            lines += ["enable-debug-command yes", f"appenddirname aof{self.port}"]
        if tls:
            authority, (certificate, key) = tls
            lines += ["port 0", f"tls-port {self.port}", f"tls-cert-file {certificate}", f"tls-key-file {key}",
                      f"tls-ca-cert-file {authority.ca}", "tls-auth-clients optional"]
        else:
            lines.append(f"port {self.port}")
        if password:
            lines.append(f"requirepass {password}")
        self.config.write_text("\n".join([*lines, *options]) + "\n")

    arguments = ()

    def start(self, wait=True):
        with open(self.folder / f"{self.port}.log", "ab") as output:
            self.process = subprocess.Popen([*WITH_US, program(), str(self.config), *self.arguments],
                                            stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        if wait:
            wait_until(self.answers, f"redis-server on {self.port}: {self.log()[-500:]}")
        return self

    def log(self):
        return (self.folder / f"{self.port}.log").read_text(errors="replace")

    def connect(self):
        context = None
        if self.tls:
            context = ssl.create_default_context(cafile=str(self.tls[0].ca))
            context.check_hostname = False
        client = Client(self.port, tls=context)
        if self.password:
            client.do("AUTH", self.password)
        return client

    def answers(self):
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(OSError, EOFError):
            return self.do("PING") == "PONG"

    def do(self, *words):
        with self.connect() as client:
            return client.do(*words)

    def must(self, *words):
        answer = self.do(*words)
        assert not isinstance(answer, Broken), answer
        return answer

    def info(self, section):
        text = self.must("INFO", section).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def commands(self):
        """How many commands clients have sent; asking for it is one."""
        return int(self.info("stats")["total_commands_processed"])

    def in_step(self, replicas):
        """Waits until so many replicas have all that was written."""
        with self.connect() as client:
            client.do("PUBLISH", "anything", "at all")  # in the stream of changes, and in no slot
            assert client.do("WAIT", replicas, 15000) >= replicas

    def kill(self):
        self.process.kill()
        self.process.wait()

    LOADING = ("loading-process-events-interval-bytes 1024",)  # options of a server that replies while it loads

    def load(self):
        """Restarts it with so much data that it loads until finish_loading."""
        with self.connect() as client:
            client.pipeline([("SET", f"ballast{i}", "x" * 200) for i in range(1000)])
        self.must("SAVE")
        self.kill()
        with open(self.config, "a") as config:
            config.write("key-load-delay 20000\n")
        self.start(wait=False)

    def finish_loading(self):
        wait_until(lambda: self.do("CONFIG", "SET", "key-load-delay", "0") == "OK", "a word with it")
        wait_until(self.answers, "all read")

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def flush(self):
        self.must("FLUSHALL")

    def forget_scripts(self):
        self.must("SCRIPT", "FLUSH")

    @property
    def url(self):
        secret = f":{self.password}@" if self.password else ""
        return f"redis{'s' if self.tls else ''}://{secret}127.0.0.1:{self.port}"

    def remove(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.made_folder:
            shutil.rmtree(self.folder, ignore_errors=True)


class Sentinel(Server):
    arguments = ("--sentinel",)


class Sentinels:
    """A master with two replicas and three sentinels that know each other from the start."""

    def __init__(self, name="mymaster", down_after_ms=1000):
        self.folder, self.name = folder("weir-sentinel-"), name
        first = Server(where=self.folder)
        self.servers = [first] + [Server(f"replicaof 127.0.0.1 {first.port}", where=self.folder) for _ in range(2)]
        self.sentinels = []
        ports = [free_port() for _ in range(3)]
        for at, port in enumerate(ports):
            one = Sentinel(port=port, where=self.folder)
            others = [f"sentinel known-sentinel {name} 127.0.0.1 {other} {self._id(i)}"
                      for i, other in enumerate(ports) if i != at]
            replicas = [f"sentinel known-replica {name} 127.0.0.1 {server.port}" for server in self.servers[1:]]
            one.config.write_text("\n".join([
                f"port {port}", "bind 127.0.0.1", "protected-mode no", f"dir {self.folder}", f"sentinel myid {self._id(at)}",
                f"sentinel monitor {name} 127.0.0.1 {first.port} 2", f"sentinel down-after-milliseconds {name} {down_after_ms}",
                f"sentinel failover-timeout {name} 3000", f"sentinel parallel-syncs {name} 2", *replicas, *others]) + "\n")
            self.sentinels.append(one)

    @staticmethod
    def _id(number):
        return f"{number + 1:040x}"

    def start(self):
        for server in self.servers:
            server.start()
        self.servers[0].in_step(2)
        for one in self.sentinels:
            one.start()
            if version(program()) >= (7, 0):  # else 30 s without a failover whenever this machine stood still or its clock went back
                one.must("SENTINEL", "DEBUG", "TILT-PERIOD", 500)
        for one in self.sentinels:
            wait_until(lambda: one.do("SENTINEL", "CKQUORUM", self.name) and
                       not isinstance(one.do("SENTINEL", "CKQUORUM", self.name), Broken), "a quorum")
        return self

    def master(self):
        """The server that the sentinels take for the master."""
        for one in self.sentinels:
            if is_alive(one.process.pid):
                port = int(one.must("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)[1])
                return next(server for server in self.servers if server.port == port)
        raise AssertionError("no sentinel lives")

    def failover(self):
        """A failover as an operator requests it; returns when another server is the master."""
        old = self.master()
        wait_until(lambda: self.sentinels[0].do("SENTINEL", "FAILOVER", self.name) == "OK", "a failover begun")
        return self.promoted(old)

    def promoted(self, old, seconds=60):
        def new():
            now = self.master()
            return now if now is not old and now.do("ROLE")[0] == b"master" else None
        try:
            return wait_until(new, "another master", seconds)
        except AssertionError as problem:
            raise AssertionError("\n".join([str(problem), *(one.log()[-3000:] for one in self.sentinels)])) from None

    @property
    def url(self):
        return "redis+sentinel://" + ",".join(f"127.0.0.1:{one.port}" for one in self.sentinels) + f"/{self.name}"

    def remove(self):
        for one in [*self.sentinels, *self.servers]:
            one.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


class Cluster:
    """Three masters with a replica each (or none), made by redis-cli as an operator makes it. Who loses a master says QUICK; else
    a machine that stands still for a second would have the replicas take over, without what they had not heard of."""

    QUICK, SLOW = 1000, 5000

    def __init__(self, timeout_ms=SLOW, replicas=1):
        self.folder, self.replicas = folder("weir-cluster-"), replicas
        self.servers = []
        for _ in range(3 + 3 * replicas):
            port = free_port()
            self.servers.append(Server("cluster-enabled yes", f"cluster-config-file nodes-{port}.conf",
                                       f"cluster-node-timeout {timeout_ms}", "cluster-require-full-coverage no",
                                       "cluster-replica-validity-factor 0", port=port, where=self.folder))

    def start(self):
        for server in self.servers:
            server.start()
        self.cli("create", *(f"127.0.0.1:{server.port}" for server in self.servers), "--cluster-replicas", self.replicas)
        for server in self.servers:
            wait_until(lambda: b"cluster_state:ok" in server.do("CLUSTER", "INFO"), "a cluster")
        wait_until(lambda: len(self.masters()) == 3, "who is a replica known to the first")
        for server in self.masters():
            server.in_step(self.replicas)
        return self

    def cli(self, *arguments, seconds=60):
        done = subprocess.run(["redis-cli", "--cluster", *map(str, arguments), "--cluster-yes"], capture_output=True,
                              text=True, timeout=seconds)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    def alive(self):
        return [server for server in self.servers if server.process.poll() is None]

    def nodes(self, server=None):
        """All nodes as one node reports them: {port: (id, flags, number of slots)}."""
        seen = {}
        for line in (server or self.alive()[0]).must("CLUSTER", "NODES").decode().splitlines():
            name, address, flags, _, _, _, _, _, *slots = line.split()
            port = int(address.split("@")[0].rpartition(":")[2])
            count = 0
            for part in slots:
                if not part.startswith("["):
                    first, _, last = part.partition("-")
                    count += int(last or first) - int(first) + 1
            seen[port] = (name, flags.split(","), count)
        return seen

    def masters(self):
        nodes = self.nodes()
        return [server for server in self.alive() if "master" in nodes[server.port][1]]

    def reshard(self, source, target, slots):
        """Moves so many slots with their keys from one master to another, under load."""
        def agreed():
            views = [{port: (name, count) for port, (name, _, count) in self.nodes(server).items()}
                     for server in self.alive()]
            return all(view == views[0] for view in views)
        wait_until(agreed, "nodes that agree about the cluster")
        nodes = self.nodes()
        return self.cli("reshard", f"127.0.0.1:{source.port}", "--cluster-from", nodes[source.port][0], "--cluster-to",
                        nodes[target.port][0], "--cluster-slots", slots, "--cluster-pipeline", 100)

    def lose(self, master, seconds=20):
        """kill -9 of a master; returns when its replica has taken over, with how long that took."""
        begun = time.monotonic()
        master.kill()
        self.taken_over(master, seconds)
        return time.monotonic() - begun

    def taken_over(self, lost, seconds=20):
        """Waits until every node that lives knows another master for all that it had."""
        def owned(server):
            return sum(count for port, (_, flags, count) in self.nodes(server).items()
                       if "master" in flags and "fail" not in flags and port != lost.port)
        wait_until(lambda: all(owned(server) == 16384 for server in self.alive()), "the replica in its place", seconds)

    @property
    def url(self):
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers[:3])

    def remove(self):
        for server in self.servers:
            server.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def small_disk(megabytes=1):
    """A file system that is soon full, or None where none can be mounted."""
    where = pathlib.Path(tempfile.mkdtemp(prefix="weir-disk-"))
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(where)], capture_output=True).returncode == 0
    try:
        yield where if mounted else None
    finally:
        if mounted:
            wait_until(lambda: subprocess.run(["umount", str(where)], capture_output=True).returncode == 0, "umount")
        shutil.rmtree(where, ignore_errors=True)
