"""Network namespaces for hosts, and a wire from each to the store that is slow, lossy or cut as configured.

A Site is a namespace with two ways out: a fast one for clients (veth), and the wire for the store: two tun devices, and
between them a process that carries IP packets, each after a delay, some of them never. So it is the kernel's own TCP
that meets loss and silence, also where tc has no netem.
"""
import ctypes
import fcntl
import functools
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import threading
import time

from ports import claim

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
SITES = 1 << 16  # their numbers are claimed as ports are, and are none


def ip(*arguments, namespace=None, check=True):
    inside = ["ip", "netns", "exec", namespace] if namespace else []
    return subprocess.run([*inside, "ip", *arguments], check=check, capture_output=True, text=True)


@functools.lru_cache
def possible():
    """Whether this machine lets us make namespaces and tun devices; else why not."""
    if os.geteuid() != 0:
        return False, "network namespaces need root"
    name = f"weir-try-{os.getpid()}-{threading.get_ident()}"
    done = ip("netns", "add", name, check=False)
    if done.returncode:
        return False, f"no network namespaces: {done.stderr.strip()}"
    ip("netns", "del", name, check=False)
    return os.access("/dev/net/tun", os.W_OK), "no /dev/net/tun"


class Site:
    """One namespace. Hosts inside reach the store at .store; clients outside reach hosts at .address."""

    def __init__(self):
        taken = ip("-br", "addr").stdout
        n = next(n for n in random.sample(range(1, 255), 254) if f"10.214.{n}." not in taken and claim(SITES + n))
        self.name = f"weir-{os.getpid()}-{n}"
        self.store, self.address = f"10.213.{n}.1", f"10.214.{n}.2"
        self.link, inside = f"wc{n}", f"wd{n}"
        ip("netns", "add", self.name)
        ip("link", "add", self.link, "type", "veth", "peer", "name", inside, "netns", self.name)
        ip("addr", "add", f"10.214.{n}.1/30", "dev", self.link)
        ip("link", "set", self.link, "up")
        for words in (("addr", "add", f"{self.address}/30", "dev", inside), ("link", "set", inside, "up"),
                      ("link", "set", "lo", "up")):
            ip(*words, namespace=self.name)
        self.wire = subprocess.Popen([sys.executable, __file__, self.name, str(n)], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True)
        assert self.wire.stdout.readline() == "ready\n"

    @property
    def inside(self):
        """What to put before a command that is to run in there."""
        return ["ip", "netns", "exec", self.name]

    def be(self, delay=0.0, loss=0.0, cut=False):
        """Each way: seconds of delay, the part of packets that is lost, or all of them."""
        self.wire.stdin.write(json.dumps({"delay": delay, "loss": loss, "cut": cut}) + "\n")
        self.wire.stdin.flush()
        assert self.wire.stdout.readline() == "ready\n"

    def remove(self):
        self.wire.stdin.close()
        self.wire.wait(10)
        self.wire.stdout.close()
        ip("link", "del", self.link, check=False)
        ip("netns", "del", self.name, check=False)


def tun(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22s", name.encode(), IFF_TUN | IFF_NO_PI, b""))
    return device


def up(name, here, there):
    subprocess.run(["ip", "addr", "add", here, "peer", there, "dev", name], check=True)
    subprocess.run(["ip", "link", "set", name, "up"], check=True)


def enter(namespace):
    with open(f"/run/netns/{namespace}", "rb") as where:
        if ctypes.CDLL(None, use_errno=True).setns(where.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def carry(ends):
    """Until stdin ends: packets from each end to the other."""
    rules = {"delay": 0.0, "loss": 0.0, "cut": False}
    under_way, number = [], 0
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    chance = random.Random(7)
    while True:
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            _, _, to, packet = heapq.heappop(under_way)
            os.write(to, packet)
        wait = max(under_way[0][0] - now, 0) if under_way else None
        for ready in select.select([*ends, sys.stdin], [], [], wait)[0]:
            if ready is sys.stdin:
                line = sys.stdin.readline()
                if not line:
                    return
                rules = json.loads(line)
                under_way = [] if rules["cut"] else under_way
                print("ready", flush=True)
                continue
            packet = os.read(ready, 65536)
            if rules["cut"] or rules["loss"] and chance.random() < rules["loss"]:
                continue
            number += 1
            heapq.heappush(under_way, (time.monotonic() + rules["delay"], number, other[ready], packet))


def main():
    namespace, n = sys.argv[1], sys.argv[2]
    here, there = f"10.213.{n}.1", f"10.213.{n}.2"
    outside = tun(f"wt{n}")
    up(f"wt{n}", here, there)
    enter(namespace)
    inside = tun(f"wu{n}")
    up(f"wu{n}", there, here)
    print("ready", flush=True)
    carry((outside, inside))


if __name__ == "__main__":
    main()
