"""What runs as whom when root starts weir serve or weir agent: docs/reference/serve.md, "Users and privileges"."""
import contextlib
import json
import os
import pathlib
import pwd
import random
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import tempfile

import pytest

from controlled import ADMIN, HEAD, RULES, Host, weir
from gateway import wait_until
from ports import free_port
from queued import wait_until_queue_answers
from redis_server import RedisServer
from served import ENVIRONMENT, PRELOAD, WEIR, Backend, certificate

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has privileges to drop")

AGENT = "daemon"  # a user that every machine has, and that is not the workers'
UID, GID = pwd.getpwnam(AGENT).pw_uid, pwd.getpwnam(AGENT).pw_gid
OTHER_UID = 2  # neither root nor the agent's
OWN = HEAD + f"agent_user: {AGENT}\n"
# What weir serve itself and nginx's master may keep: see weir__privilege_limit.
KEPT = {"chown": 0, "dac_override": 1, "dac_read_search": 2, "fowner": 3, "kill": 5, "setgid": 6, "setuid": 7, "setpcap": 8,
        "net_bind_service": 10, "sys_resource": 24}


def status(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.split() for name, value in (line.split(":", 1) for line in lines)}


def is_unprivileged(pid, uid=UID, gid=GID):
    seen = status(pid)
    assert seen["Uid"] == [str(uid)] * 4 and seen["Gid"] == [str(gid)] * 4 and "0" not in seen["Groups"]
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(seen[kind][0], 16) == 0, kind
    assert seen["NoNewPrivs"] == ["1"] and seen["Seccomp"] == ["2"]
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
    assert next(line for line in limits.splitlines() if line.startswith("Max core file size")).split()[4:6] == ["0", "0"]
    return True


@pytest.fixture
def made():
    things = []
    yield lambda thing: things.append(thing) or thing
    for thing in reversed(things):
        (thing.stop if isinstance(thing, Backend) else thing.remove)()


@pytest.fixture
def host(made):
    backend = made(Backend())
    return lambda yaml: made(Host(yaml, backend))


def private(path, text=None):
    """Only root can read it."""
    if text is not None:
        path.write_text(text)
    os.chown(path, 0, 0)
    path.chmod(0o600)
    return path


def low_port():
    """An unused port below 1024, chosen at random, as tests run concurrently."""
    for port in random.sample(range(600, 1024), 100):
        with contextlib.closing(socket.socket()) as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    pytest.skip("no free port below 1024")


def test_the_agent_has_a_user_of_its_own_and_no_rights(host):
    one = host(OWN + ADMIN + RULES).begin()
    agent = one.wait_for_agent()
    assert is_unprivileged(agent)
    # What stays root keeps a few capabilities, and so does nginx's master; the workers are the workers' user.
    for pid in (one.process.pid, one.group):
        seen = status(pid)
        assert seen["Uid"] == ["0"] * 4 and seen["NoNewPrivs"] == ["1"]
        bounding = int(seen["CapBnd"][0], 16)
        assert bounding & ~sum(1 << bit for bit in KEPT.values()) == 0 and int(seen["CapEff"][0], 16) & ~bounding == 0
    for worker in one.workers():
        # nginx forks a worker as root, which changes its user before it serves.
        wait_until(lambda: status(worker)["Uid"][0] != "0", f"the user of worker {worker}")
        assert status(worker)["Uid"][0] != str(UID) and int(status(worker)["CapEff"][0], 16) == 0
    # It works: what is published is in force, what is mapped is root's, what it keeps is its own.
    assert one.publish("two", 1) == 200
    for file in one.folder.glob("segment*"):
        assert file.stat().st_uid == 0, file
    for file in (one.folder / "state", one.folder / "state/rules.db", one.folder / "state/published.yaml"):
        assert file.stat().st_uid == UID, file
    wait_until((one.folder / "segment.hosts").exists, "the list of hosts")
    hosts = (one.folder / "segment.hosts").stat()
    assert (hosts.st_mode & 0o777, hosts.st_gid) == (0o640, int(status(next(iter(one.workers())))["Gid"][0]))
    # Neither agent nor nginx has the terminal that weir serve was started from.
    for pid in (agent, one.group):
        assert os.getsid(pid) == pid
    for worker in one.workers():
        assert os.getsid(int(worker)) == one.group
    # kill -9: the next one is no more than the first was.
    one.kill_agent()
    assert is_unprivileged(one.wait_for_agent(agent))
    one.wait_for_admin()
    one.signal(signal.SIGHUP)
    one.wait_for_log("reloaded")

    def unprivileged_after_the_reload():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError): # the reload replaces the agent
            return one.request("GET", "/healthz")[0] == 200 and is_unprivileged(one.wait_for_agent(agent))

    wait_until(unprivileged_after_the_reload, "the agent after a reload")


