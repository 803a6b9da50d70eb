"""weir serve is replaced by another version of itself while it serves: docs/guide/upgrading.md."""
import collections
import contextlib
import fcntl
import http.client
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

from clients import get
from controlled import Host
from gateway import MODULE, is_alive, wait_until
from measured import always, measured
from ports import free_port
from queued import wait_until_queue_answers
from served import ENVIRONMENT, WEIR

VERSION = subprocess.run([WEIR, "version"], capture_output=True, text=True, check=True).stdout.split()[1]
OTHER = "9" + VERSION[1:]
HEAD = """gateway: { listen: "127.0.0.1:@PORT@", upstreams: ["@BACKEND@"] }
metrics: 127.0.0.1:@METRICS@
segment: { path: "@FOLDER@/segment", size: 1MiB }
state: "@FOLDER@/state"
workers: 2
"""
RULES = """rules:
  - { name: counted, match: { path: /counted }, key: all, limit: 1000000, window: 1d, algorithm: fixed_window }
  - { name: kept, match: { path: /kept }, key: all, limit: 1, window: 1d, on_limit: queue }
  - { name: two, match: { path: /two }, limit: 2, window: 1d }
"""
LIMIT = 1000000
USER = 1  # daemon


class Installed(Host):
    """A weir serve with files of its own, which can be replaced by those of another version."""

    def __init__(self, yaml, backend):
        super().__init__(yaml, backend)
        self.program = str(self.folder / "bin" / "weir")
        (self.folder / "bin" / "nginx").mkdir(parents=True)
        self.install(VERSION)

    def put(self, name, content):
        """As a package does: another file is renamed to the name."""
        path = self.folder / "bin" / name
        beside = path.with_name(path.name + ".new")
        beside.write_bytes(content)
        beside.chmod(0o755)
        beside.rename(path)

    def install(self, version, modules=True):
        program = pathlib.Path(WEIR).read_bytes()
        assert program.count(VERSION.encode() + b"\0") >= 1
        self.put("weir", program.replace(VERSION.encode() + b"\0", version.encode() + b"\0"))
        for module in pathlib.Path(MODULE).parent.glob("*.so") if modules else ():
            self.put(f"nginx/{module.name}", module.read_bytes())

    def start(self, env=None, **more):
        environment = {name: value for name, value in (env or ENVIRONMENT).items() if name != "WEIR_MODULES"}
        return super().start(env=environment, **more)

    def masters(self):
        """Processes of nginx that are children of weir serve: its masters."""
        found = []
        for child in pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                if b"master process" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
        return found

    def upgrade(self, version, times=1, modules=True, before=VERSION):
        """Installs a version, and waits until it serves alone."""
        old = self.masters()
        self.install(version, modules)
        self.signal(signal.SIGUSR2)
        self.wait_for_log(f"weir {version} has taken over from weir {before}; reloading", times)
        if modules:
            wait_until(lambda: not set(old) & set(self.masters()), "the end of the master before")
        self.group = self.masters()[0]

    def running(self):
        return pathlib.Path(f"/proc/{self.process.pid}/exe").read_bytes().count(OTHER.encode() + b"\0") > 0


@pytest.fixture
def installed(backend):
    made = []

    def make(yaml=HEAD + RULES):
        made.append(Installed(yaml, backend))
        return made[-1]

    yield make
    for one in made:
        one.remove()


class Load:
    """Clients of every listener, each in a thread, until the end of the block; what went wrong is in `failures`."""

    def __init__(self, one, *jobs):
        self.one, self.jobs = one, jobs
        self.failures, self.done, self.stop = [], collections.Counter(), threading.Event()

    def run(self, job):
        while not self.stop.is_set():
            try:
                job(self)
                self.done[job.__name__] += 1
            except Exception as error:  # whatever it is, the client was not served
                self.failures.append(f"{job.__name__}: {error!r}")
                time.sleep(0.01)

    def __enter__(self):
        self.threads = [threading.Thread(target=self.run, args=(job,)) for job in self.jobs]
        for each in self.threads:
            each.start()
        wait_until(lambda: all(self.done[job.__name__] for job in self.jobs), "every client's first request")
        return self

    def __exit__(self, *error):
        self.stop.set()
        for each in self.threads:
            each.join()
        if not error[0]:
            assert not self.failures, (len(self.failures), self.failures[:10], self.one.log_text())


