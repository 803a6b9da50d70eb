"""Sidecar files of the segment: files of another user, and files that are truncated while everything runs."""
import json
import os
import re
import signal
import subprocess
import time

import pytest

from clients import get
from gateway import wait_until
from ports import free_port
from redis_server import RedisServer
from served import ENVIRONMENT, WEIR, Served

NOBODY = 65534
YAML = """
segment: { path: @FOLDER@/segment, size: 4MiB }
workers: 2
hot_keys: 2MiB
load: on
store: { url: "%s", sync_interval: 50ms }
gateway: { listen: 127.0.0.1:@PORT@, upstreams: ["@BACKEND@"] }
service: { http: 127.0.0.1:%d }
metrics: 127.0.0.1:@METRICS@
rules:
  - { name: api, key: "key:${header:x-key}", limit: 1000000, window: 1h, consistency: eventual }
"""
ENDINGS = (".hot", ".denials", ".load", ".ledger", ".keys", ".history", ".reservations")


@pytest.fixture
def store():
    server = RedisServer().start()
    yield server
    server.remove()


@pytest.fixture
def everything(backend, store):
    """A weir serve with every kind of sidecar file."""
    made = []

    def make(start=True):
        one = Served("", backend)
        one.http = free_port()
        one.write(YAML % (store.url(), one.http))
        made.append(one)
        if not start:
            return one
        one.start()
        wait_until(lambda: all((one.folder / f"segment{ending}").exists() for ending in ENDINGS), "all files")
        return one
    yield make
    for one in made:
        one.remove()


def use(one, count=200):
    """Requests and reservations, in both workers."""
    for i in range(count):
        assert get(one.port, "/", headers={"X-Key": f"k{i % 7}"}).status == 200
    for i in range(20):
        body = json.dumps({"attributes": {"path": "/", "header:x-key": "k"}, "cost": 1, "expires_s": 1}).encode()
        assert get(one.http, "/v1/reserve", method="POST", body=body,
                   headers={"Content-Type": "application/json"}).status == 200


def test_files_that_do_not_fit(everything, tmp_path):
    """--check names the first file that does not fit and how much is missing, and where it is content, all of them fit."""
    one = everything(start=False)
    small = tmp_path / "small"
    small.mkdir()
    one.change(f"path: {one.folder}/segment", f"path: {small}/segment")
    needed = []
    for kib in (100, 4100, 6000, 6152, 7176, 8124, 8230, 16024, 16624, 1 << 16):
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "weir-test", small],
                          capture_output=True).returncode != 0:
            pytest.skip("mounts nothing here")
        try:
            check = one.run("--check")
            assert not list(small.iterdir())
            if check.returncode == 0:
                one.start()
                use(one)
                wait_until(lambda: all((small / f"segment{ending}").exists() for ending in ENDINGS), "all files")
                time.sleep(1)
                assert "space" not in one.log_text() and "does not fit" not in one.log_text()
                one.signal(signal.SIGTERM)
                assert one.end() == 0
            else:
                found = re.search(rf"error: {small}/segment(\S*) does not fit: it needs (\d+) KiB, and {small} has "
                                  r"(\d+) KiB left for it; free (\d+) KiB", check.stderr)
                assert found, check.stderr
                assert int(found[2]) - int(found[3]) == int(found[4]) and one.run().returncode == 1
                needed.append(found[1])
        finally:
            subprocess.run(["umount", small], check=True)
    assert needed == ["", ".hot", ".hot", ".denials", ".load", ".ledger", ".keys", ".reservations", ".history"] and check.returncode == 0


