"""Logs on a disk that hangs: a pipe without a reader acts as one. No request waits for it, and lost lines are counted."""
import contextlib
import fcntl
import json
import os
import re
import signal
import time

import pytest

from clients import get
from gateway import wait_until
from serving import HEAD, RULES

GOOD = json.dumps({"rules": [{"name": "r", "limit": 1, "window": "1d"}]})
METRICS = "location = /metrics { weir off; weir_metrics; weir_access_log off; }"


def hanging(folder, name):
    """A FIFO of one page, with a reader that never reads: the end must be kept open."""
    path = folder / name
    os.mkfifo(path, 0o666)
    path.chmod(0o666)
    end = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 4096)
    return end


def dropped(port, log):
    text = get(port, "/metrics").body.decode()
    found = re.search(rf'^weir_log_dropped_total{{log="{log}",worker="0"}} (\d+)$', text, re.M)
    return int(found[1]) if found else None


@pytest.mark.parametrize("log, directive", [
    ("denied", "weir_log_denied @FOLDER@/pipe rate=1000000;"),
    ("access", "weir_access_log @FOLDER@/pipe '$request $http_filler';"),
])
def test_no_request_waits_for_a_log(gateway, log, directive):
    g = gateway(GOOD, server=directive + METRICS, start=False, expected=("were dropped since the last line",))
    end = hanging(g.folder, "pipe")
    # Alerts go to the same disk: none may be written while it hangs.
    g.config.write_text(g.config.read_text().replace(f"error_log {g.folder}/error.log info;",
                                                     f"error_log {g.folder}/alerts alert;"))
    alerts = hanging(g.folder, "alerts")
    filled = os.write(alerts, b"x" * 4095 + b"\n")
    g.start()
    headers = {"filler": "x" * 2000}
    longest = 0
    path = "/" + "x" * 1500
    for _ in range(3000):  # some MiB of lines, more than the ring
        begun = time.monotonic()
        assert get(g.port, path, headers=headers).status in (200, 429)
        longest = max(longest, time.monotonic() - begun)
    assert longest < 2
    assert dropped(g.port, log) > 100 and dropped(g.port, {"denied": "access", "access": "denied"}[log]) == 0
    # Once the disk is back, there is one line that tells how many were lost.
    reply = b""

    def heard():
        nonlocal reply
        for each in (end, alerts):
            with contextlib.suppress(BlockingIOError):
                part = os.read(each, 1 << 16)
                reply += part if each == alerts else b""
        assert get(g.port, "/").status == 429
        return b"were dropped" in reply
    wait_until(heard, "the alert")
    assert filled == 4096 and len(re.findall(rb"\d+ lines for \"\S+/pipe\" were dropped", reply)) == 1, reply
    lost = dropped(g.port, log)
    wait_until(lambda: [get(g.port, path, headers=headers) for _ in range(100)] and dropped(g.port, log) > lost,
               "a disk that hangs again")
    # A worker that ends does not wait for it, either.
    workers = set(g.workers())
    begun = time.monotonic()
    g.run("-s", "reload")
    wait_until(lambda: not workers & set(g.workers()) and g.workers(), "workers without the log's thread")
    assert time.monotonic() - begun < 15
    os.close(end)
    os.close(alerts)


def test_lines_are_written_when_the_disk_recovers(gateway):
    g = gateway(GOOD, server="weir_access_log @FOLDER@/pipe '$request_uri end' ;" + METRICS, start=False)
    end = hanging(g.folder, "pipe")
    g.start()
    for i in range(1000):
        assert get(g.port, f"/{i}").status in (200, 429)
    text = b""

    def all_read():
        nonlocal text
        try:
            text += os.read(end, 1 << 16)
        except BlockingIOError:
            pass
        return text.count(b"\n") == 1000
    wait_until(all_read, "all lines")
    assert text.decode().splitlines() == [f"/{i} end" for i in range(1000)]
    assert dropped(g.port, "access") == 0
    os.close(end)


