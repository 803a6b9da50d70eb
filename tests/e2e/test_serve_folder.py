"""weir serve: its private folder, and those who remove it or put another in its place."""
import os
import shutil
import signal

import pytest

from gateway import pause
from clients import get

LARGE = b"b" * 500_000  # nginx keeps less than that in memory


def posts(one):
    return get(one.port, "/x", method="POST", body=LARGE).status


def remove(one, *paths):
    """While weir serve stands still: what it misses it puts back, and would do so in the midst of this."""
    pause(one.process.pid)
    for path in paths:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    os.kill(one.process.pid, signal.SIGCONT)


@pytest.mark.parametrize("what", ["all", "content"])
def test_a_folder_that_is_removed_is_made_again(serve, what):
    one = serve()
    mode = one.private.stat().st_mode
    assert one.get("/two").status == 200
    remove(one, *([one.private] if what == "all" else one.private.iterdir()))
    one.says(f"{one.private} was removed; created again")
    one.signal(signal.SIGHUP)  # comes when that is done
    one.says("reloaded")
    assert one.private.stat().st_mode == mode and posts(one) == 200
    assert [one.get("/two").status for _ in range(2)] == [200, 429]
    one.signal(signal.SIGTERM)
    assert one.end() == 0 and one.nothing_left()
    errors = [line for line in one.said().splitlines() if "error" in line]
    assert all(line.endswith("cannot be read: No such file or directory") for line in errors), errors  # a worker looked meanwhile


def test_what_runs_is_put_back_although_the_file_is_broken(serve):
    one = serve()
    one.change("limit: 2", "limit: 0.5")
    one.says("rejected")
    before = one.workers()
    remove(one, one.private)
    one.says("created again")
    one.says("rejected")
    one.write(one.file.read_text())  # broken as before
    one.says("rejected", times=2)  # after what was put back
    assert not before & one.workers() and posts(one) == 200
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]


def test_nothing_is_written_into_what_another_puts_in_its_place(serve):
    one = serve()
    mine = one.folder / "moved"
    pause(one.process.pid)
    shutil.rmtree(one.private)
    one.private.mkdir()
    mine.mkdir()
    os.kill(one.process.pid, signal.SIGCONT)
    one.says(f"{one.private} was removed and cannot be created again: File exists")
    one.signal(signal.SIGHUP)
    assert one.get("/two").status == 200
    one.private.rmdir()  # it is still empty
    one.private.symlink_to(mine)
    assert one.get("/two").status == 200
    one.private.unlink()
    one.says("created again")
    one.says("reloaded")  # which was asked for before
    assert not list(mine.iterdir()) and posts(one) == 200
    assert one.said().count("cannot be created again") == 1