def test_without_a_user_of_its_own_it_shares_the_workers(host):
    one = host(HEAD + "user: nobody\n" + ADMIN + RULES).begin()
    expected = pwd.getpwnam("weir" if has_user("weir") else "nobody")
    assert is_unprivileged(one.wait_for_agent(), expected.pw_uid, expected.pw_gid)


def has_user(name):
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(name)


def test_a_low_port_and_a_key_that_only_root_can_read(host):
    one = host(OWN + RULES)
    one.admin = low_port()
    paths = [pathlib.Path(path) for path in certificate(one.folder)]
    private(paths[1])
    one.context = ssl.create_default_context(cafile=str(paths[0]))
    one.write(one.file.read_text() + f'admin: {{ listen: "127.0.0.1:{one.admin}", rules: database, tls: {{ certificate: {paths[0]}, key: {paths[1]} }} }}\n')
    one.begin()
    first = one.wait_for_agent()
    assert is_unprivileged(first)
    # A renewed certificate is taken up: the process that stayed root reads it.
    certificate(one.folder, "renewed")
    for kind in ("pem", "key"):
        private(one.folder / f"renewed.{kind}").rename(one.folder / f"server.{kind}")
    one.context = ssl.create_default_context(cafile=str(paths[0]))
    wait_until(lambda: one.request("GET", "/healthz")[0] == 200, "the renewed certificate")
    assert is_unprivileged(one.wait_for_agent(first))


def test_a_low_port_that_is_taken_when_the_agent_starts(host):
    one = host(OWN + ADMIN + RULES)
    one.change(f'"127.0.0.1:{one.admin}"', f'"127.0.0.1:{(port := low_port())}"')
    one.admin = port
    with contextlib.closing(socket.socket()) as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        one.start()
        one.wait_for_log("Address already in use")
    one.wait_for_admin()
    assert is_unprivileged(one.wait_for_agent())


def test_secrets_that_only_root_can_read(host, made):
    store = made(RedisServer(password="a-secret-of-redis")).start()
    origin = host(OWN + ADMIN + RULES).begin()
    one = host(OWN)
    password = private(one.folder / "password", "a-secret-of-redis\n")
    token = private(one.folder / "token", origin.token + "\n")
    one.write(one.file.read_text() + f"store: {{ url: {store.url()}, password_file: {password} }}\n"
              f"rules: {{ url: http://127.0.0.1:{origin.admin}/v1/rules/published, token_file: {token}, poll: 100ms }}\n")
    one.start()
    wait_until(lambda: store.client().hlen("weir::hosts") == 1, "the agent in the store")
    assert is_unprivileged(one.wait_for_agent()) and "name: two" in (one.folder / "state/retrieved.yaml").read_text()
    # The token is read anew.
    other = subprocess.run([WEIR, "token", "create", "other", "--role", "viewer", "--file", "weir.yaml"], cwd=origin.folder,
                           env=ENVIRONMENT, check=True, capture_output=True, text=True).stdout
    private(one.folder / "token.new", "weir_0_wrong\n").rename(token)
    one.wait_for_log("the token is refused")
    private(one.folder / "token.new", other).rename(token)
    assert origin.publish("two", 7) == 200
    wait_until(lambda: "7" in (one.folder / "state/retrieved.yaml").read_text(), "the published rules")


def test_commands_of_root_read_the_secrets_of_the_store_before_they_act_as_the_agent(host, made):
    """weir top and weir why read rules that the agent wrote as its user, who cannot read the password."""
    store = made(RedisServer(password="a-secret-of-redis")).start()
    hosts = [host(OWN + f"host: {name}\n" + ADMIN) for name in ("first", "second")]
    for one in hosts:
        password = private(one.folder / "password", "a-secret-of-redis\n")
        one.write(one.file.read_text() + f"store: {{ url: {store.url()}, password_file: {password} }}\n")
        one.begin()

    def coverage(*words):
        done = subprocess.run([WEIR, *words, "--json"], cwd=hosts[0].folder, env=ENVIRONMENT, capture_output=True, text=True,
                              timeout=60, check=False)
        return json.loads(done.stdout)["coverage"]

    for words in (("top", "--once", "weir.yaml"), ("why", "--segment", "weir.yaml")):
        wait_until(lambda words=words: sorted(coverage(*words)["hosts"]) == ["first", "second"], "both hosts", 30, every=0.3)
        assert coverage(*words)["why"] is None