def counted(load):
    """A connection for each request."""
    assert load.one.get("/counted").status == 200


def counted_on_one_connection(load, kept={}):  # noqa: B006
    """One connection for many requests. nginx may close it between two requests: then clients connect anew, as usual."""
    connection = kept.pop(load, None)
    for _ in range(2):
        fresh = connection is None
        connection = connection or http.client.HTTPConnection("127.0.0.1", load.one.port, timeout=20)
        try:
            answer = get(load.one.port, "/counted", connection=connection)
            break
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            assert not fresh
            connection = None
    assert answer.status == 200
    kept[load] = connection


def slow(load):
    assert load.one.get("/slow/0.3").status == 200


def deferred(load):
    answer = load.one.get("/kept")
    assert answer.status in (200, 202), answer.status
    time.sleep(0.005)


def metrics(load):
    assert get(load.one.metrics, "/metrics").status == 200


def admin(load):
    assert get(load.one.admin, "/healthz").status == 200


def resp(load):
    with socket.create_connection(("127.0.0.1", load.one.resp), timeout=20) as s:
        s.sendall(b"*1\r\n$4\r\nPING\r\n")
        assert s.recv(100) == b"+PONG\r\n"


def used(one):
    return LIMIT - int(one.get("/counted").headers["X-RateLimit-Remaining"]) - 1


def everything(installed):
    one = installed(HEAD + "admin: 127.0.0.1:@ADMIN@\nservice: { resp: \"127.0.0.1:@RESP@\" }\nqueue: on\n" + RULES)
    one.resp = free_port()
    one.change("@RESP@", str(one.resp))
    return one


def wait_for_all(one):
    one.wait_for_admin()
    wait_until_queue_answers(one.port)


# ---- One version after another ----

@pytest.mark.parametrize("user", [None, USER], ids=["root", "user"])
@measured  # a deferred request waits for the next agent for a bounded time
def test_old_new_old_under_load(installed, user):
    if user is None and os.geteuid() != 0:
        pytest.skip("only root has privileges to drop")
    one = everything(installed)
    if user:
        subprocess.run(["chown", "-R", str(user), str(one.folder)], check=True)
    one.start(**({"user": user, "group": user, "extra_groups": []} if user else {}))
    wait_for_all(one)
    pid = one.process.pid
    with Load(one, counted, counted, counted_on_one_connection, slow, deferred, metrics, admin, resp) as load:
        one.upgrade(OTHER)
        wait_until(lambda: one.log_text().count("reloaded weir.yaml") == 1, "the reload")
        agent = one.wait_for_agent()
        assert one.running() and one.process.poll() is None
        one.upgrade(VERSION, before=OTHER)
        wait_until(lambda: one.log_text().count("reloaded weir.yaml") == 2, "the reload")
        one.wait_for_agent(agent)
        assert not one.running() and one.process.pid == pid
        before = collections.Counter(load.done)
        wait_until(lambda: all(load.done[job] > before[job] for job in before), "a request of each after it")
    print(dict(load.done))
    always(used(one) == load.done["counted"] + load.done["counted_on_one_connection"], dict(load.done))
    assert len(one.masters()) == 1
    one.signal(signal.SIGTERM)
    assert one.end() == 0 and one.nothing_left()
    assert "error" not in one.log_text(), one.log_text()


def test_without_other_modules_nginx_stays(installed):
    one = installed().start()
    master, workers = one.masters(), one.workers()
    with Load(one, counted):
        one.upgrade(OTHER, modules=False)
        one.wait_for_log("reloaded weir.yaml")
        assert one.masters() == master
        wait_until(lambda: not workers & one.workers(), "new workers")


def test_a_configuration_that_changed_at_the_same_time(installed):
    one = installed().start()
    other = free_port()
    with Load(one, counted):
        one.install(OTHER)
        one.change("limit: 2", "limit: 7")
        one.change(f'"127.0.0.1:{one.port}"', f'["127.0.0.1:{one.port}", "127.0.0.1:{other}"]')
        one.signal(signal.SIGUSR2)
        one.wait_for_log("has taken over")
        one.wait_for_log("reloaded weir.yaml")
        assert get(other, "/two").headers["X-RateLimit-Limit"] == "7"


