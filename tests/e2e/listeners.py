"""A fuzzer of whole listeners: requests that are almost right, sent to a running weir serve.

Each listener has a generator of requests (grammar first, then mutations of bytes). The generators are seeded, so a failure is
repeated by its seed. A run ends when a process of the server died, a sanitizer reported something, a request with the right
credentials is no longer answered, or its time is over.
"""
import collections
import contextlib
import json
import pathlib
import random
import socket
import string
import struct
import time

import hpack

ROOT = pathlib.Path(__file__).parents[2]
INTERESTING = [b"0", b"-1", b"1", b"255", b"256", b"4095", b"4096", b"4097", b"65535", b"65536", b"2147483648", b"-9223372036854775808",
               b"9223372036854775807", b"18446744073709551616", b"1e309", b"NaN", b"null", b"true", b"[]", b"{}", b'""', b"%", b"%0", b"%00",
               b"%ff", b"%2e%2e", b"..", b";x=1", b"\t", b" ", b"\x00", b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\r\n", b"\n\n", b"&", b"=",
               b"${client_ip}", b"${", b"*", b"(a+)+$", b"A" * 255, b"A" * 256, b"A" * 257, b"%41" * 300, b"B" * 5000]


def corpus(name):
    return [path.read_bytes() for path in sorted((ROOT / "fuzz" / "corpus" / name).iterdir())]


class Chance(random.Random):
    """Random choices of a fuzzer."""

    def one_in(self, count):
        return self.randrange(count) == 0

    def word(self):
        if self.one_in(3):
            return self.choice(INTERESTING)
        return "".join(self.choices(string.ascii_lowercase + string.digits, k=self.randint(1, 12))).encode()

    def mutate(self, data, most=4):
        """The bytes with a few changes: flipped, removed, repeated, replaced, cut, inserted."""
        data = bytearray(data)
        for _ in range(self.randint(1, most)):
            at = self.randint(0, len(data))
            how = self.randrange(6)
            if how == 0 and at < len(data):
                data[at] ^= 1 << self.randrange(8)
            elif how == 1:
                del data[at:at + self.randint(1, 8)]
            elif how == 2:
                data[at:at] = data[at:at + self.randint(1, 64)] * self.randint(1, 8)
            elif how == 3:
                data[at:at] = self.choice(INTERESTING)
            elif how == 4 and self.one_in(4):
                del data[at:]
            elif at < len(data):
                data[at] = self.randrange(256)
        return bytes(data)

    def value(self, depth=0):
        """A JSON value."""
        how = self.randrange(8 if depth < 3 else 5)
        if how < 2:
            return self.word().decode("latin-1")
        if how == 2:
            return self.choice([0, 1, -1, 2**31, 2**63, -2**63, 1.5, 1e300])
        if how == 3:
            return self.choice([None, True, False])
        if how == 4:
            return self.word().decode("latin-1") * self.choice([1, 1, 50])
        if how < 7:
            return {self.word().decode("latin-1"): self.value(depth + 1) for _ in range(self.randint(0, 4))}
        return [self.value(depth + 1) for _ in range(self.randint(0, 6))]

    def spoiled(self, known):
        """A JSON object like one that is known, with members changed, added or left out."""
        made = json.loads(json.dumps(known))
        for _ in range(self.randint(0, 3)):
            inner = made
            while isinstance(inner, dict) and inner and self.one_in(2):
                inner = inner[self.choice(sorted(inner))]
            if not isinstance(inner, dict):
                continue
            name = self.choice(sorted(inner)) if inner and not self.one_in(3) else self.word().decode("latin-1")
            if self.one_in(4):
                inner.pop(name, None)
            else:
                inner[name] = self.value()
        text = json.dumps(made, ensure_ascii=self.one_in(2)).encode("utf-8", "surrogatepass")
        return self.mutate(text) if self.one_in(6) else text


# ---- HTTP/1.1 ----

def http_request(chance, method, path, headers, body):
    """Bytes of a request, sometimes broken."""
    lines = [b"%s %s HTTP/1.1" % (method, path), b"Host: fuzz"]
    lines += [name + b": " + value for name, value in headers]
    if body or method in (b"POST", b"PUT"):
        length = len(body) if not chance.one_in(40) else chance.choice([0, 1, len(body) + 5, 2**31, 2**64])
        lines.append(b"Content-Length: %d" % length)
    made = b"\r\n".join(lines) + b"\r\n\r\n" + body
    return chance.mutate(made) if chance.one_in(12) else made


def query(chance, *names):
    made = [chance.choice(names) + b"=" + chance.word() for _ in range(chance.randint(0, 3))] if names else []
    return b"?" + b"&".join(made).replace(b" ", b"+").replace(b"\r\n", b"%0d%0a").replace(b"\n\n", b"%0a") if made else b""


