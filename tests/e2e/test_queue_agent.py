"""The agent's side of on_limit: queue: it is killed, hangs, ends, or is not there; and who may reach it."""
import contextlib
import grp
import http.client
import json
import os
import signal
import socket
import stat
import threading
import time

import pytest

from clients import together
from controlled import Host
from gateway import pause, wait_until
from measured import measured
from queued import BOUND, chunked, host, is_plain_denial  # noqa: F401


# ---- When the agent is gone, or nobody waits any more ----

def test_a_client_that_disconnects_while_it_is_deferred(host):
    one = host()
    one.use_up()
    agent = one.wait_for_agent()
    pause(agent)
    try:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", one.port), timeout=10) as left:
                left.sendall(b"POST /kept HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
                time.sleep(0.02)
        wait_until(lambda: sum(line["status"] == 499 for line in one.access()) == 20, "that nginx has noticed")
    finally:
        os.kill(agent, signal.SIGCONT)
    ticket, _ = one.defer()
    assert list(one.queued()) == [ticket]
    assert one.agent_pid() == agent and one.ticket(ticket).status == 200


def test_requests_wait_for_the_agent_after_one_that_is_killed(host):
    """All agents share the listening socket: what the killed one had not accepted is the next one's."""
    one = host()
    one.use_up()
    agent = one.wait_for_agent()
    pause(agent)
    timer = threading.Timer(3.0, os.kill, (agent, signal.SIGKILL))  # all of them are waiting then; for ten seconds they would
    timer.start()
    answers = together([lambda: one.request(body=b"abc")] * 12)
    timer.join()
    assert [answer.status for answer in answers] == [202] * 12, answers
    assert one.agent_pid() != agent and len(one.queued()) == 12
    wait_until(lambda: sorted(line["decision"] for line in one.access() if line["path"] == "/kept") ==
               ["allow"] + ["queue"] * 12, "the lines of the log")


def test_kills_in_the_middle_lose_no_ticket(host):
    one = host()
    one.use_up()
    tickets, stop = [], threading.Event()
    odd = []

    def client():
        while not stop.is_set():
            answer = one.request(body=b"abc")
            if answer.status == 202:
                tickets.append(answer.headers["Location"].rpartition("/")[2])
            elif not is_plain_denial(answer):
                odd.append(answer)
    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        before = len(tickets)
        wait_until(lambda: len(tickets) > before + 20, "more tickets")
        one.kill_agent()
    stop.set()
    for thread in threads:
        thread.join()
    one.wait_for_queue()
    kept = one.queued()
    assert not odd and len(set(tickets)) == len(tickets) and not set(tickets) - set(kept)
    print(f"{len(tickets)} tickets, {len(kept) - len(tickets)} kept without an answer")


def test_no_agent_no_queue_but_never_an_error(host):
    one = host(start=False)
    one.socket.mkdir(parents=True)  # nobody can listen there
    Host.start(one)
    one.wait_for_log("queue.sock: Is a directory; retrying in 5 s")
    one.use_up()
    assert is_plain_denial(one.request()) and is_plain_denial(one.request(body=b"a" * BOUND)) and chunked(one.port, [5])[0] == 429
    assert one.ticket("0" * 32).status == 503 and one.ticket("0" * 32).headers["Retry-After"] == "1"
    one.socket.rmdir()
    one.wait_for_log("queue: listening on ")
    one.defer()


@measured
def test_an_agent_that_hangs_is_not_waited_for_for_ever(host):
    one = host()
    one.use_up()
    agent = one.wait_for_agent()
    pause(agent)
    begin = time.monotonic()
    try:
        answer = one.request()
        assert is_plain_denial(answer), (answer, time.monotonic() - begin, one.log_text())
    finally:
        os.kill(agent, signal.SIGCONT)
    assert 8 < time.monotonic() - begin < 15
    ticket, _ = one.defer()
    assert list(one.queued()) == [ticket]  # what was denied was not kept after all


def test_a_reload_and_a_stop_complete_requests_in_flight(host):
    one = host()
    one.use_up()
    one.defer()
    agent = one.wait_for_agent()
    one.write(one.file.read_text().replace("body: 10KiB", "body: 20KiB"))
    one.wait_for_log("reloaded")
    one.wait_for_agent(agent)
    wait_until(lambda: one.request(body=b"a" * 2 * BOUND).status == 202, "the new bound")
    before, stop, seen = len(one.queued()), threading.Event(), []

    def client():
        with contextlib.suppress(OSError, http.client.HTTPException):
            while not stop.is_set():
                seen.append(one.request().status)
    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(seen) > 50, "some answers")
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    stop.set()
    for thread in threads:
        thread.join()
    assert set(seen) == {202} and len(one.queued()) == before + len(seen)
    with socket.socket(socket.AF_UNIX) as s, pytest.raises(ConnectionRefusedError):
        s.connect(str(one.socket))
    assert one.nothing_left()