def test_signals_all_at_once(installed):
    """Several upgrades, and a reload that is under way."""
    one = installed().start()
    one.install(OTHER)
    with Load(one, counted):
        for number in (signal.SIGHUP, signal.SIGUSR2, signal.SIGUSR2, signal.SIGHUP, signal.SIGUSR2):
            one.signal(number)
            time.sleep(0.05)
        one.wait_for_log("has taken over")
        one.wait_for_log("reloaded weir.yaml")
        one.signal(signal.SIGUSR2)
        one.wait_for_log(f"weir {OTHER} has taken over from weir {OTHER}")
    one.signal(signal.SIGTERM)
    assert one.end() == 0 and one.nothing_left()


def test_a_slow_request_ends_although_two_versions_follow(installed):
    one = installed().start()
    old = one.masters()
    with socket.create_connection(("127.0.0.1", one.port), timeout=20) as client:
        client.sendall(b"POST /counted HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 6\r\n\r\nabc")
        mine = iter(range(1000))  # requests by which this test looks
        wait_until(lambda: used(one) > next(mine), "the decision")
        for i, (version, before) in enumerate(((OTHER, VERSION), (VERSION, OTHER))):
            one.install(version)
            one.signal(signal.SIGUSR2)
            one.wait_for_log(f"weir {version} has taken over from weir {before}")
            one.wait_for_log("reloaded weir.yaml", i + 1)
        wait_until(lambda: len(one.masters()) == 2, "the end of the second master")
        assert old[0] in one.masters()
        client.sendall(b"def")
        assert b"200 OK" in client.recv(1000)
    wait_until(lambda: len(one.masters()) == 1, "the end of the first master")


# ---- What cannot take over ----

@pytest.mark.parametrize("what", ["garbage", "missing", "crash", "older", "module", "file"])
def test_what_does_not_work_changes_nothing(installed, what):
    one = installed().start()
    master = one.masters()
    with Load(one, counted):
        if what == "garbage":
            one.put("weir", b"\x7fELF garbage")
        elif what == "missing":
            (one.folder / "bin" / "weir").unlink()
        elif what == "crash":
            one.put("weir", b"#!/bin/sh\nkill -KILL $$\n")
        elif what == "older":  # knows nothing of a takeover
            one.put("weir", f"#!/bin/sh\ncase \"$*\" in *--takeover*) echo no option >&2; exit 2;; esac\nexec {WEIR} \"$@\"\n".encode())
        elif what == "module":
            one.install(OTHER)
            one.put("nginx/ngx_http_weir_module.so", b"garbage")
        else:
            one.install(OTHER)
            one.change("limit: 2", "limt: 2")
        one.signal(signal.SIGUSR2)
        one.wait_for_log(f"no upgrade: {one.program} cannot take over; weir {VERSION} goes on")
        assert one.masters() == master and "has taken over" not in one.log_text()
        if what == "file":
            one.change("limt: 2", "limit: 2")
        one.upgrade(OTHER)


def test_a_file_that_breaks_after_the_check(installed):
    """The new version has to live with it: nginx goes on with the configuration that it has."""
    one = everything(installed).start()
    wait_for_all(one)
    one.install(OTHER)
    program = (one.folder / "bin" / "weir").read_bytes()
    one.put("weir.real", program)
    # Breaks the file once the check is over, and then is the program.
    one.put("weir", f"""#!/bin/sh
if [ "$2" = --check ]; then
    {one.program}.real "$@" || exit
    cp weir.yaml good.yaml; sed -i 's/^workers/worker/' weir.yaml
    mv {one.program}.real {one.program}
    exit 0
fi
""".encode())
    with Load(one, counted, admin, deferred):
        one.signal(signal.SIGUSR2)
        one.wait_for_log("has taken over")
        one.wait_for_log("weir.yaml rejected; the previous configuration stays active")
        (one.folder / "good.yaml").rename(one.file)
        one.wait_for_log("reloaded weir.yaml")
    assert used(one) > 0


def new_master(one, *old):
    return wait_until(lambda: next(iter(set(one.masters()) - set(old)), 0), "the new master")