def plain(value):
    """As it may stand in a header or a path: without line ends."""
    return value.replace(b"\r", b"").replace(b"\n", b"").replace(b"\0", b"")


def extra_headers(chance, known):
    made = []
    for _ in range(chance.randint(0, 4)):
        made.append((chance.choice(known), plain(chance.choice([b"", b" ", b"\t"]) + chance.word() + chance.choice([b"", b" ", b"\t"]))))
    return made


IDENTITY = [b"X-API-Key", b"X-User-Id", b"X-Forwarded-For", b"Forwarded", b"Cookie", b"X-Plan", b"X-Cost", b"Accept", b"Content-Type",
            b"If-Match", b"If-None-Match", b"Range", b"Expect", b"Upgrade", b"Transfer-Encoding", b"Idempotency-Key", b"Origin"]


def gateway_request(chance):
    path = chance.choice([b"/", b"/two", b"/queue", b"/strict", b"/shared?user=a", b"/xabab", b"/api/items", b"/auth/login", b"/.weir/tickets/" + plain(chance.word())])
    path += plain(chance.word()).replace(b" ", b"%20") if chance.one_in(3) else b""
    return http_request(chance, chance.choice([b"GET", b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"BREW"]),
                        path + query(chance, b"a", b"user", b"key"), extra_headers(chance, IDENTITY),
                        chance.word() if chance.one_in(3) else b"")


