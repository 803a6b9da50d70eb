"""weir doctor: each thing is broken for real, and its line is found."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading

import pytest

from gateway import wait_until
from ports import free_port
from redis_server import RedisServer
from served import ENVIRONMENT, WEIR, Backend, Served

YAML = """gateway: { listen: "127.0.0.1:@PORT@", upstreams: ["@BACKEND@"] }
metrics: 127.0.0.1:@METRICS@
admin: 127.0.0.1:@ADMIN@
state: @FOLDER@/state
segment: { path: @FOLDER@/segment, size: 1MiB }
store: @STORE@
workers: 1
rules:
  - { name: two, match: { path: /two }, limit: 2, window: 1h }
"""
AGENT = """admin: 127.0.0.1:@PORT@
state: @FOLDER@/state
segment: { path: @FOLDER@/segment, size: 1MiB }
hot_keys: 1MiB
rules:
  - { name: two, match: { path: /two }, limit: 2, window: 1h }
"""
PASSWORD = "a-password-of-the-store"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module", name="backend")
def backend_fixture():
    backend = Backend()
    yield backend
    backend.stop()


@pytest.fixture(scope="module", name="store")
def store_fixture():
    server = RedisServer(password=PASSWORD).start()
    yield server
    server.kill()
    shutil.rmtree(server.folder)


@pytest.fixture(name="host")
def host_fixture(backend, store):
    host = Served(YAML.replace("@ADMIN@", str(free_port())).replace("@STORE@", url(store)), backend)
    host.file.chmod(0o600)
    yield host
    host.remove()


def url(store, user="", password=PASSWORD):
    return f"redis://{user}:{password}@127.0.0.1:{store.port}"


def doctor(host, *before, env=None, code=None):
    """The findings: (level, check, message)."""
    done = subprocess.run([*before, WEIR, "doctor", "--json", "weir.yaml"], cwd=host.folder, capture_output=True,
                          text=True, timeout=60, check=False, env={**ENVIRONMENT, **(env or {})})
    assert PASSWORD not in done.stdout + done.stderr
    reply = json.loads(done.stdout)
    found = [(one["level"], one["check"], one["message"]) for one in reply["findings"]]
    wrong = any(level == "wrong" for level, _, _ in found)
    assert done.returncode == int(wrong) == int(not reply["ok"]), done.stderr
    assert code is None or done.returncode == code, found
    return found


def has(found, level, check, *texts):
    about = [one for one in found if one[1] == check]
    assert any(level == one[0] and all(text in one[2] for text in texts) for one in about), str(about)


def test_a_good_host_before_and_while_it_runs(host, backend):
    found = doctor(host, code=0)
    has(found, "ok", "ports", f"127.0.0.1:{host.port} is free")
    has(found, "ok", "agent", "neither weir serve nor its agent runs")
    host.start()
    wait_until(lambda: any(one[1] == "agent" and "runs" in one[2] and "process" in one[2] for one in doctor(host)),
               "the agent")
    found = doctor(host, code=0)
    for check in ("weir.yaml", "nginx", "ports", "agent", "upstreams", "segment", "memory", "state", "store", "limits"):
        has(found, "ok", check)
    assert not [one for one in found if one[0] == "wrong" or one[0] == "unknown"]
    has(found, "ok", "ports", f"127.0.0.1:{host.port}: weir (process {host.process.pid})")
    has(found, "ok", "upstreams", f"127.0.0.1:{backend.port} accepts")
    has(found, "ok", "store", "rights for weir:*")
    text = subprocess.run([WEIR, "doctor", "weir.yaml"], cwd=host.folder, capture_output=True, text=True, timeout=60,
                          check=True, env=ENVIRONMENT).stdout.splitlines()
    assert [line.split()[:2] for line in text] == [list(one[:2]) for one in found]  # one line a finding


def test_bad_files(host):
    host.change("limit: 2", "limt: 2")
    has(doctor(host, code=1), "wrong", "weir.yaml", "weir.yaml:9:", "did you mean 'limit'?")
    host.file.unlink()
    has(doctor(host, code=1), "wrong", "weir.yaml", "No such file", "weir doctor /etc/weir/weir.yaml", "weir init")
    for arguments in (["a", "b"], ["--jsn"]):
        assert subprocess.run([WEIR, "doctor", *arguments], capture_output=True, timeout=60).returncode == 2


def test_nginx_and_its_modules(host, tmp_path):
    has(doctor(host, env={"WEIR_MODULES": str(tmp_path)}, code=1), "wrong", "nginx", "ngx_http_weir_module.so")
    (tmp_path / "ngx_http_weir_module.so").write_text("not a module")
    has(doctor(host, env={"WEIR_MODULES": str(tmp_path)}, code=1), "wrong", "nginx", "ngx_http_weir_module.so")
    has(doctor(host, env={"WEIR_NGINX": "/nonexistent/nginx"}, code=1), "wrong", "nginx", "/nonexistent/nginx")
    assert not list(pathlib.Path(host.folder).glob("segment*"))  # it has changed nothing


def test_ports_of_others(host):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", host.port))
        taken.listen()
        has(doctor(host, code=1), "wrong", "ports", f"127.0.0.1:{host.port} is taken by", f"(process {os.getpid()})")
    host.change(f"127.0.0.1:{host.metrics}", f"192.0.2.77:{host.metrics}")
    has(doctor(host, code=1), "wrong", "ports", f"192.0.2.77:{host.metrics}", "Cannot assign")


def test_upstreams(host, backend):
    port = free_port()
    host.change(backend.url, f"http://127.0.0.1:{port}")
    has(doctor(host, code=0), "warning", "upstreams", f"127.0.0.1:{port} cannot be reached: Connection refused")


def test_the_store(host, store):
    client = store.client()
    host.change(url(store), f"redis://127.0.0.1:{free_port()}")
    has(doctor(host, code=1), "wrong", "store", "cannot be reached")
    current = host.file.read_text().split("store: ")[1].split("\n")[0]
    host.change(current, url(store, password="wrong"))
    has(doctor(host, code=1), "wrong", "store", "refuses user, password")
    host.change(url(store, password="wrong"), url(store, "weak"))
    client.acl_setuser("weak", enabled=True, passwords=[f"+{PASSWORD}"], keys=["weir:*"],
                       commands=["+@all", "-zadd", "-pexpire"])
    has(doctor(host, code=1), "wrong", "store", "weir:*: pexpire zadd;")
    client.acl_setuser("weak", enabled=True, reset_keys=True, keys=["other:*"], commands=["+@all"])
    has(doctor(host, code=1), "wrong", "store", "ermission", "key")
    client.acl_setuser("weak", enabled=True, reset_keys=True, keys=["weir:*"], commands=["+@all", "-evalsha"])
    has(doctor(host, code=1), "wrong", "store", "evalsha")
    # As the reference has it, and no more. The queue needs further rights.
    listed = pathlib.Path(__file__).parents[2].joinpath("docs/reference/store.md").read_text(encoding="utf-8")
    lines = listed.split("redis-cli ACL SETUSER weir on")[1].split("# deferred requests")
    commands = [word.strip("'") for word in lines[0].split() if word.startswith(("+", "'+"))]
    client.acl_setuser("weak", reset=True, enabled=True, passwords=[f"+{PASSWORD}"], keys=["weir:*"], commands=commands)
    has(doctor(host, code=0), "ok", "store", "rights for weir:*")
    host.write(host.file.read_text() + "queue: on\n")
    has(doctor(host, code=1), "wrong", "store", "keys {weir:queue}*", "NOPERM")
    words = lines[1].split("```")[0].split()
    commands += [word.strip("'") for word in words if word.startswith(("+", "'+"))]
    client.acl_setuser("weak", reset=True, enabled=True, passwords=[f"+{PASSWORD}"], keys=["weir:*", "{weir:queue}*"],
                       commands=commands)
    has(doctor(host, code=0), "ok", "store", "rights for {weir:queue}*")
    assert not [key for key in client.keys("*") if b"doctor" in key]


def test_a_silent_store(host, store):
    store.pause()
    try:
        has(doctor(host, code=1), "wrong", "store", "the store")
    finally:
        store.resume()


@pytest.mark.parametrize("time, level, text", [
    ("1000000000", "warning", "the clocks of this host and of redis:"),
    ("9223372036854775807", "wrong", "invalid reply of the store"),  # it would overflow the difference
    ("-1", "wrong", "invalid reply of the store"),
])
def test_the_time_of_a_store(host, store, time, level, text):
    reply = f"*4\r\n$0\r\n\r\n$0\r\n\r\n${len(time)}\r\n{time}\r\n$1\r\n0\r\n".encode()

    def talk(listener):
        with contextlib.suppress(OSError):
            while connection := listener.accept()[0]:
                while command := connection.recv(65536):
                    connection.sendall(reply if b"EVALSHA" in command else b"+PONG\r\n" if b"PING" in command else b"+OK\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=talk, args=(listener,), daemon=True).start()
        host.change(url(store), f"redis://127.0.0.1:{listener.getsockname()[1]}")
        has(doctor(host), level, "store", text)


def test_a_segment_that_was_removed_while_it_is_used(host):
    host.start()
    wait_until(lambda: any(one[:2] == ("ok", "segment") for one in doctor(host)), "the segment")
    (host.folder / "segment").unlink()
    has(doctor(host, code=1), "wrong", "segment", f"{host.folder}/segment was removed while process", "restart weir")


@root_only
def test_full_memory_and_disks(host, tmp_path):
    room = tmp_path / "shm"
    room.mkdir()
    host.change(f"{host.folder}/segment, size: 1MiB", f"{room}/segment, size: 64MiB")
    inside = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=4m none {room} && exec "$@"', "sh"]
    if subprocess.run([*inside, "true"], capture_output=True, timeout=60).returncode != 0:
        pytest.skip("no mount namespaces")
    has(doctor(host, *inside, code=1), "wrong", "weir.yaml", f"{room}/segment does not fit", "free")
    host.change("size: 64MiB", "size: 2GiB")
    inside = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=3g none {room} && exec "$@"', "sh"]
    has(doctor(host, *inside), "warning", "memory", "no huge pages for a segment of 2048 MiB")
    if subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True).stdout.strip() != "tmpfs":
        host.change("size: 2GiB", "size: 1MiB")
        has(doctor(host), "warning", "memory", "on a disk")


@root_only
def test_owners_and_permissions(host):
    (host.folder / "segment").write_bytes(b"")
    os.chmod(host.folder, 0o1777)
    os.chown(host.folder / "segment", 65534, 65534)
    has(doctor(host, code=1), "wrong", "weir.yaml", "segment", "nobody", "remove it")
    (host.folder / "segment").unlink()
    os.chmod(host.folder, 0o755)
    (host.folder / "state").mkdir(mode=0o700)
    os.chown(host.folder / "state", 65534, 65534)
    has(doctor(host, code=1), "wrong", "state", "is not writable for its user", "chown")
    (host.folder / "state" / "rules.db").write_bytes(b"")
    has(doctor(host, code=1), "wrong", "state", "rules.db belongs to root", "chown")


@root_only
def test_another_user_is_told_what_it_cannot_see(host):
    os.chmod(host.file, 0o644)
    host.start()
    wait_until(lambda: any("process" in one[2] for one in doctor(host) if one[1] == "agent"), "the agent")
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    found = doctor(host, *as_nobody)
    has(found, "unknown", "ports", f"127.0.0.1:{host.port} is in use, by a process that only root can look at")
    has(found, "unknown", "agent", "weir runs as the user with id 0")
    os.chmod(host.file, 0o600)
    has(doctor(host, *as_nobody, code=1), "wrong", "weir.yaml", "ermission denied")


@root_only
def test_a_state_folder_that_this_user_can_neither_make_nor_write(host):
    os.chmod(host.file, 0o644)
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    (host.folder / "own").mkdir()
    os.chown(host.folder / "own", 65534, 65534)
    host.change(f"{host.folder}/segment", f"{host.folder}/own/segment")
    has(doctor(host, *as_nobody, code=1), "wrong", "state", f"state cannot be made in {host.folder}: Perm", "set state to another path")
    with subprocess.Popen([*as_nobody, WEIR, "serve", "weir.yaml"], cwd=host.folder, env=ENVIRONMENT, stderr=subprocess.PIPE,
                          text=True) as weir:
        assert any(f"cannot create the state folder {host.folder}/state: Permission denied; set" in line for line in weir.stderr)
        weir.terminate()
    (host.folder / "state").mkdir()
    has(doctor(host, *as_nobody, code=1), "wrong", "state", "is not writable for this user", "set state to another path")


FAKE = """
import ctypes, fcntl, mmap, socket, sys, time
ctypes.CDLL(None).prctl(15, b"weir")  # PR_SET_NAME
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
lock = open(sys.argv[1] + ".observer", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
file = open(sys.argv[1] + " (deleted)", "w+b")
file.truncate(4096)
mapped = mmap.mmap(file.fileno(), 4096)
print("ready", flush=True)
time.sleep(600)
"""


@root_only
def test_a_process_of_another_user_is_not_believed_to_be_weir(host):
    """It has weir's name, a listener, the agent's lock, and maps a file with the name of a removed segment."""
    os.chmod(host.folder, 0o1777)
    fake = subprocess.Popen(["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", sys.executable, "-c", FAKE,
                             host.folder / "segment", str(host.port)], stdout=subprocess.PIPE)
    try:
        assert fake.stdout.readline() == b"ready\n"
        found = doctor(host, code=1)
        has(found, "wrong", "ports", f"127.0.0.1:{host.port} is taken by weir, of user 12345 (process {fake.pid})")
        has(found, "ok", "agent", "neither weir serve nor its agent runs")
        assert not [one for one in found if "was removed while" in one[2]]
    finally:
        fake.kill()
        fake.communicate(timeout=60)


def test_a_dead_agent():
    host = Served(AGENT)
    agent = None
    try:
        has(doctor(host, code=1), "wrong", "agent", "it does not run: start weir agent")
        with open(host.folder / "log", "wb") as log:
            agent = subprocess.Popen([WEIR, "agent", "weir.yaml"], cwd=host.folder, env=ENVIRONMENT, stderr=log)

        def running():
            return [one for one in doctor(host) if one[:2] == ("ok", "agent")]

        wait_until(running, "the agent")
        pid = int(running()[0][2].split()[1])
        os.kill(pid, signal.SIGSTOP)
        has(doctor(host, code=1), "wrong", "agent", f"process {pid} is stopped", f"kill -CONT {pid}")
        os.kill(pid, signal.SIGCONT)
        assert running()
        agent.kill()
        agent.wait(20)
        wait_until(lambda: not running(), "the agent's end")
        has(doctor(host, code=1), "wrong", "agent", "it does not run")
    finally:
        if agent and agent.poll() is None:
            agent.kill()
        shutil.rmtree(host.folder)


def test_weir_serve_without_its_agent(host):
    host.start()
    wait_until(lambda: any("process" in one[2] for one in doctor(host) if one[1] == "agent"), "the agent")
    message = [one[2] for one in doctor(host) if one[1] == "agent"][0]
    os.kill(host.process.pid, signal.SIGSTOP)  # it would start another
    try:
        os.kill(int(message.split()[1]), signal.SIGKILL)
        wait_until(lambda: any(one[:2] == ("wrong", "agent") for one in doctor(host)), "its end")
        has(doctor(host, code=1), "wrong", "agent", "weir serve runs without it")
    finally:
        os.kill(host.process.pid, signal.SIGCONT)