def test_a_new_master_that_dies(installed):
    one = installed().start()
    old = one.masters()
    one.install(OTHER)
    with Load(one, slow):  # counts of requests that the killed one's workers had are not certain
        one.signal(signal.SIGUSR2)
        os.kill(new_master(one, *old), signal.SIGKILL)
        one.wait_for_log("nginx did not start with the new weir.yaml; the previous one goes on")
        wait_until(lambda: one.masters() == old, "the end of the killed one")
        one.signal(signal.SIGHUP)
        one.wait_for_log("reloaded weir.yaml")
        wait_until(lambda: one.masters() and one.masters() != old, "another master")


def is_group(pid):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, 0)
        return True


def test_a_port_of_a_reload_that_failed_is_free_for_the_next_version(installed):
    one = installed().start()
    old = one.masters()
    other = free_port()
    one.install(OTHER)
    one.change(f'"127.0.0.1:{one.port}"', f'["127.0.0.1:{one.port}", "127.0.0.1:{other}"]')
    one.signal(signal.SIGUSR2)
    new = new_master(one, *old)
    os.kill(new, signal.SIGKILL)
    one.wait_for_log("nginx did not start with the new weir.yaml; the previous one goes on")
    wait_until(lambda: not is_group(new), "the end of its workers, which have the port, too")
    one.signal(signal.SIGUSR2)
    one.wait_for_log(f"weir {OTHER} has taken over from weir {OTHER}")
    one.wait_for_log("reloaded weir.yaml")
    assert get(other, "/two").status == 200


def test_an_old_master_that_dies_meanwhile(installed):
    """Once the new one has workers it takes its place."""
    one = installed().start()
    old = one.masters()
    one.install(OTHER)
    one.signal(signal.SIGUSR2)
    new = new_master(one, *old)
    wait_until(lambda: pathlib.Path(f"/proc/{new}/task/{new}/children").read_text().split(), "its workers")
    time.sleep(0.05)
    os.kill(old[0], signal.SIGKILL)
    one.wait_for_log("reloaded weir.yaml")
    assert one.masters() == [new] and one.get().status == 200


@pytest.mark.parametrize("when", ["check", "reload"])
def test_its_death_in_between_leaves_nothing(installed, when):
    one = installed().start()
    masters = one.masters()
    one.install(OTHER)
    one.signal(signal.SIGUSR2)
    if when == "reload":
        masters.append(new_master(one, *masters))
    one.signal(signal.SIGKILL)
    one.end()
    wait_until(lambda: not any(is_alive(pid) for pid in masters), "the end of nginx")
    one.start()
    assert one.get("/two").status == 200


def test_a_full_disk(installed):
    """The runtime directory cannot be written to: nginx goes on."""
    one = installed()
    one.inside = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=4m none /tmp && exec "$@"', "sh"]
    if os.geteuid() != 0 or subprocess.run([*one.inside, "true"]).returncode:
        pytest.skip("mounts need root")
    one.start()
    fill = pathlib.Path(f"/proc/{one.process.pid}/root/tmp/fill")
    one.install(OTHER)
    with Load(one, counted):
        with contextlib.suppress(OSError), open(fill, "wb", buffering=0) as out:
            while True:
                out.write(bytes(4096))
        one.signal(signal.SIGUSR2)
        one.wait_for_log("goes on")
        fill.unlink()
        one.signal(signal.SIGUSR2)
        one.wait_for_log("has taken over")
        one.wait_for_log("reloaded weir.yaml")


def test_another_size_of_the_segment_is_not_taken_silently(installed):
    one = installed().start()
    assert "keeps them" not in one.run("--check").stderr
    one.change("size: 1MiB", "size: 2MiB")
    one.wait_for_log("segment has 1024 KiB and keeps them: size is for a new file")
    one.wait_for_log("reloaded weir.yaml")
    assert "weir.yaml:3:18: warning: the segment" in one.run("--check").stderr


# ---- A restart under systemd ----

