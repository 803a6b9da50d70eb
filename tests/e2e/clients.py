"""Clients: plain ones that hide nothing, and many at once."""
import collections
import contextlib
import http.client
import socket
import threading
import time

Answer = collections.namedtuple("Answer", "status headers body")


def get(port, path="/", method="GET", headers=None, body=None, connection=None):
    c = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    c.request(method, path, body=body, headers=headers or {})
    response = c.getresponse()
    answer = Answer(response.status, response.headers, response.read())
    if not connection:
        c.close()
    return answer


def end_sockets(*sockets):
    """Closes sockets that other threads wait on. Those wake up: else the kernel goes on with the number, which is soon the
    number of somebody else's socket, and takes that one's connections or bytes."""
    for one in sockets:
        with contextlib.suppress(OSError):  # the other side may have ended it
            one.shutdown(socket.SHUT_RDWR)
        one.close()


def statuses(port, path, count, **more):
    return [get(port, path, **more).status for _ in range(count)]


def in_time(job, seconds, tries=10):
    """What the job gives when it takes less than so long; before each further try its windows, of a second, have ended."""
    for _ in range(tries):
        begun = time.monotonic()
        result = job()
        if time.monotonic() - begun < seconds:
            return result
        time.sleep(1.1)
    raise AssertionError(f"{tries} tries took {seconds} s and more: this machine is too busy")


def raw(port, data, timeout=10, until_closed=False):
    """Sends bytes as they are and returns what comes back within the timeout or until the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as s:
        s.sendall(data)
        received = b""
        try:
            while True:
                got = s.recv(65536)
                if not got:
                    break
                received += got
                if not until_closed and b"\r\n\r\n" in received:
                    break
        except TimeoutError:
            pass
        return received


def together(jobs):
    """Runs the jobs at the same time; their results in order. An error in one is an error."""
    results, problems = [None] * len(jobs), []
    barrier = threading.Barrier(len(jobs))

    def work(at, job):
        try:
            barrier.wait()
            results[at] = job()
        except Exception as problem:  # pylint: disable=broad-except
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(i, job)) for i, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return results


def flood(port, path, connections, each):
    """So many connections at once with so many requests each: how often each status came."""
    def client():
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        seen = [get(port, path, connection=c).status for _ in range(each)]
        c.close()
        return seen
    return collections.Counter(status for seen in together([client] * connections) for status in seen)