def test_what_an_older_version_left_as_root(host):
    """State, segment and sidecar files belonged to root; their contents stay."""
    one = host(OWN + ADMIN + RULES)
    one.begin()
    assert one.publish("two", 1) == 200
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    for file in (*one.folder.glob("segment*"), *one.folder.glob("state/**/*"), one.folder / "state"):
        os.chown(file, 0, 0)
        file.chmod(0o755 if file.is_dir() else 0o600)
    (one.folder / "state/published.yaml").chmod(0o644)
    # Nothing else than files of weir's is handed over, and no link is followed.
    strangers = [private(one.folder / "precious", "secret\n"), one.folder / "hard"]
    os.link(strangers[0], strangers[1])
    os.link(strangers[0], one.folder / "state/queue.db-wal")
    (one.folder / "state/queue.sock.new").symlink_to(one.folder / "precious")
    one.start()
    one.wait_for_admin()
    assert is_unprivileged(one.wait_for_agent())
    assert one.request_json("GET", "/v1/rules/two")["enforced_version"] == 2 and one.publish("two", 3) == 200
    assert (one.folder / "state/rules.db").stat().st_uid == UID and strangers[0].stat().st_uid == 0
    # Root puts a copy of the database into its place, as of a backup: the log names the command that hands it over.
    copy = one.folder / "copy.db"
    with contextlib.closing(sqlite3.connect(one.folder / "state/rules.db")) as database:
        database.execute(f"VACUUM INTO '{copy}'")
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    for file in one.folder.glob("state/rules.db*"):
        file.unlink()
    private(copy).rename(one.folder / "state/rules.db")
    one.start()
    one.wait_for_log(f"chown {AGENT}: {one.folder}/state/rules.db")
    assert (one.folder / "state/rules.db").stat().st_uid == 0
    os.chown(one.folder / "state/rules.db", UID, GID)
    wait_until(lambda: one.request("GET", "/v1/rules/two")[0] == 200, "the copy")
    assert one.publish("two", 4) == 200


def as_agent(code, *arguments):
    """Runs the Python code as the agent's user."""
    subprocess.run(["python3", "-c", code, *map(str, arguments)], user=UID, group=GID, extra_groups=[], check=True, cwd="/")


def test_a_file_of_root_that_the_agent_moved_into_its_folder_stays_root(host):
    """rename(2) needs no permission for the file: not everything of root's in the state folder was put there by root."""
    one = host(OWN + ADMIN + RULES).begin()
    web = one.folder / "web"
    web.mkdir()
    names = ("rules.db-x", "queue.db")
    for name in names:
        private(web / name, "secret\n")
    os.chown(web, UID, GID)
    for name in names:
        as_agent("import os, sys; os.rename(*sys.argv[1:])", web / name, one.folder / "state" / name)
    first = one.wait_for_agent()
    one.wait_for_log(f"{one.folder}/state/queue.db belongs to root")
    one.kill_agent()
    one.wait_for_agent(first)
    one.signal(signal.SIGHUP)
    one.wait_for_log("reloaded")
    one.wait_for_admin()
    for name in names:
        assert (one.folder / "state" / name).stat().st_uid == 0, name
    assert one.log_text().count("belongs to root") == 1, one.log_text()


def test_a_folder_that_another_user_can_write_to_is_not_searched_for_files_of_root(host):
    one = host(OWN + ADMIN + RULES)
    state = one.folder / "state"
    state.mkdir()
    moved = private(state / "rules.db-x", "secret\n")
    os.chown(state, 0, GID)
    state.chmod(0o770)
    one.start(running=False)
    wait_until(lambda: one.process.poll() is not None or one.agent_pid(), "the end, or the agent")
    assert moved.stat().st_uid == 0 and state.stat().st_uid == 0
    # A link that another user may have made is not followed.
    (one.folder / "of-the-agent").mkdir()
    os.chown(one.folder / "of-the-agent", UID, GID)
    (one.folder / "of-root").mkdir()
    two = host(OWN.replace("@FOLDER@/state", f"{one.folder}/of-the-agent/state") + ADMIN + RULES)
    as_agent("import os, sys; os.symlink(*sys.argv[1:])", one.folder / "of-root", one.folder / "of-the-agent/state")
    done = two.run()
    assert done.returncode == 1 and f"is not writable for its user {AGENT}" in done.stderr
    assert (one.folder / "of-root").stat().st_uid == 0


