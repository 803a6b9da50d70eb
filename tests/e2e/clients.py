"""HTTP clients: single requests, raw bytes, and many at once."""
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
    """Closes sockets that other threads wait on, and wakes those up: otherwise they would continue with the descriptor's
    number, which may soon be that of another socket."""
    for one in sockets:
        with contextlib.suppress(OSError):  # the other side may have ended it
            one.shutdown(socket.SHUT_RDWR)
        one.close()


def statuses(port, path, count, **more):
    return [get(port, path, **more).status for _ in range(count)]


def in_time(job, seconds, tries=10):
    """The result of the job once it takes less than `seconds`; between tries its windows, of a second, end."""
    for _ in range(tries):
        begun = time.monotonic()
        result = job()
        if time.monotonic() - begun < seconds:
            return result
        time.sleep(1.1)
    raise AssertionError(f"{tries} tries took {seconds} s and more: this machine is too busy")


def raw(port, data, timeout=10, until_closed=False):
    """Sends bytes unchanged; returns what is received within the timeout or until the connection ends."""
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
    """Runs the jobs concurrently; returns their results in order, or raises the first error."""
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
    """So many concurrent connections with so many requests each: the number of replies of each status."""
    def client():
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        seen = [get(port, path, connection=c).status for _ in range(each)]
        c.close()
        return seen
    return collections.Counter(status for seen in together([client] * connections) for status in seen)