ATTRIBUTES = {"attributes": {"path": "/strict", "method": "GET", "ip": "192.0.2.1", "headers": {"X-API-Key": "k"}}, "cost": 1}
DESCRIPTORS = {"domain": "d", "descriptors": [[{"key": "k", "value": "v"}]], "hits": 1}
DIRECT = {"key": "k", "limit": 5, "window": "1m", "burst": 5, "algorithm": "token_bucket", "cost": 1}
CHECKS = [
    (b"POST", b"/v1/check", ATTRIBUTES), (b"POST", b"/v1/check", DESCRIPTORS), (b"POST", b"/v1/check", DIRECT),
    (b"POST", b"/v1/check", {"batch": [ATTRIBUTES, DESCRIPTORS, DIRECT]}), (b"POST", b"/v1/refund", ATTRIBUTES),
    (b"POST", b"/v1/reserve", {**ATTRIBUTES, "for": "10s"}), (b"POST", b"/v1/commit", {"reservation": "x", "cost": 1}),
    (b"POST", b"/v1/cancel", {"reservation": "x"}), (b"POST", b"/v1/release", {"lease": "AQFM"}), (b"POST", b"/v1/renew", {"lease": "AQFM"}),
    (b"PUT", b"/v1/keys/two/k/block", {"for": "1s"}), (b"DELETE", b"/v1/keys/two/k", {}), (b"GET", b"/v1/keys/two/k", {}),
    (b"POST", b"/json", {"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}], "hitsAddend": 1}),
]


def bearer(token):
    return [(b"Authorization", b"Bearer " + token)] if token else []


def service_request(token):
    def make(chance):
        if chance.one_in(8):
            path = chance.choice([b"/healthcheck", b"/v1/openapi.json", b"/v1/keys/two/" + plain(chance.word()).replace(b" ", b"%20")])
            return http_request(chance, b"GET", path, bearer(token), b"")
        method, path, known = chance.choice(CHECKS)
        return http_request(chance, method, path, [*bearer(token), (b"Content-Type", b"application/json")], chance.spoiled(known))
    return make


FORWARDED = [b"X-Forwarded-Uri", b"X-Forwarded-Method", b"X-Forwarded-Host", b"X-Forwarded-For", b"X-Original-URI", b"X-Original-Method",
             b"X-Original-Host", b"X-Forwarded-Proto", b"Forwarded", b"X-API-Key", b"Cookie"]


def forward_auth_request(token):
    def make(chance):
        headers = [*([(b"X-Weir-Token", token)] if token else []), *extra_headers(chance, FORWARDED)]
        if not chance.one_in(4):
            headers.append((b"X-Forwarded-Uri", chance.choice([b"/two", b"/api/items?a=b", plain(b"/" + chance.word())])))
        return http_request(chance, b"GET", chance.choice([b"/v1/auth", b"/v1/auth/403"]), headers, b"")
    return make


RULE = {"name": "two", "match": {"path": "/two", "method": ["GET"]}, "key": "ip:${client_ip}", "limit": 2, "window": "1h", "algorithm": "token_bucket",
        "burst": 2, "cost": {"/x": 2, "default": 1}}
BODIES = {
    (b"POST", b"/v1/rules"): RULE,
    (b"PUT", b"/v1/rules/two"): RULE,
    (b"POST", b"/v1/validate"): RULE,
    (b"POST", b"/v1/rules/two/publish"): {"stage": "draft", "version": 1, "reason": "fuzz"},
    (b"POST", b"/v1/rules/two/rollback"): {"version": 1, "reason": "fuzz"},
    (b"POST", b"/v1/revisions"): {"documents": [{"name": "two", "version": 1, "stage": "draft"}], "reason": "fuzz"},
    (b"POST", b"/v1/revisions/1/rollback"): {"reason": "fuzz"},
    (b"PUT", b"/v1/keys/two/k/block"): {"for": "1s"},
    (b"POST", b"/v1/tokens"): {"name": "fuzz", "role": "viewer", "expires": "1h"},
    (b"POST", b"/v1/session"): {"token": "wrong"},
    (b"POST", b"/v1/queue/x/cancel"): {},
    (b"POST", b"/v1/queue/x/requeue"): {},
}
LOOKS = [b"/v1/rules", b"/v1/rules/two", b"/v1/rules/two/versions", b"/v1/rules/two/diff", b"/v1/rules/published", b"/v1/revisions", b"/v1/revisions/1",
         b"/v1/keys/two/k", b"/v1/tokens", b"/v1/audit", b"/v1/session", b"/v1/stats", b"/v1/stats/history", b"/v1/stats/hot", b"/v1/advice",
         b"/v1/hosts", b"/v1/queue", b"/v1/queue/stats", b"/v1/queue/x", b"/v1/openapi.json", b"/healthz", b"/", b"/index.html"]
QUERIES = [b"q", b"after", b"by", b"near", b"limit", b"stage", b"kind", b"version", b"from", b"to", b"reason", b"rule", b"state", b"withdraw", b"seconds"]


def admin_request(token):
    def make(chance):
        headers = [*bearer(token), *extra_headers(chance, IDENTITY)] if chance.one_in(4) else bearer(token)
        if chance.one_in(2):
            return http_request(chance, chance.choice([b"GET", b"GET", b"GET", b"DELETE", b"HEAD"]),
                                chance.choice(LOOKS) + query(chance, *QUERIES), headers, b"")
        method, path = chance.choice(sorted(BODIES))
        kind = chance.choice([b"application/json", b"application/json", b"application/yaml"])
        body = {"token": token.decode()} if path == b"/v1/session" and token else BODIES[method, path]  # few wrong ones: they delay all
        return http_request(chance, method, path + query(chance, *QUERIES), [*headers, (b"Content-Type", kind)], chance.spoiled(body))
    return make


PATIENCE = 0.2  # seconds, for a reply


def admin_greeting(token):
    """After wrong tokens the first right one of a connection is checked up to 2 s late, those behind it are not."""
    return b"GET /v1/session HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + b"\r\n\r\n"


class Http:
    """One connection at a time; statuses are counted. With a greeting that is sent first on each, and replied to."""

    def __init__(self, port, make, greeting=None):
        self.port, self.make, self.statuses, self.socket, self.greeting = port, make, collections.Counter(), None, greeting

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket = None

    def step(self, chance):
        request = self.make(chance)
        try:
            if not self.socket:
                self.connect()
            self.socket.sendall(request)
            self.statuses[self.answer()] += 1
        except (OSError, ValueError):
            self.statuses["none"] += 1
            self.close()

    def connect(self):
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        if self.greeting:
            self.socket.settimeout(10)
            self.socket.sendall(self.greeting)
            assert self.answer() == 200
            self.socket.settimeout(PATIENCE)

    def answer(self):
        """The status of one reply, read to its end; else the connection is closed."""
        got = b""
        while b"\r\n\r\n" not in got:
            more = self.socket.recv(65536)
            if not more:
                raise ValueError
            got += more
        head, _, body = got.partition(b"\r\n\r\n")
        lowered = head.lower()
        status = int(head.split(b" ", 2)[1])
        length = lowered.partition(b"\r\ncontent-length: ")[2].split(b"\r\n")[0]
        if b"connection: close" in lowered or not length or int(length) < len(body):
            self.close()
            return status
        while len(body) < int(length):
            body += self.socket.recv(65536) or b"\0" * int(length)
        if status >= 400:
            self.close()  # the rest of a broken request would be taken for the next one
        return status


# ---- RESP ----

COMMANDS = [[b"CL.THROTTLE", b"k", b"15", b"30", b"60", b"1"], [b"WEIR.CHECK", b"COST", b"1", b"path", b"/two", b"header:X-API-Key", b"k"],
            [b"WEIR.CHECK", b"DOMAIN", b"d", b"HITS", b"2", b"k", b"v"], [b"WEIR.RENEW", b"x"], [b"WEIR.PEEK", b"path", b"/two"],
            [b"WEIR.RESET", b"two", b"k"], [b"WEIR.BLOCK", b"two", b"k", b"1"], [b"WEIR.STATS"], [b"WEIR.RELEASE", b"x"], [b"HELLO", b"3"], [b"PING"],
            [b"CLIENT", b"SETNAME", b"f"], [b"COMMAND"], [b"INFO"], [b"SELECT", b"0"], [b"ECHO", b"x"], [b"AUTH", b"wrong-password"]]


class Resp:
    def __init__(self, port, password):
        self.port, self.password, self.socket, self.statuses = port, password, None, collections.Counter()

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket = None

    def step(self, chance):
        words = list(chance.choice(COMMANDS))
        if words[0] == b"AUTH" and not chance.one_in(50):  # wrong ones are slowed down on purpose
            words = [b"PING"]
        for _ in range(chance.randint(0, 2)):
            at = chance.randrange(len(words))
            words[at:at + chance.randrange(2)] = [chance.word()]
        request = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        if chance.one_in(8):
            request = b" ".join(words) + b"\r\n"
        if chance.one_in(10):
            request = chance.mutate(chance.choice(self.seeds()) if chance.one_in(2) else request)
        try:
            if not self.socket:
                self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=10)
                if self.password:
                    self.socket.sendall(b"AUTH " + self.password + b"\r\n")
                    assert self.socket.recv(64).startswith(b"+OK")  # late, after wrong ones of this address
                self.socket.settimeout(0.2)
            self.socket.sendall(request)
            got = self.socket.recv(65536)
            self.statuses[got[:4] if got[:1] == b"-" else got[:1]] += 1
            if not got or got[:1] == b"-" and b"Protocol" in got:
                self.close()
        except OSError:
            self.statuses["none"] += 1
            self.close()

    @staticmethod
    def seeds():
        return corpus("resp")


# ---- gRPC ----

def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


METHODS = ["/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "/grpc.health.v1.Health/Check", "/nothing/Here"]


class Grpc:
    """Calls with almost right messages, in almost right frames of HTTP/2."""

    def __init__(self, port):
        self.port, self.statuses, self.seeds = port, collections.Counter(), [data[1:] for data in corpus("rls")]

    def close(self):
        pass

    def step(self, chance):
        message = chance.mutate(chance.choice(self.seeds)) if not chance.one_in(5) else chance.choice(self.seeds)
        headers = [(":method", "POST"), (":scheme", "http"), (":path", chance.choice(METHODS[:1] * 3 + METHODS)), (":authority", "fuzz"),
                   ("content-type", "application/grpc"), ("te", "trailers")]
        if chance.one_in(6):
            headers.append((chance.word().decode("latin-1"), chance.word().decode("latin-1")))
        length = len(message) if not chance.one_in(12) else chance.choice([0, len(message) + 1, 2**31, 2**32 - 1])
        body = bytes([chance.choice([0, 0, 0, 1, 255])]) + struct.pack(">I", length) + message
        frames = frame(4, 0, 0, b"") + frame(1, 4, 1, hpack.Encoder().encode(headers))
        cut = chance.randint(0, len(body))
        frames += frame(0, 0, 1, body[:cut]) + frame(0, 1, 1, body[cut:])
        if chance.one_in(6):
            frames = chance.mutate(frames)
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=0.3) as s:
            s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frames)
            got = b""
            while b"grpc-status" not in got and len(got) < 65536 and not self.is_over(got):
                more = s.recv(65536)
                if not more:
                    break
                got += more
            self.statuses["answer" if self.is_over(got) else "none"] += 1
            return
        self.statuses["none"] += 1

    @staticmethod
    def is_over(got):
        """Whether a frame that ends stream 1, or the connection, has come."""
        at = 0
        while at + 9 <= len(got):
            length, kind, flags = int.from_bytes(got[at:at + 3], "big"), got[at + 3], got[at + 4]
            if kind in (3, 7) or kind in (0, 1) and flags & 1:
                return True
            at += 9 + length
        return False


def run(target, seed, seconds=None, steps=None, look=lambda: None):
    """So many steps, or for so long; `look` is called each hundred and raises when the server is not as it was."""
    chance, end, count = Chance(seed), time.monotonic() + (seconds or 1e9), 0
    with contextlib.closing(target):
        while (steps is None or count < steps) and time.monotonic() < end:
            target.step(chance)
            count += 1
            if count % 100 == 0:
                look()
    look()
    return count
