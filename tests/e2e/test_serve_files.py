"""weir serve: files that are refused and why, and looking without running."""
import json
import os
import pathlib
import pty
import pwd
import re
import select
import shutil
import signal
import socket
import subprocess
import time

import pytest
import requests

from clients import get, in_time
from gateway import NGINX, wait_until
from ports import free_ports_in_a_row
from served import ENVIRONMENT, WEIR, certificate, stale_folders
from serving import HEAD, RULES


# ---- Bad files ----

BAD = [
    (HEAD + "rules: missing.d\n", "weir.yaml:7:8: error: the rules @FOLDER@/missing.d cannot be read: No such file"),
    (HEAD + RULES.replace("limit", "limt"), "weir.yaml:10:5: error: "),
    (HEAD + RULES.replace("window: 1h", "window: 1 hour"), "weir.yaml:11:13: error: "),
    (HEAD + "rules: []\nrules_db: sqlite:/x\n", "weir.yaml:8:1: error: rules_db is for the rules service"),
    (HEAD.replace("[@BACKEND@]", "[127.0.0.1:9000]") + RULES, "weir.yaml:3:15: error: an upstream must be a URL"),
    (HEAD.replace("listen: ", "listen: { address: 1, tls: { certificate: no.pem, key: no.key } } #") + RULES,
     "weir.yaml:2:45: error: the certificate @FOLDER@/no.pem cannot be read: No such file"),
    (HEAD.replace("@FOLDER@/segment", "/etc/hostname") + RULES,
     "weir.yaml:5:18: error: the segment /etc/hostname: the file is not a weir segment"),
    (HEAD.replace("@FOLDER@/segment", "/nonexistent/segment") + RULES,
     "weir.yaml:5:18: error: the segment cannot be made in /nonexistent: No such file"),
    (HEAD.replace("@FOLDER@/segment", "/dev/shm/" + 300 * "s") + RULES,
     "weir.yaml:5:18: error: the segment /dev/shm/" + 300 * "s" + " cannot be reached: File name too long"),
    (HEAD.replace("1MiB", "1048576GiB") + RULES, "weir.yaml:5:18: error: @FOLDER@/segment does not fit: it needs 1099511627776 KiB"),
    (HEAD + RULES + "log: { path: /nonexistent/log }\n", "weir.yaml:12:14: error: the log /nonexistent/log cannot be"),
    (HEAD + RULES + "denied_log: /tmp\n", "weir.yaml:12:13: error: the log of denied requests /tmp is a directory"),
    (HEAD.replace("listen: 127.0.0.1", "listen: 192.0.2.77") + RULES, "this machine has no address 192.0.2.77"),
    ("gateway: [\n", "weir.yaml:2:1: error: "),
]


@pytest.mark.xdist_group("folders")  # and not beside a test that leaves one behind
@pytest.mark.parametrize("yaml, message", BAD)
def test_bad_files(serve, yaml, message):
    one = serve(yaml, start=False)
    for _ in range(3):  # what it leaves behind it leaves each time; somebody else's that is being made or was killed, hardly
        before = stale_folders()
        done = one.run()
        assert done.returncode == 1 and done.stdout == ""
        assert message.replace("@FOLDER@", str(one.folder)) in done.stderr
        left = stale_folders() - before
        if not left:
            break
        time.sleep(0.5)
    assert not left
    assert not (one.folder / "segment").exists()


