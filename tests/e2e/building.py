"""Programs that tests bring with them, built by make once a process, and by one process at a time."""
import fcntl
import functools
import pathlib
import subprocess
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILDING = threading.Lock()


def built(program, *how):
    """Builds the program and returns its path; `how`: further arguments of make."""
    with BUILDING:
        return make(program, *how)


@functools.lru_cache
def make(program, *how):
    with open(ROOT / "build" / ".building", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", *how, str(program.relative_to(ROOT))], cwd=ROOT, check=True)
    return program