def test_a_database_that_a_command_of_root_makes_is_the_agents(host):
    one = host(OWN + ADMIN + RULES)
    (one.folder / "state").mkdir()
    os.chown(one.folder / "state", UID, GID)
    made = subprocess.run([WEIR, "token", "create", "first", "--role", "operator", "--file", "weir.yaml"], cwd=one.folder,
                          env=ENVIRONMENT, check=True, capture_output=True, text=True)
    one.token = made.stdout.strip()
    for file in (one.folder / "state").iterdir():
        assert file.stat().st_uid == UID, file
    one.start()
    one.wait_for_admin()
    assert one.publish("two", 3) == 200 and "belongs to root" not in one.log_text()


PLANT = """
import os, struct, sys
database, victim = sys.argv[1], sys.argv[2].encode()
data = open(database, "rb").read()
page = struct.unpack(">H", data[16:18])[0]
magic = bytes.fromhex("d9d505f920a163d7")
journal = (magic + struct.pack(">IIIII", 0, 1, len(data) // page, 512, page)).ljust(512, bytes(1))
journal += struct.pack(">I", 0x40000000 // page + 1) + victim + struct.pack(">II", len(victim), sum(victim)) + magic
open(database + "-journal", "wb").write(journal)
"""


def test_a_journal_in_the_agents_folder_does_not_make_a_command_of_root_delete_files(host):
    """SQLite deletes the super-journal that a journal names: as root, any file."""
    one = host(OWN + ADMIN + "queue: on\n" + RULES)
    state, folder = one.folder / "state", one.folder / "of-root"
    state.mkdir()
    folder.mkdir()
    os.chown(state, UID, GID)
    command = [WEIR, "token", "list", "--file", "weir.yaml"]
    commands = {"rules.db": [command, [*command[:3], "--db", f"sqlite:{state}/rules.db"]],
                "queue.db": [[WEIR, "queue", "list", "--file", "weir.yaml"]]}
    for name, lines in commands.items():
        for line in lines:
            subprocess.run(line, cwd=one.folder, env=ENVIRONMENT, check=True, capture_output=True)  # makes the database
            victim = private(folder / "victim", "secret\n")
            as_agent(PLANT, state / name, victim)
            subprocess.run(line, cwd=one.folder, env=ENVIRONMENT, check=False, capture_output=True)
            assert victim.read_text() == "secret\n", line
            assert not (state / f"{name}-journal").exists() or name == "queue.db", line
    assert {file.stat().st_uid for file in state.iterdir()} == {UID}


def descriptors(pid):
    """Targets of the descriptors but the standard ones."""
    folder, found = pathlib.Path(f"/proc/{pid}/fd"), []
    for link in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += [os.readlink(link)] if int(link.name) > 2 else []
    return found


def test_the_agent_has_none_of_the_supervisors_descriptors(host):
    one = host(OWN + ADMIN + RULES).begin(stdin=subprocess.PIPE)
    first = one.wait_for_agent()
    for _ in range(2):
        agent, supervisor = descriptors(one.wait_for_agent()), descriptors(one.process.pid)
        assert any(link.startswith("pipe:") for link in supervisor) and any("/lock" in link for link in supervisor), supervisor
        shared = [link for link in agent if link in supervisor and not link.startswith("anon_inode:")]
        # The admin listener's: the one in use, and the one that is kept for another attempt to start it.
        assert len(set(shared)) == 1 and len(shared) <= 2 and shared[0].startswith("socket:"), shared
        assert agent.count("anon_inode:[signalfd]") == 1, agent
        # It cannot read what is typed at the terminal of weir serve. It logs through a pipe: it could truncate the file.
        assert os.readlink(f"/proc/{one.wait_for_agent()}/fd/0") == "/dev/null"
        assert all(os.readlink(f"/proc/{one.wait_for_agent()}/fd/{fd}").startswith("pipe:") for fd in (1, 2))
        assert not any(str(one.runtime_dir) in link for link in agent), agent
        one.kill_agent()
        one.wait_for_agent(first)
        one.wait_for_admin()