def test_folders_that_nginx_would_misread(serve):
    """Whatever the folder's name, it stays one; only a dollar sign is not possible in nginx.conf."""
    one = serve(start=False)
    odd = one.folder / "a;b {c} \"d\" 'e' \\ #"
    (odd / "x$uri").mkdir(parents=True)
    text = one.file.read_text().replace(f"{one.folder}/segment", "segment") + "denied_log: denied.log\n"
    for folder, code in ((odd, 0), (odd / "x$uri", 1)):
        (folder / "weir.yaml").write_text(text)
        done = subprocess.run([WEIR, "serve", "--check"], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == code, done.stderr
    assert re.search(r"weir\.yaml:5:18: error: path .*the folder of weir\.yaml has some", done.stderr), done.stderr


def test_certificates_that_are_no_files(serve):
    """nginx would wait for a writer of a pipe."""
    one = serve(start=False)
    os.mkfifo(one.folder / "pipe")
    one.change("gateway:\n", "gateway:\n  tls: { certificate: pipe, key: . }\n")
    done = one.run()
    assert done.returncode == 1
    assert re.search(r"weir\.yaml:2:23: error: the certificate .*pipe is not a file", done.stderr), done.stderr
    assert re.search(r"weir\.yaml:2:34: error: the key .* is not a file", done.stderr), done.stderr


def test_what_only_nginx_finds(serve, tmp_path):
    tls, other = certificate(tmp_path), certificate(tmp_path, "other")
    one = serve(HEAD.replace("gateway:\n", f"gateway:\n  tls: {{ certificate: {tls[0]}, key: {other[1]} }}\n") + RULES,
                start=False)
    for arguments in ((), ("--check",)):
        done = one.run(*arguments)
        assert done.returncode == 1
        assert re.search(r"weir: error: weir\.yaml:2:\d+: nginx: .*key values mismatch", done.stderr), done.stderr


def test_an_upstream_without_an_address(serve):
    one = serve(HEAD.replace("[@BACKEND@]", "['http://no-such-host.invalid:1']") + RULES, start=False)
    done = one.run("--check")
    assert done.returncode == 1
    assert "weir.yaml:3:15: no host is known by the name of the upstream no-such-host.invalid:1" in done.stderr


def test_a_port_in_use(serve):
    one = serve(start=False)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", one.port))
        taken.listen()
        done = one.run()
    assert done.returncode == 1
    assert f"weir.yaml:2:11: error: 127.0.0.1:{one.port} is in use already" in done.stderr
    assert f"sport = :{one.port}" in done.stderr


def test_no_nginx_and_no_module(serve):
    one = serve(start=False)
    for name, value, message in (("WEIR_NGINX", "/nonexistent", "nginx was not found at /nonexistent"),
                                 ("WEIR_NGINX", "/bin/false", '/bin/false -v prints no version of nginx, but "" (exit code 1)'),
                                 ("WEIR_MODULES", "/nonexistent", "ngx_http_weir_module.so was not found")):
        done = subprocess.run([WEIR, "serve", "weir.yaml"], cwd=one.folder, env={**ENVIRONMENT, name: value},
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and message in done.stderr
    relative = os.path.relpath(ENVIRONMENT["WEIR_MODULES"], one.folder)
    done = subprocess.run([WEIR, "serve", "--check"], cwd=one.folder, env={**ENVIRONMENT, "WEIR_MODULES": relative},
                          capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_module_of_another_nginx(serve, tmp_path):
    one = serve(start=False)
    (tmp_path / "ngx_http_weir_module.so").write_bytes(b"\x7fELF nonsense")
    done = subprocess.run([WEIR, "serve", "weir.yaml"], cwd=one.folder,
                          env={**ENVIRONMENT, "WEIR_MODULES": str(tmp_path)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "ngx_http_weir_module.so cannot be loaded" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_without_privileges(serve):
    one = serve(start=False)
    one.folder.chmod(0o777)
    one.start(user="nobody", group="nogroup", extra_groups=[])
    assert one.runtime_dir.stat().st_mode & 0o777 == 0o700
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    assert one.get("/", method="POST", body=b"x" * 2000000).status == 200
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    assert "error" not in one.log_text() and "warning" not in one.log_text()
    assert one.nothing_left()
    one.write(one.file.read_text().replace(f"127.0.0.1:{one.port}", "127.0.0.1:80"))
    done = one.run(user="nobody", group="nogroup", extra_groups=[])
    assert done.returncode == 1 and ("no permission to listen" in done.stderr or "in use" in done.stderr)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's workers are somebody else")
def test_rules_that_the_workers_cannot_read(serve):
    one = serve(HEAD + "rules: rules.yaml\n", start=False)
    rules = one.folder / "rules.yaml"
    rules.write_text(RULES)
    rules.chmod(0o600)
    done = one.run("--check")
    assert done.returncode == 0
    assert "weir.yaml:7:8: warning: the workers run as www-data, which cannot read" in done.stderr


@pytest.mark.parametrize("inside", [True, False], ids=["in weir.yaml", "in a file"])
def test_rules_that_want_a_store(serve, inside):
    """Without a store the limits are each host's own: reported before the start, and when it runs."""
    rules = RULES + "    consistency: strict\n"
    one = serve(HEAD + (rules if inside else "rules: rules.yaml\n"), start=False)
    (one.folder / "rules.yaml").write_text(rules)
    place = "weir.yaml:12" if inside else f"{one.folder}/rules.yaml:6"
    wanted = f"{place}:18: warning: consistency: strict acts as local: there is no store"
    done = one.run("--check")
    assert done.returncode == 0 and wanted in done.stderr, done.stderr
    one.start()
    one.wait_for_log("consistency: strict acts as local: there is no store")
    (one.folder / "weir.yaml").write_text((one.folder / "weir.yaml").read_text() + "store: redis://127.0.0.1:1\n")
    done = one.run("--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_rules_that_the_host_cannot_serve(serve):
    """A gateway alone sets no attributes but those of identity; the segment has the size of weir.yaml."""
    rules = """rules:
  - name: user
    key: user:${user_id}
    limit: 1000
    window: 1h
    algorithm: sliding_window_log
"""
    one = serve(HEAD + rules, start=False)
    done = one.run("--check")
    assert done.returncode == 0
    assert 'weir.yaml:9:17: warning: identity has no source of user_id: no request is limited by "user"; ' in done.stderr
    assert 'weir.yaml:8:5: warning: a segment of ' in done.stderr and ' keys of "user" at their limit, ' in done.stderr


def test_a_folder_is_no_nginx(serve):
    """Who puts weir's build folder into the PATH has a folder of nginx's name in it."""
    one = serve(start=False)
    (one.folder / "bin" / "nginx").mkdir(parents=True)
    environment = {**ENVIRONMENT, "PATH": f"{one.folder}/bin:{ENVIRONMENT['PATH']}"}
    environment.pop("WEIR_NGINX", None)
    done = subprocess.run([WEIR, "serve", "--check", "weir.yaml"], cwd=one.folder, env=environment, capture_output=True,
                          text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# ---- Looking without running ----

def test_check_changes_nothing(serve):
    one = serve(start=False)
    done = one.run("--check")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("weir.yaml is good: 1 rule, 1 listener, 1 route\n"
                           "counts on each host: every rule, as there is no store\n")
    assert [path.name for path in one.folder.iterdir()] == ["weir.yaml"]
    one.start()
    assert one.run("--check").returncode == 0  # beside one that runs


MUCH = """
service: { grpc: 127.0.0.1:1, http: 127.0.0.1:2, resp: 127.0.0.1:3, access: { tokens: [a-token-of-clients], password: of-clients } }
admin: { listen: 127.0.0.1:4, rules: database }
store: redis://127.0.0.1:5
state: "@FOLDER@/state"
load: on
hot_keys: 1MiB
denied_log: { path: "@FOLDER@/denied", hash_keys: true }
"""


@pytest.mark.parametrize("more", ["", MUCH], ids=["little", "much"])
def test_the_printed_configuration(serve, tmp_path, more):
    one = serve(HEAD + "rules: rules.yaml\n" + more, start=False)
    (one.folder / "rules.yaml").write_text(RULES)
    one.file.chmod(0o600)  # it has secrets
    done = one.run("--print-nginx")
    assert (done.returncode, done.stderr) == (0, "")
    if more:  # rules of a rules service are where it writes them
        path = re.search(r'weir_rules "([^"]+)"', done.stdout)[1]
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copy(one.folder / "rules.yaml", path)
    conf = tmp_path / "nginx.conf"
    conf.write_text(done.stdout)
    tested = subprocess.run([NGINX, "-t", "-p", str(tmp_path), "-c", str(conf), "-e", "stderr"], env=ENVIRONMENT,
                            capture_output=True, text=True, timeout=60)
    assert tested.returncode == 0 and "test is successful" in tested.stderr, tested.stderr
    for part in ("proxy_http_version 1.1;", "server_tokens off;", "access_log off;", "keepalive 64;",
                 f"listen 127.0.0.1:{one.port}; # weir.yaml:2:11"):
        assert part in done.stdout


def test_init(tmp_path):
    def weir(*arguments):
        return subprocess.run([WEIR, *arguments], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True,
                              timeout=60)
    assert weir("init").returncode == 0
    checked = weir("serve", "--check")
    assert (checked.returncode, checked.stderr) == (0, "")
    (tmp_path / "weir.yaml").write_text("mine\n")
    refused = weir("init")
    assert refused.returncode == 1 and "--force" in refused.stderr
    assert (tmp_path / "weir.yaml").read_text() == "mine\n"
    assert weir("init", "--force").returncode == 0
    assert weir("init", "other.yaml").returncode == 0
    assert (tmp_path / "other.yaml").read_text() == (tmp_path / "weir.yaml").read_text() != "mine\n"
    assert weir("init", "/nonexistent/x.yaml").returncode == 1
    assert weir("serve", "--chek").returncode == 2 and weir("serve", "a", "b").returncode == 2
    assert weir("serve", "absent.yaml").returncode == 1


def demo(port, *arguments, stdout):
    return subprocess.Popen([WEIR, "serve", "--demo", "--port", str(port), *arguments], env=ENVIRONMENT, stdout=stdout,
                            stderr=subprocess.PIPE, text=True, start_new_session=True)


def text_until(descriptor, end):
    """What is printed up to a text, within a minute."""
    text, until = "", time.monotonic() + 60
    while end not in text:
        ready, _, _ = select.select([descriptor], [], [], max(0, until - time.monotonic()))
        assert ready, text
        text += os.read(descriptor, 4096).decode()
    return text


def stopped(process):
    """Ends a demo. Its log."""
    process.send_signal(signal.SIGINT)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0, log
    return log


def demo_link(text, port, file):
    """The login link that the demo printed; one of the command's if weir was built without npm and has no dashboard."""
    printed = re.search(rf"http://127\.0\.0\.1:{port + 2}/#login=([\w-]{{40,}})", text)
    if printed:
        return printed[1]
    assert "Dashboard:  none" in text, text
    done = subprocess.run([WEIR, "token", "link", "me", "--role", "operator", "--json", "--file", file], env=ENVIRONMENT,
                          capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)["link"]


def test_the_demo_logs_in_by_a_link_on_a_terminal():
    port = free_ports_in_a_row(4)
    terminal, end = pty.openpty()
    process = demo(port, "--traffic", stdout=end)
    try:
        text = text_until(terminal, "Ctrl-C stops everything")
        assert text.count("curl ") == 2
        folder = re.search(r"removes (/\S+weir-demo-\w+)\.", text)[1]
        link = demo_link(text, port, f"{folder}/weir.yaml")
        session = f"http://127.0.0.1:{port + 2}/v1/session"
        first, second = (requests.post(session, json={"link": link}, timeout=20) for _ in range(2))
        assert (first.status_code, first.json()["role"], second.status_code) == (201, "operator", 401)
        assert requests.get(session, cookies=first.cookies, timeout=20).status_code == 200
        assert get(port, "/api/items", headers={"X-User-Id": "lin"}).headers["X-RateLimit-Remaining"] == "4"
        allowed = r'weir_decisions_total{[^}]*rule="user-api"[^}]*decision="allow"[^}]*} [1-9]\d'
        wait_until(lambda: re.search(allowed, requests.get(f"http://127.0.0.1:{port + 1}/metrics", timeout=20).text),
                   "requests of its own")
        again = subprocess.run([WEIR, "serve", "--demo", "--port", str(port)], env=ENVIRONMENT, capture_output=True,
                               text=True, timeout=60, check=False)
        assert again.returncode == 1 and "in use" in again.stderr and "--port" in again.stderr and not again.stdout
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        users = [re.search(r"Uid:\s+(.*)", pathlib.Path(f"/proc/{one}/status").read_text())[1].split() for one in children]
        nobody = [str(pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.geteuid())] * 4
        assert sorted(users).count(nobody) >= 2, users  # the API and the traffic; besides, the gateway's supervisor
        assert all("NoNewPrivs:\t1" in pathlib.Path(f"/proc/{one}/status").read_text() for one in children)
        log = stopped(process)
        wait_until(lambda: not any(pathlib.Path(f"/proc/{one}").exists() for one in children), "the end of its processes")
        assert link not in log and "stopped" in log
        assert not pathlib.Path(folder).exists()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        os.close(terminal)
        os.close(end)


def test_the_demo_prints_no_link_into_a_file():
    port = free_ports_in_a_row(4)
    process = demo(port, stdout=subprocess.PIPE)
    try:
        text = text_until(process.stdout.fileno(), "Ctrl-C stops everything")
        assert "#login=" not in text
        file = re.search(r"why --segment (\S+)", text)[1]
        assert f"token link me --role operator --file {file}" in text or "Dashboard:  none" in text
        made = subprocess.run([WEIR, "token", "link", "me", "--role", "viewer", "--file", file], env=ENVIRONMENT,
                              capture_output=True, text=True, timeout=60, check=True)
        link = made.stdout.strip().split("#login=")[1]
        done = requests.post(f"http://127.0.0.1:{port + 2}/v1/session", json={"link": link}, timeout=20)
        assert (done.status_code, done.json()["who"], done.json()["role"]) == (201, "me", "viewer")
        assert in_time(lambda: [get(port, f"/hello/{i}").status for i in range(3)], 0.9) == [200, 200, 429]
        assert link not in stopped(process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert not pathlib.Path(file).exists()


def test_the_demo_removes_what_a_killed_one_left():
    port = free_ports_in_a_row(4)
    processes = []
    try:
        folders = []
        for _ in range(2):
            processes.append(demo(port, stdout=subprocess.PIPE))
            text = text_until(processes[-1].stdout.fileno(), "Ctrl-C stops everything")
            folders.append(pathlib.Path(re.search(r"removes (/\S+weir-demo-\w+)\.", text)[1]))
            if len(folders) == 1:
                processes[0].kill()
                processes[0].wait(20)
                wait_until(lambda: not is_open(port) and not is_open(port + 2), "the end of the others")
                assert folders[0].exists()
                time.sleep(2.1)  # a younger folder may be one that is just being made
        assert not folders[0].exists() and folders[1].exists()
        stopped(processes[1])
        assert not folders[1].exists()
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def is_open(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_wrong_command_lines_of_the_demo():
    for arguments in (["--demo", "weir.yaml"], ["--demo", "--check"], ["--traffic"], ["--port", "8090"],
                      ["--demo", "--port", "80"], ["--demo", "--port", "x"]):
        done = subprocess.run([WEIR, "serve", *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2 and done.stderr.startswith("weir serve: "), arguments