@pytest.mark.parametrize("length", (0, 100, 8192))
def test_files_cut_short_under_gateway_and_agent(everything, length):
    """No process exits, requests get replies, the loss of each file is logged, and a reload creates it again."""
    one = everything()
    use(one)
    agent, workers = one.wait_for_agent(), one.workers()
    sizes = {ending: (one.folder / f"segment{ending}").stat().st_size for ending in ENDINGS}
    for ending in ENDINGS:
        os.truncate(one.folder / f"segment{ending}", length)
    end = time.monotonic() + 3.5  # the agent writes its history each second, and the level each 100 ms
    while time.monotonic() < end:
        use(one)
        time.sleep(0.1)
    assert one.agent_pid() == agent and one.workers() == workers
    output = one.log_text()
    assert "killed by signal" not in output and "exited on signal" not in output
    assert "segment.history was truncated; created again" in output
    # Those whose first page is still there are only missed where something beyond it is needed.
    wanted = ("hot keys are not sampled (.hot)", "the load level is 0 (.load)", "eventual rules act as if",
              "reservations expire only in the worker") if length < 8192 else ()
    for what in wanted:
        assert what in output, output
        assert output.count(what) <= 4, output  # once in each of two workers and the agent's two parts
    one.signal(signal.SIGHUP)
    one.wait_for_log("reloaded")
    one.wait_for_agent(agent)
    use(one)
    wait_until(lambda: all((one.folder / f"segment{ending}").stat().st_size == size for ending, size in sizes.items()),
               "files of their full size")
    before = one.log_text()
    use(one)
    time.sleep(1.5)
    assert one.log_text() == before


def test_files_of_another_user(everything):
    """Created by another user before the first start, as is possible in /dev/shm."""
    if os.geteuid() != 0:
        pytest.skip("needs another user's file")
    one = everything(start=False)
    one.folder.chmod(0o1777)
    for ending in (".hot", ".denials", ".load", ".history", ".observer", ".load.lock", ".hosts.new"):
        path = one.folder / f"segment{ending}"
        path.write_bytes(b"")
        os.chown(path, NOBODY, -1)
    os.unlink(one.folder / "segment.hosts.new")
    os.mkfifo(one.folder / "segment.hosts.new")  # a writer would wait for a reader for ever
    one.start()
    use(one)
    wait_until(lambda: (one.folder / "segment.hosts").exists(), "the list of hosts")
    output = one.log_text()
    for ending, off in ((".hot", "hot keys are not sampled"), (".denials", "denials are not recorded"),
                        (".load", "the load level is not known"), (".observer", "no history is recorded")):
        line = next(line for line in output.splitlines() if f"segment{ending}" in line and off in line)
        assert "nobody (uid 65534)" in line and "remove it" in line
    assert (one.folder / "segment.hot").stat().st_size == 0  # and nothing was written into it
    # Once they are removed, a reload has all of it.
    for ending in (".hot", ".denials", ".load", ".history", ".observer", ".load.lock"):
        os.unlink(one.folder / f"segment{ending}")
    one.signal(signal.SIGHUP)
    one.wait_for_log("reloaded")
    wait_until(lambda: all((one.folder / f"segment{ending}").exists() for ending in ENDINGS), "all files")
    assert all((one.folder / f"segment{ending}").stat().st_uid == 0 for ending in ENDINGS)


@pytest.mark.parametrize("ending", (".ledger", ".reservations"))
def test_files_that_decide_must_be_ours(everything, ending):
    """Without its ledger an eventual limit would be each host's own: it does not start, and reports the file's owner."""
    if os.geteuid() != 0:
        pytest.skip("needs another user's file")
    one = everything(start=False)
    one.folder.chmod(0o1777)
    path = one.folder / f"segment{ending}"
    path.write_bytes(b"x" * 100)
    os.chown(path, NOBODY, -1)
    done = one.run()
    assert done.returncode == 1
    line = next(line for line in done.stderr.splitlines() if f"segment{ending}" in line)
    assert "nobody (uid 65534)" in line and "remove it" in line, done.stderr
    assert path.read_bytes() == b"x" * 100


def test_a_command_of_another_user_reads_no_planted_file(everything):
    """weir top by root, with a history of another user."""
    if os.geteuid() != 0:
        pytest.skip("needs another user's file")
    one = everything()
    one.folder.chmod(0o1777)
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    os.chown(one.folder / "segment.history", NOBODY, -1)
    shown = json.loads(subprocess.run([WEIR, "top", "--once", "--json", "--interval", "200ms", one.file], timeout=60,
                                      capture_output=True, text=True, env=ENVIRONMENT, check=True).stdout)
    assert shown["history"] is False