def test_root_does_not_read_rules_that_the_agent_wrote(host):
    """A link in place of the published rules: the file that it leads to is opened by the agent's and the workers' users alone."""
    one = host(OWN + ADMIN + RULES).begin()
    assert one.publish("two", 1) == 200
    secret = private(one.folder / "secret", "root:$y$j9T$FAKE: {}\n")
    published = one.folder / "state/published.yaml"
    kept = published.read_text()
    os.kill(one.wait_for_agent(), signal.SIGSTOP)  # it would put the file right again
    as_agent("import os, sys; os.unlink(sys.argv[2]); os.symlink(*sys.argv[1:])", secret, published)
    one.signal(signal.SIGHUP)
    one.wait_for_log("weir.yaml rejected; the previous configuration stays active")
    assert "FAKE" not in one.log_text(), one.log_text()
    one.wait_for_log(f"{published}: cannot be read: Permission denied")
    # nginx's master, asked by itself: it leaves the file to its workers.
    os.kill(one.group, signal.SIGHUP)
    one.wait_for_log("no rules until it can read them")
    assert "FAKE" not in one.log_text(), one.log_text()
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    done = one.run("--check")
    assert done.returncode == 1 and "FAKE" not in done.stderr and "Permission denied" in done.stderr
    # A good file: it is in force from the first request on, and so it is in a worker that takes the place of a killed one.
    published.unlink()
    published.write_text(kept)
    one.start()
    assert "weir_rules" in (conf := (one.runtime_dir / "nginx.conf").read_text()) and " workers;" in conf
    assert [one.get("/two").status for _ in range(2)].count(200) <= 1
    for worker in one.workers():
        os.kill(int(worker), signal.SIGKILL)
    wait_until(lambda: len(one.workers()) == 2, "other workers")
    assert one.get("/two").status == 429


def test_a_command_of_root_does_not_read_rules_that_the_agent_wrote(host):
    one = host(OWN + ADMIN + RULES.replace("limit: 2", "key: all, limit: 2")).begin()
    assert "two: all blocked" in weir("key", "block", "all", "--for", "1h", cwd=one.folder).stdout
    commands = ["key", "show", "all"], ["top", "--once"], ["advise"], ["why", "all"], ["lint"], ["check", "GET", "/two"]
    assert one.get("/two").status == 403
    for command in commands:
        weir(*command, cwd=one.folder)
    published = one.folder / "state/published.yaml"
    secret = private(one.folder / "secret", published.read_text().replace("two", "hidden"))
    os.kill(one.wait_for_agent(), signal.SIGSTOP)  # it would put the file right again
    as_agent("import os, sys; os.unlink(sys.argv[2]); os.symlink(*sys.argv[1:])", secret, published)
    for command in commands:
        shown = weir(*command, cwd=one.folder, code=1)
        assert "hidden" not in shown.stdout + shown.stderr and "ermission" in shown.stderr, (command, shown)


def test_a_command_of_root_refuses_a_segment_that_another_user_put_there(host):
    """In a folder such as /dev/shm, while weir is stopped."""
    one = host(OWN.replace("@FOLDER@/segment", "@FOLDER@/shared/segment") + RULES.replace("limit: 2", "key: all, limit: 2"))
    (one.folder / "shared").mkdir()
    (one.folder / "shared").chmod(0o1777)
    one.start()
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    for file in (one.folder / "shared").iterdir():
        os.chown(file, OTHER_UID, OTHER_UID)
    refused = weir("key", "block", "all", "--for", "1h", cwd=one.folder, code=1)
    assert "another user" in refused.stderr, refused.stderr
    for owner in (0, UID):  # root's, and the agent's
        os.chown(one.folder / "shared/segment", owner, owner)
        assert "blocked" in weir("key", "block", "all", "--for", "1h", cwd=one.folder).stdout


def test_rules_that_the_workers_cannot_read(host):
    one = host(OWN + ADMIN + RULES)
    (one.folder / "state").mkdir(mode=0o700)
    os.chown(one.folder / "state", UID, GID)
    done = one.run()
    assert done.returncode == 1 and "which cannot read the active rules" in done.stderr, done.stderr


