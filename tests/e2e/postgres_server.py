"""A PostgreSQL of the tests' own, on a socket in its own folder; tests/postgres.sh starts and stops it."""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess

from stores import folder

SCRIPT = pathlib.Path(__file__).parent.parent / "postgres.sh"
MISSING = 77  # what the script ends with where PostgreSQL is not installed


class PostgresServer:
    def __init__(self):
        self.folder = folder("weir-e2e-pg-")
        self.folder.chmod(0o755)  # the agent that root starts is another user, and its database needs no password
        self.databases = 0
        self.code = self.run("start")

    def run(self, what):
        return subprocess.run([str(SCRIPT), what, str(self.folder)], timeout=240, stdout=subprocess.DEVNULL).returncode

    def start(self):
        assert self.run("start") == 0, (self.folder / "server.log").read_text()

    def stop(self):
        assert self.run("stop") == 0

    def crash(self):
        assert self.run("crash") == 0

    def pid(self):
        """Of the server itself; 0: it does not run."""
        file = self.folder / "data" / "postmaster.pid"
        return int(file.read_text().split()[0]) if file.exists() else 0

    def signal(self, number):
        """Sends the signal to the server and all its processes, so that none replies."""
        pid = self.pid()
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(pid, number)
        for one in map(int, children):
            with contextlib.suppress(ProcessLookupError):  # one that has ended since: workers come and go
                os.kill(one, number)

    def sql(self, text, database="postgres"):
        """What psql prints, without headings."""
        done = subprocess.run(["psql", "-qAt", "-v", "ON_ERROR_STOP=1", "-h", self.folder, "-U", "weir", "-d", database],
                              input=text, text=True, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def make(self):
        """A new database: its name."""
        self.databases += 1
        name = f"e{self.databases}"
        self.sql(f"CREATE DATABASE {name}")
        return name

    def dump(self, database):
        done = subprocess.run(["pg_dump", "-h", self.folder, "-U", "weir", database], text=True, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def restore(self, database, dump):
        """Restores the database, whatever is connected to it now. It is never visible half restored: an agent would create its tables."""
        made = self.make()
        self.sql(dump, made)
        self.sql(f"DROP DATABASE {database} WITH (FORCE);\nALTER DATABASE {made} RENAME TO {database};")

    def url(self, database):
        return f"postgresql://weir@/{database}?host={self.folder}"

    def remove(self):
        if self.code == 0 and self.pid():
            self.signal(signal.SIGCONT)
            self.run("crash")
        shutil.rmtree(self.folder, ignore_errors=True)