def test_what_is_in_the_log_of_requests(gateway):
    """The same as nginx's own has."""
    g = gateway(GOOD, http="log_format same '$request \"$http_a\" $status \"$http_none\"';"
                           "log_format json escape=json '{\"a\":\"$http_a\",\"s\":$status,\"n\":\"$http_none\"}';",
                server="""
        location /text { access_log @FOLDER@/nginx.txt same;
            weir_access_log @FOLDER@/weir.txt '$request "$http_a" $status "$http_none"'; proxy_pass http://@BACKEND@; }
        location /json { access_log @FOLDER@/nginx.json json;
            weir_access_log @FOLDER@/weir.json '{"a":"$http_a","s":$status,"n":"$http_none"}' escape=json;
            proxy_pass http://@BACKEND@; }
        location /off { weir_access_log off; proxy_pass http://@BACKEND@; }""")
    for path in ("/text", "/json", "/off"):
        for value in ("plain", 'a"b\\c', "\xe4\xff", "tab\tin", "x" * 3000):
            get(g.port, path, headers={"A": value.encode("latin-1")})
    for kind in ("txt", "json"):
        both = [g.folder / f"{who}.{kind}" for who in ("nginx", "weir")]
        wait_until(lambda: both[1].exists() and both[1].read_bytes().count(b"\n") == 5, "five lines")
        nginx, weir = (path.read_text(encoding="utf-8", errors="replace").splitlines() for path in both)
        if kind == "json":  # what is not UTF-8 is replaced, and so is a tab's name
            nginx, weir = ([json.loads(line) for line in lines if "\ufffd" not in line and "ufffd" not in line]
                           for lines in (nginx, weir))
            assert len(nginx) >= 4
        assert nginx == weir


@pytest.mark.parametrize("directive, wanted", [
    ("weir_access_log x;", "needs a path and a format"),
    ("weir_access_log off x;", "takes no parameters"),
    ("weir_access_log x '$status' escape=none;", "escape=json"),
    ("weir_access_log x 'a $ b';", "without a variable"),
    ("weir_access_log x '$no_such_variable_at_all';", "unknown \"no_such_variable_at_all\" variable"),
    ("weir_access_log syslog:server=unix:/x '$status';", "needs the path of a file"),
    ("weir_access_log x '$status'; weir_access_log y '$status';", "is duplicate"),
])
def test_bad_logs_of_requests(gateway, directive, wanted):
    g = gateway(GOOD, http=directive, start=False)
    good, output = g.test()
    assert not good and wanted in output


def test_logs_are_reopened(gateway):
    """As logrotate does it: moved away, then USR1. Nothing is lost, and the old file gets no line more."""
    g = gateway(GOOD, server="weir_access_log @FOLDER@/all '$request_uri'; weir_log_denied @FOLDER@/denied rate=10000;",
                workers=2, listen="reuseport")
    os.chmod(g.folder, 0o777)
    count = 0
    for turn in range(3):
        for _ in range(50):
            get(g.port, f"/{count}")
            count += 1
        for name in ("all", "denied"):
            (g.folder / name).rename(g.folder / f"{name}.{turn}")
        g.run("-s", "reopen")
        wait_until(lambda: (g.folder / "all").exists() and (g.folder / "denied").exists(), "new files")

        def fresh():  # the workers take up the new files one after the other
            get(g.port, "/fresh")
            return "/fresh" in (g.folder / "all").read_text() and (g.folder / "denied").read_text()
        wait_until(fresh, "lines in the new files")
    lines = lambda name: [line for path in g.folder.glob(f"{name}*") for line in path.read_text().splitlines()]  # noqa: E731
    wait_until(lambda: {f"/{i}" for i in range(count)} <= set(lines("all")), "all lines")
    wait_until(lambda: len(lines("denied")) >= count - 1, "denied lines")


def test_weir_serve_with_hanging_logs(serve):
    """Both logs of weir.yaml; it stops in time, too."""
    one = serve(HEAD.replace("workers: 2", "workers: 1") + RULES + """
access_log: { path: "@FOLDER@/access" }
denied_log: { path: "@FOLDER@/denied", rate: 1000000 }
""", start=False)
    ends = [hanging(one.folder, name) for name in ("access", "denied")]
    one.start()
    longest = 0
    for i in range(2000):
        begun = time.monotonic()
        assert one.get("/two?" + "x" * 1000, headers={"User-Agent": "y" * 1000}).status in (200, 429)
        longest = max(longest, time.monotonic() - begun)
    assert longest < 2
    one.get("/two" + "/x" * 700)
    wait_until(lambda: dropped(one.metrics, "access"), "lines that were dropped")
    begun = time.monotonic()
    one.signal(signal.SIGTERM)
    assert one.end() == 0 and time.monotonic() - begun < 9
    for end in ends:
        os.close(end)