def test_an_unusable_agent_user_is_reported(host):
    one = host(HEAD + "agent_user: nobody-of-this-name\n" + ADMIN + RULES)
    done = one.run()
    assert done.returncode == 1 and 'there is no user "nobody-of-this-name" on this machine for the agent' in done.stderr
    assert "weir.yaml:6:" in done.stderr
    one.change("nobody-of-this-name", "root")
    done = one.run()
    assert done.returncode == 1 and "the agent must not run as root" in done.stderr
    # A state folder with other things in it is not taken over.
    one.change("agent_user: root", f"agent_user: {AGENT}")
    (one.folder / "state").mkdir()
    (one.folder / "state/of-somebody-else").write_text("")
    done = one.run()
    assert done.returncode == 1 and f"is not writable for its user {AGENT}" in done.stderr
    assert (one.folder / "state").stat().st_uid == 0
    os.chown(one.folder / "state", UID, GID)
    one.begin()
    assert is_unprivileged(one.wait_for_agent())


def test_weir_agent_alone(host):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-agent-test-"))
    folder.chmod(0o755)
    one = host(OWN + ADMIN + RULES)
    paths = [pathlib.Path(path) for path in certificate(one.folder)]
    private(paths[1])
    one.admin = low_port()
    one.write(one.file.read_text().split("admin:")[0] + RULES +
              f'admin: {{ listen: "127.0.0.1:{one.admin}", rules: database, tls: {{ certificate: {paths[0]}, key: {paths[1]} }} }}\n')
    one.context = ssl.create_default_context(cafile=str(paths[0]))
    private(one.file)
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen([WEIR, "agent", str(one.file)], env=ENVIRONMENT, stderr=output, stdin=subprocess.DEVNULL)
    try:
        def child():
            return next(iter(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()), "")
        wait_until(lambda: one.request("GET", "/healthz")[0] == 200, "the rules service")
        first = child()
        assert is_unprivileged(first) and status(process.pid)["NoNewPrivs"] == ["1"]
        assert int(status(process.pid)["CapBnd"][0], 16) & ~sum(1 << bit for bit in KEPT.values()) == 0
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: child() not in ("", first) and one.request("GET", "/healthz")[0] == 200, "another one")
        assert is_unprivileged(child())
        process.terminate()
        assert process.wait(20) == 0, (folder / "output").read_text()
    finally:
        if process.poll() is None:
            process.kill()
        shutil.rmtree(folder)


def test_weir_agent_of_another_user(host):
    """A killed agent is restarted, and a signal that stops it stops weir agent, whichever of both processes gets it."""
    one = host(HEAD + ADMIN + RULES)
    os.chown(one.folder, UID, GID)
    os.chown(one.file, UID, GID)
    for stopped in ("supervisor", "agent"):
        with open(one.folder / stopped, "wb") as output:
            process = subprocess.Popen([WEIR, "agent", str(one.file)], env=ENVIRONMENT, stderr=output, stdin=subprocess.DEVNULL,
                                       user=UID, group=GID, extra_groups=[])
        try:
            def child():
                return next(iter(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()), "")
            wait_until(lambda: one.request("GET", "/healthz")[0] == 200, "the rules service")
            first = child()
            assert status(first)["Seccomp"] == ["2"] and status(process.pid)["NoNewPrivs"] == ["1"]
            os.kill(int(first), signal.SIGKILL)
            wait_until(lambda: child() not in ("", first) and one.request("GET", "/healthz")[0] == 200, "another one")
            os.kill(process.pid if stopped == "supervisor" else int(child()), signal.SIGTERM)
            assert process.wait(20) == 0, (one.folder / stopped).read_text()
            assert "stopped" in (one.folder / stopped).read_text()
        finally:
            if process.poll() is None:
                process.kill()


def test_started_by_another_user_nothing_is_dropped_but_what_it_never_needs(host):
    one = host(HEAD + ADMIN + RULES)
    os.chown(one.folder, UID, GID)
    one.start(user=UID, group=GID, extra_groups=[])
    one.wait_for_admin()
    seen = status(one.wait_for_agent())
    assert seen["Uid"] == [str(UID)] * 4 and seen["NoNewPrivs"] == ["1"] and seen["Seccomp"] == ["2"]
    for pid in (one.process.pid, one.group, *one.workers()):
        assert status(pid)["Uid"] == [str(UID)] * 4 and status(pid)["NoNewPrivs"] == ["1"]
    assert (one.folder / "segment").stat().st_uid == UID


