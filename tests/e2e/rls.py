"""Envoy's rate-limit service as a client sees it: messages compiled from proto/ by the real protoc, calls by the real gRPC."""
import contextlib
import pathlib
import subprocess
import sys
import tempfile

import grpc

ROOT = pathlib.Path(__file__).parents[2]
RLS = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
CHECK = "/grpc.health.v1.Health/Check"
LOCATIONS = """
    weir off;
    client_max_body_size 2m;
    location /envoy.service.ratelimit.v3.RateLimitService/ { weir_rls; }
    location /grpc.health.v1.Health/ { weir_rls; }
    location = /json { weir_rls_json; }
"""


def compiled():
    """The modules (rls_pb2, health_pb2)."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["protoc", f"-I{ROOT}/proto", "-I/usr/include", f"--python_out={folder}",
                        "rls.proto", "health.proto", "protobuf-c/protobuf-c.proto"], check=True, timeout=60)
        sys.path.insert(0, folder)
        try:
            import health_pb2
            import rls_pb2
        finally:
            sys.path.remove(folder)
    return rls_pb2, health_pb2


rls_pb2, health_pb2 = compiled()
OK, OVER = rls_pb2.RateLimitResponse.OK, rls_pb2.RateLimitResponse.OVER_LIMIT


def descriptor(*entries, hits=None, negative=False, limit=None):
    """descriptor("key=value", "key2"), and what else one may have; limit: (requests per unit, unit)."""
    made = rls_pb2.RateLimitDescriptor(is_negative_hits=negative)
    for entry in entries:
        key, _, value = entry.partition("=")
        made.entries.add(key=key, value=value)
    if hits is not None:
        made.hits_addend.value = hits
    if limit is not None:
        made.limit.requests_per_unit, made.limit.unit = limit
    return made


def request(*descriptors, domain="d", hits=0):
    """Descriptors as such, or as the text of their only entry."""
    return rls_pb2.RateLimitRequest(domain=domain, hits_addend=hits, descriptors=[
        descriptor(each) if isinstance(each, str) else each for each in descriptors])


class Client:
    def __init__(self, port, credentials=None, **options):
        where, given = f"127.0.0.1:{port}", list(options.get("options", ()))
        self.channel = (grpc.secure_channel(where, credentials, options=given) if credentials
                        else grpc.insecure_channel(where, options=given))
        self.should = self.channel.unary_unary(RLS, rls_pb2.RateLimitRequest.SerializeToString,
                                               rls_pb2.RateLimitResponse.FromString)
        self.check = self.channel.unary_unary(CHECK, health_pb2.HealthCheckRequest.SerializeToString,
                                              health_pb2.HealthCheckResponse.FromString)

    def request(self, *descriptors, domain="d", hits=0):
        return self.should(request(*descriptors, domain=domain, hits=hits), timeout=10)

    def codes(self, *descriptors, count, **more):
        """The overall codes of so many calls."""
        return [self.request(*descriptors, **more).overall_code for _ in range(count)]

    def raw(self, data, method=RLS, **more):
        return self.channel.unary_unary(method)(data, timeout=10, **more)


@contextlib.contextmanager
def client(port, **more):
    made = Client(port, **more)
    with made.channel:
        yield made


def frame(message, flag=0, length=None):
    return bytes([flag]) + (len(message) if length is None else length).to_bytes(4, "big") + message