# ---- Who may do what ----

def test_only_workers_reach_the_queue_and_only_the_agent_the_way_out(host):
    one = host()
    is_socket = one.socket.stat()
    assert stat.S_ISSOCK(is_socket.st_mode)
    deliver = (one.runtime_dir / "deliver").stat()
    if os.geteuid() == 0:  # without a user weir the agent runs as the workers' user
        assert stat.S_IMODE(is_socket.st_mode) == 0o660 and grp.getgrgid(is_socket.st_gid).gr_name == "www-data"
        assert stat.S_IMODE(deliver.st_mode) == 0o710 and (deliver.st_uid, grp.getgrgid(deliver.st_gid).gr_name) == (0, "www-data")
    else:
        assert stat.S_IMODE(is_socket.st_mode) == 0o600
        assert stat.S_IMODE(deliver.st_mode) == 0o700
    assert stat.S_IMODE((one.folder / "state" / "queue.db").stat().st_mode) == 0o600


def through(path, request):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(str(path))
        s.sendall(request)
        response = http.client.HTTPResponse(s)
        response.begin()
        return response.status, response.headers, response.read()


def test_what_is_delivered_passes_unlimited_and_as_it_came(host):
    one = host()
    for _ in range(3):
        status, headers, body = through(
            one.runtime_dir / "deliver" / "socket",
            b"POST /denied?a=%20b HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 9.9.9.9\r\nX-Real-IP: 9.9.9.9\r\n"
            b"X-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.example\r\nContent-Length: 3\r\n\r\nabc")
        reply = json.loads(body)
        assert status == 200 and "X-RateLimit-Limit" not in headers
        assert (reply["path"], reply["length"]) == ("/denied?a=%20b", 3)
        assert {name: reply["headers"][name] for name in (
            "Host", "X-Forwarded-For", "X-Real-IP", "X-Forwarded-Proto", "X-Forwarded-Host")} == {
                "Host": "shop.example", "X-Forwarded-For": "9.9.9.9", "X-Real-IP": "9.9.9.9",
                "X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.example"}


def test_nonsense_at_the_agent_s_door(host):
    """Only nginx comes there; but a fault of it, or of an older one, must not hurt."""
    one = host()
    one.use_up("/denied")
    good = {"X-Weir-Method": "POST", "X-Weir-Target": "/x", "X-Weir-Rule": b"denied".hex(), "X-Weir-Key": "2a", "X-Weir-Cost": "1",
            "X-Weir-Bounds": "0,0,0"}

    def put(body=b"", line=b"POST /accept HTTP/1.1", **changed):
        headers = {**good, **{f"X-Weir-{name}": value for name, value in changed.items()}}
        text = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value is not None)
        return through(one.socket, line + b"\r\nHost: a\r\n" + text.encode() +
                       b"Content-Length: %d\r\n\r\n" % len(body) + body)[0]
    assert put() == 202
    for wrong in ({"Rule": None}, {"Rule": "6"}, {"Rule": "zz"}, {"Rule": "6b" * 96}, {"Key": ""}, {"Key": "6b" * 257},
                  {"Cost": "x"}, {"Cost": "-1"}, {"Bounds": "1,2"}, {"Bounds": "1,2,3,4"}, {"Bounds": "-1,0,0"},
                  {"Method": "G T"}, {"Method": "A" * 33}, {"Target": "x"}, {"Target": None}):
        assert put(**wrong) == 400, wrong
    assert put(body=b"a" * (BOUND + 1)) == 413
    assert through(one.socket, b"POST /accept HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n" +
                   "".join(f"{name}: {value}\r\n" for name, value in good.items()).encode() + b"\r\n0\r\n\r\n")[0] == 413
    assert put(line=b"GET /accept HTTP/1.1") == 404 and put(line=b"POST /other HTTP/1.1") == 404
    with socket.socket(socket.AF_UNIX) as s:  # one that ends in the middle
        s.connect(str(one.socket))
        s.sendall(b"POST /accept HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n" +
                  "".join(f"{name}: {value}\r\n" for name, value in good.items()).encode() + b"\r\nhalf")
    assert put() == 202 and len(one.queued()) == 2