def test_the_folder_of_the_delivery_socket_stays_roots(host):
    """nginx's master binds the socket in it and changes its mode by name: the agent must not be able to put a link there."""
    one = host(OWN + "queue: on\n" + """rules:
  - { name: kept, match: { path: /kept }, limit: 1, window: 1s, on_limit: queue }
""")
    one.start()
    folder = (one.runtime_dir / "deliver").stat()
    assert (folder.st_uid, folder.st_gid, folder.st_mode & 0o777) == (0, GID, 0o710)
    wait_until_queue_answers(one.port)
    assert sorted({one.get("/kept").status for _ in range(5)}) == [200, 202]
    before = one.backend.requests
    wait_until(lambda: one.backend.requests > before, "a delivery through the socket")


def memory_of(pid):
    """All writable memory of a process, as one text of bytes."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            span, mode, *_ = line.split()
            if mode.startswith("rw") and "/" not in line:
                first, last = (int(end, 16) for end in span.split("-"))
                memory.seek(first)
                with contextlib.suppress(OSError):
                    found.append(memory.read(last - first))
    return b"\n".join(found)


@pytest.fixture
def with_secrets(host):
    """A host whose service has secrets, and a check that a process has none of them in its memory."""
    secrets = [f"{kind}-{random.randbytes(12).hex()}" for kind in ("token", "operator", "password", "master")]
    one = host(OWN + ADMIN + RULES + f"""service:
  http: 127.0.0.1:{free_port()}
  resp: 127.0.0.1:{free_port()}
  access: {{ tokens: [{secrets[0]}], operator_tokens: ["{secrets[1]}"], password: '{secrets[2]}', operator_password: {secrets[3]} }}
""").begin()

    def check(pid):
        memory = memory_of(pid)
        assert b"published.yaml" in memory
        left = {secret: memory.count(secret[8:].encode()) for secret in secrets}
        assert not any(left.values()), left
    return one, check


@pytest.mark.skipif(bool(PRELOAD), reason="AddressSanitizer keeps freed memory, and maps terabytes")
def test_the_agent_has_no_secrets_of_the_service_in_its_memory(with_secrets):
    one, check = with_secrets
    first = one.wait_for_agent()
    for turn in range(2):
        check(one.wait_for_agent(*([first] if turn else [])))
        one.signal(signal.SIGHUP)
        one.wait_for_log("reloaded")
        one.wait_for_new_agent(first)


@pytest.mark.skipif(bool(PRELOAD), reason="AddressSanitizer keeps freed memory, and maps terabytes")
def test_helper_processes_of_the_agents_user_have_no_secrets_of_the_service_in_their_memory(with_secrets):
    """Those of a reload are forked while the supervisor has two configurations, with the same secrets."""
    one, check = with_secrets
    assert one.publish("two", 1) == 200
    agent = one.wait_for_agent()
    os.kill(agent, signal.SIGSTOP)  # it is not replaced for 10 s: other processes of its user are helper processes
    children = pathlib.Path(f"/proc/{one.process.pid}/task/{one.process.pid}/children")

    def stop_helper():
        """The id of a helper process that has dropped root's privileges; None: there is none now."""
        for pid in (int(child) for child in children.read_text().split()):
            with contextlib.suppress(OSError):
                if pid != agent and (seen := status(pid))["Uid"][0] == str(UID) and seen["Seccomp"] == ["2"]:
                    os.kill(pid, signal.SIGSTOP)
                    if wait_until(lambda: (state := status(pid)["State"][0]) in "TZ" and state, "a stopped process", every=0) == "T":
                        return pid
        return None

    for _ in range(5):
        reloads = one.log_text().count("reloaded")
        one.signal(signal.SIGHUP)
        helper = wait_until(lambda: stop_helper() or one.log_text().count("reloaded") > reloads, "a reload", every=0)
        if helper is not True:
            break
    assert helper is not True, "each helper process ended before it was seen"
    try:
        check(helper)
    finally:
        os.kill(helper, signal.SIGCONT)


def test_an_agent_that_does_not_end_is_replaced(host):
    one = host(OWN + ADMIN + RULES).begin()
    first = one.wait_for_agent()
    os.kill(first, signal.SIGSTOP)
    one.signal(signal.SIGHUP)
    one.wait_for_log("reloaded")
    one.wait_for_new_agent(first)
    one.wait_for_log("agent did not exit within 10 s")


