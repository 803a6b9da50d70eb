"""Ports for the servers of tests: no two tests get the same one, in whichever processes they run.

They lie below those that the system gives to clients, who would else take them between the choice and the server's
start. The byte of a file that stands for a port is locked for as long as the process lives that was given it. The port
10,000 above belongs to it, too: nodes of a Redis cluster talk to each other there.
"""
import contextlib
import fcntl
import functools
import os
import pathlib
import random
import socket
import tempfile
import threading

FIRST, COUNT = 12000, 10000
ABOVE = 10000
GIVEN = set()  # by this process, whose own locks do not keep it from anything
GIVING = threading.Lock()


@functools.lru_cache
def register():
    """A descriptor that stays open: closing any descriptor of a file releases all locks on it."""
    path = pathlib.Path(tempfile.gettempdir()) / f"weir-test-ports-{os.geteuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@functools.lru_cache
def usable():
    """Ports that the system does not assign by itself; all ports on a machine without any."""
    low, high = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = range(FIRST, FIRST + COUNT)
    return frozenset(port for port in ports if not low <= port <= high) or frozenset(ports)


def is_free(port):
    with contextlib.suppress(OSError), socket.socket() as s:
        s.bind(("127.0.0.1", port))
        return True
    return False


def claim(first, count=1):
    """Whether these numbers are the caller's from now on. They need not be ports (wire.py)."""
    numbers = set(range(first, first + count))
    with GIVING:
        if numbers & GIVEN:
            return False
        try:
            fcntl.lockf(register(), fcntl.LOCK_EX | fcntl.LOCK_NB, count, first)
        except OSError:
            return False
        GIVEN.update(numbers)
    return True


def free_ports_in_a_row(count):
    """The first of them."""
    for first in random.sample(range(FIRST, FIRST + COUNT - count), 1000):
        ports = range(first, first + count)
        if usable().issuperset(ports) and claim(first, count) and \
                all(is_free(port) and is_free(port + ABOVE) for port in ports):
            return first
    raise RuntimeError("no free ports")


def free_port():
    return free_ports_in_a_row(1)
