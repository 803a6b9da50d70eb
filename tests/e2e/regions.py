"""Three regions with a store each. What they send each other passes relays, or the wires of namespaces (wire.py)."""
import http.client
import json
import subprocess
import time

from fleet import Api, Load
from gateway import wait_until
from redis_server import RedisServer
from relay import Relay
from served import Served

NAMES = ["eu-west", "us-east", "ap-south"]
ONE_WAY = 0.04  # seconds between two regions
YAML = """
segment: {{ path: @FOLDER@/segment, size: 8MiB }}
workers: 1
host: {host}
gateway: {{ listen: '{address}:@PORT@', upstreams: ['{api}'] }}
metrics: 127.0.0.1:@METRICS@
store: {store}
region: {{ name: {name}, interval: {interval}, hot: {hot} }}
regions: {{ {others} }}
rules:
{rules}"""


class Regions:
    """
    Three stores, and `hosts` times weir serve in each region. `clocks`: by how many seconds those of the stores are ahead.
    `sites`: namespaces of the regions' hosts (wire.Site); their wires lead to the stores of the others.
    """

    names = NAMES

    def __init__(self, rules, hosts=1, interval="1s", hot="10%", one_way=ONE_WAY, clocks=(0, 0, 0), sites=None):
        self.api = Api()
        self.sites = sites or [None] * 3
        bind = ("--bind", "127.0.0.1", *(site.store for site in sites), "--protected-mode", "no") if sites else ()
        self.stores = [RedisServer(clock=clock, socket=True, more=bind).start() for clock in clocks]
        self.links = {} if sites else {(one, other): Relay(self.stores[other].port)
                                       for one in range(3) for other in range(3) if one != other}
        self.hosts = []
        for one, name in enumerate(NAMES):
            site = self.sites[one]
            others = ", ".join(f"{NAMES[other]}: 'redis://{self.address(one, other)}'" for other in range(3) if other != one)
            store = f"redis+unix://{self.stores[one].path}"
            self.hosts.append([Served(YAML.format(host=f"{name}-{at}", api=self.api.url, store=store, name=name, others=others,
                                                  rules=rules, interval=interval, hot=hot,
                                                  address=site.address if site else "127.0.0.1")) for at in range(hosts)])
            for host in self.hosts[-1] if site else ():
                host.inside = site.inside
        for link in self.links.values():
            link.be(delay=one_way)

    def address(self, one, other):
        """Of a region's store, for hosts of another one."""
        site = self.sites[one]
        return f"{site.store}:{self.stores[other].port}" if site else f"127.0.0.1:{self.links[one, other].port}"

    def __enter__(self):
        try:
            for host in self.all():
                host.start()
            for region in self.hosts:
                wait_until(lambda region=region: self.leader(region), "an elected agent")
            for region in self.hosts:
                wait_until(lambda region=region: self.states(region) == {"up"}, "the other regions")
            return self
        except BaseException:
            self.remove()
            raise

    def __exit__(self, *_):
        self.remove()

    def remove(self):
        for host in self.all():
            host.remove()
        for link in self.links.values():
            link.remove()
        for store in self.stores:
            store.remove()
        self.api.remove()

    def all(self):
        return [host for region in self.hosts for host in region]

    @staticmethod
    def seen(host):
        words = [*host.inside, "curl", "-sS", f"http://127.0.0.1:{host.metrics}/weir/status"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        return json.loads(done.stdout).get("regions", [])

    def ask(self, region, path):
        """The status of a reply of the region's first host."""
        site = self.sites[region]
        connection = http.client.HTTPConnection(site.address if site else "127.0.0.1", self.hosts[region][0].port, timeout=20)
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
        return status

    def denied_everywhere(self, path):
        """Uses up a key that all regions know. Returns how long after the first denial the last region denies."""
        for region in range(3):
            assert self.ask(region, path) == 200
        while self.ask(0, path) == 200:
            pass
        begun, denied = time.monotonic(), {0}
        while len(denied) < 3 and time.monotonic() < begun + 10:
            denied |= {at for at in (1, 2) if at not in denied and self.ask(at, path) == 429}
            time.sleep(0.005)
        return time.monotonic() - begun

    def leader(self, region):
        """The host of the region whose agent exchanges."""
        return next((host for host in region if any(other["leader"] for other in self.seen(host))), None)

    def states(self, region):
        leader = self.leader(region)
        return {other["state"] for other in self.seen(leader)} if leader else set()

    def load(self, path, **more):
        targets = [f"{site.address if site else '127.0.0.1'}:{host.port}" for site, region in zip(self.sites, self.hosts)
                   for host in region]
        return Load(targets, [path], **more)

    def used(self, region, path, key):
        """Units that a region's store has counted of a fixed window: its value ends with them."""
        value = self.stores[region].client().get(f"weir:{path}:{key}")
        return int(value[-4:]) if value else 0

    def settled(self, path, admitted):
        """Waits until every store has counted what all regions admitted of each key, exactly."""
        def counted():
            return all(self.used(region, path, key) == count for region in range(3) for key, count in admitted.items())
        try:
            wait_until(counted, "the counts of all regions", 20)
        except AssertionError:
            found = {key: (count, [self.used(region, path, key) for region in range(3)]) for key, count in admitted.items()}
            raise AssertionError({key: what for key, what in found.items() if set(what[1]) != {what[0]}}) from None
