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
    mode = one.runtime_dir.stat().st_mode
    assert one.get("/two").status == 200
    remove(one, *([one.runtime_dir] if what == "all" else one.runtime_dir.iterdir()))
    one.wait_for_log(f"{one.runtime_dir} was removed; created again")
    one.signal(signal.SIGHUP)  # comes when that is done
    one.wait_for_log("reloaded")
    assert one.runtime_dir.stat().st_mode == mode and posts(one) == 200
    assert [one.get("/two").status for _ in range(2)] == [200, 429]
    one.signal(signal.SIGTERM)
    assert one.end() == 0 and one.nothing_left()
    errors = [line for line in one.log_text().splitlines() if "error" in line]
    assert all(line.endswith("cannot be read: No such file or directory") for line in errors), errors  # a worker looked meanwhile


def test_deleted_runtime_files_are_restored_although_the_file_is_broken(serve):
    one = serve()
    one.change("limit: 2", "limit: 0.5")
    one.wait_for_log("rejected")
    before = one.workers()
    remove(one, one.runtime_dir)
    one.wait_for_log("created again")
    one.wait_for_log("rejected")
    one.write(one.file.read_text())  # broken as before
    one.wait_for_log("rejected", times=2)  # after what was put back
    assert not before & one.workers() and posts(one) == 200
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]


def test_nothing_is_written_into_what_another_puts_in_its_place(serve):
    one = serve()
    mine = one.folder / "moved"
    pause(one.process.pid)
    shutil.rmtree(one.runtime_dir)
    one.runtime_dir.mkdir()
    mine.mkdir()
    os.kill(one.process.pid, signal.SIGCONT)
    one.wait_for_log(f"{one.runtime_dir} was removed and cannot be created again: File exists")
    one.signal(signal.SIGHUP)
    assert one.get("/two").status == 200
    one.runtime_dir.rmdir()  # it is still empty
    one.runtime_dir.symlink_to(mine)
    assert one.get("/two").status == 200
    one.runtime_dir.unlink()
    one.wait_for_log("created again")
    one.wait_for_log("reloaded")  # which was asked for before
    assert not list(mine.iterdir()) and posts(one) == 200
    assert one.log_text().count("cannot be created again") == 1