def test_a_history_that_the_agent_cuts_short_and_locks(host):
    """Only a helper process, which has a deadline, opens the file and waits for the lock; not the supervisor."""
    one = host(OWN + ADMIN + RULES).begin()
    history = one.folder / "segment.history"
    wait_until(history.exists, "the history")
    agent = one.wait_for_agent()
    os.kill(agent, signal.SIGSTOP)  # it would make the file anew
    spoiler = subprocess.Popen(["python3", "-c", """
import fcntl, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
os.ftruncate(file, 100)
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(3)
""", history], user=UID, group=GID, extra_groups=[], cwd="/", stdout=subprocess.PIPE)
    assert spoiler.stdout.readline() == b"locked\n"
    os.kill(agent, signal.SIGKILL)
    helped = False
    while spoiler.poll() is None:
        assert str(history) not in descriptors(one.process.pid)
        for child in pathlib.Path(f"/proc/{one.process.pid}/task/{one.process.pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                helped |= str(history) in descriptors(child)
    spoiler.stdout.close()
    assert helped and spoiler.returncode == 0
    one.wait_for_new_agent(agent)
    assert one.process.poll() is None and one.publish("two", 1) == 200


def test_a_database_whose_name_begins_other_names(host):
    """Root hands over the database and SQLite's companion files, not files of similar names, and never weir.yaml."""
    one = host(OWN + ADMIN + RULES)
    one.write(one.file.read_text() + f"rules_db: sqlite:{one.folder}/etc/weir\n")
    (one.folder / "etc").mkdir(mode=0o755)
    others = [private(one.folder / "etc" / name, "secret\n") for name in ("weir.yaml", "weir")]
    one.start(running=False)
    wait_until(lambda: one.process.poll() is not None or one.agent_pid(), "the end, or the agent")
    assert [file.stat().st_uid for file in (*others, one.folder / "etc")] == [0, 0, 0]


def test_a_folder_whose_name_begins_like_the_state_folder(host):
    one = host(OWN + ADMIN + RULES)
    one.write(one.file.read_text() + f"rules_db: sqlite:{one.folder}/state-db/rules.db\n")
    (one.folder / "state-db").mkdir(mode=0o755)
    one.begin()
    assert (one.folder / "state-db").stat().st_uid == (one.folder / "state-db/rules.db").stat().st_uid == UID


def test_a_file_of_root_that_the_agent_moved_to_a_sidecar(host):
    """In a folder that the agent can write to, a name and root as owner do not make a file one of weir's."""
    one = host(OWN.replace("@FOLDER@/segment", "@FOLDER@/own/segment") + ADMIN + RULES)
    (one.folder / "own").mkdir()
    secret = private(one.folder / "own/secret", "secret\n")
    os.chown(one.folder / "own", UID, GID)
    moved = one.folder / "own/segment.observer"
    as_agent("import os, sys; os.rename(*sys.argv[1:])", secret, moved)
    one.start(running=False)
    wait_until(lambda: one.process.poll() is not None or one.agent_pid(), "the end, or the agent")
    assert moved.read_text() == "secret\n" and (moved.stat().st_gid, moved.stat().st_mode & 0o777) == (0, 0o600)


def test_rule_files_that_the_agent_cannot_read(host):
    """The workers decide by them; the dashboard has the reason why it does not show them. Root reads nothing for it."""
    one = host(OWN + 'admin: { listen: "127.0.0.1:@ADMIN@", rules: files }\nrules: rules.d\n')
    (one.folder / "rules.d").mkdir()
    file = one.folder / "rules.d/one.yaml"
    file.write_text(RULES)
    worker = pwd.getpwnam("www-data")
    os.chown(file, worker.pw_uid, 0)
    file.chmod(0o600)
    warning = f"the agent runs as {AGENT}, which cannot read"
    assert warning in one.run("--check").stderr
    one.begin()
    one.wait_for_log(warning)
    one.wait_for_log("one.yaml: cannot be read: Permission denied; the documents shown are those before")
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    reply = one.request_json("GET", "/v1/rules")
    assert reply["items"] == [] and reply["files"]["errors"][0]["file"] == str(file)
    file.chmod(0o644)
    wait_until(lambda: one.request_json("GET", "/v1/rules")["items"], "the file that can be read now")
    assert is_unprivileged(one.wait_for_agent()) and warning not in one.run("--check").stderr