class Manager:
    """What systemd does for a service with FileDescriptorStoreMax=: keeps sockets, and passes them to the next process."""

    def __init__(self, one):
        self.one, self.kept, self.states = one, {}, []
        self.path = str(one.folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        os.chmod(self.path, 0o666)

    def receive(self):
        self.socket.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                text, fds, _, _ = socket.recv_fds(self.socket, 4096, 8)
                fields = dict(line.split("=", 1) for line in text.decode().splitlines())
                self.states.append(fields)
                if "FDSTORE" in fields:
                    assert len(fds) == 1 and ":" not in fields["FDNAME"] and fields["FDNAME"].isprintable()
                    if fields["FDNAME"] in self.kept:
                        os.close(fds[0])
                    else:
                        self.kept[fields["FDNAME"]] = fcntl.fcntl(fds[0], fcntl.F_DUPFD, 100)
                        os.close(fds[0])
                elif "FDSTOREREMOVE" in fields and fields["FDNAME"] in self.kept:
                    os.close(self.kept.pop(fields["FDNAME"]))

    def start(self):
        fds = list(self.kept.values())
        # LISTEN_PID is the pid of the process itself; its descriptors begin with 3.
        moves = "".join(f"exec {3 + i}<&{fd} {fd}<&-; " for i, fd in enumerate(fds))
        self.one.inside = ["bash", "-c", f'{moves} LISTEN_PID=$$ LISTEN_FDS={len(fds)} exec "$@"', "bash"]
        ready = len(self.states)
        self.one.start(env={**ENVIRONMENT, "NOTIFY_SOCKET": self.path}, pass_fds=fds)
        wait_until(lambda: self.receive() or any("READY" in state for state in self.states[ready:]), "READY=1")

    def close(self):
        self.socket.close()
        for fd in self.kept.values():
            os.close(fd)


def test_a_restart_under_systemd_refuses_nothing(installed):
    """The test stands for systemd, which does not run here: the protocol is that of sd_notify(3) and sd_listen_fds(3)."""
    one = everything(installed)
    manager = Manager(one)
    with contextlib.closing(manager):
        manager.start()
        wait_for_all(one)
        manager.receive()
        ports = (one.port, one.metrics, one.resp, one.admin)
        assert set(manager.kept) == {f"127.0.0.1_{port}" for port in ports}
        with Load(one, counted, slow, metrics, resp, admin) as load:
            for _ in range(2):
                one.signal(signal.SIGTERM)
                assert one.end() == 0
                manager.start()
            wait_for_all(one)
        assert used(one) == load.done["counted"]

        # A listener that is no longer wanted is not kept, nor one that the next start does not want.
        one.change(f"metrics: 127.0.0.1:{one.metrics}\n", "")
        one.wait_for_log("reloaded weir.yaml")
        manager.receive()
        assert f"127.0.0.1_{one.metrics}" not in manager.kept
        one.signal(signal.SIGTERM)
        assert one.end() == 0
        one.change(f'service: {{ resp: "127.0.0.1:{one.resp}" }}\n', "")
        manager.start()
        manager.receive()
        assert f"127.0.0.1_{one.resp}" not in manager.kept and f"127.0.0.1_{one.admin}" in manager.kept
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", one.resp))

        # Killed: what was in progress is cut off, but nobody is refused.
        one.signal(signal.SIGKILL)
        one.end()
        one.nothing_left()
        waiting = socket.create_connection(("127.0.0.1", one.port), timeout=20)
        manager.start()
        waiting.sendall(b"GET /two HTTP/1.0\r\n\r\n")
        assert b"200 OK" in waiting.recv(1000)
        waiting.close()


def test_a_stop_refuses_at_once(installed):
    """Without a manager that keeps the sockets nobody shall wait for a gateway that ends."""
    one = installed().start()
    asking = threading.Thread(target=lambda: one.get("/slow/2"))
    asking.start()
    wait_until(lambda: one.backend.requests, "the request")
    one.signal(signal.SIGTERM)

    def refused():
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", one.port)) != 0
    wait_until(refused, "the refusal", 1.5)
    assert one.process.poll() is None
    asking.join()
    assert one.end() == 0


def test_a_variable_of_somebody_else(installed):
    one = installed()
    done = subprocess.run([one.program, "serve", "weir.yaml"], cwd=one.folder, capture_output=True, text=True, timeout=20,
                          env={**ENVIRONMENT, "WEIR_TAKEOVER": '{"pid": 1, "master": 1}'})
    assert done.returncode == 1 and "WEIR_TAKEOVER does not describe" in done.stderr
    shutil.rmtree(one.folder, ignore_errors=True)
