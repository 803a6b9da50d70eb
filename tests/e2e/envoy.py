"""A real Envoy in front of the gateway's backend, whose rate-limit filter calls weir."""
import json
import os
import pathlib
import shutil
import socket
import subprocess

from gateway import wait_until
from ports import free_port

BINARY = pathlib.Path(os.environ.get("WEIR_ENVOY", pathlib.Path(__file__).parents[2] / "build" / "envoy" / "envoy"))


def cluster(name, port, **more):
    return {"name": name, "type": "STATIC", "connect_timeout": "1s", "load_assignment": {
        "cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {
            "socket_address": {"address": "127.0.0.1", "port_value": port}}}}]}]}, **more}


def http2(**more):
    return {"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}}}}, **more}


def typed(kind, **more):
    return {"@type": f"type.googleapis.com/envoy.extensions.filters.{kind}", **more}


def configuration(port, backend, service, rate_limits, filter_options):
    limit = typed("http.ratelimit.v3.RateLimit", domain="d", timeout="5s", rate_limit_service={
        "transport_api_version": "V3", "grpc_service": {"envoy_grpc": {"cluster_name": "weir"}}}, **filter_options)
    manager = typed("network.http_connection_manager.v3.HttpConnectionManager", stat_prefix="x", route_config={
        "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "backend"}, "typed_per_filter_config": {
                "envoy.filters.http.ratelimit": typed("http.ratelimit.v3.RateLimitPerRoute", rate_limits=rate_limits)}}]}]},
        http_filters=[{"name": "envoy.filters.http.ratelimit", "typed_config": limit},
                      {"name": "envoy.filters.http.router", "typed_config": typed("http.router.v3.Router")}])
    # Envoy calls only endpoints that passed a health check. After a check that failed, and before any request, the
    # next would come a minute later.
    check = {"timeout": "1s", "interval": "1s", "no_traffic_interval": "1s", "unhealthy_threshold": 100, "healthy_threshold": 1,
             "grpc_health_check": {"service_name": "envoy.service.ratelimit.v3.RateLimitService"}}
    return {"static_resources": {
        "listeners": [{"name": "in", "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
                       "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}]}],
        "clusters": [cluster("backend", backend),
                     cluster("weir", service, **http2(health_checks=[check],
                                                      common_lb_config={"healthy_panic_threshold": {"value": 0}}))]}}


class Envoy:
    """With a configuration for the test, or with `text`, in which the ports are those of examples/envoy.yaml."""

    def __init__(self, folder, backend, service, rate_limits=(), text=None, **filter_options):
        self.port = free_port()
        path = folder / f"envoy-{self.port}.yaml"
        for there, here in ((10000, self.port), (9000, backend), (8081, service)):
            text = text and text.replace(f"port_value: {there} ", f"port_value: {here} ")
        path.write_text(text or json.dumps(configuration(self.port, backend, service, list(rate_limits), filter_options)))
        self.log = open(folder / f"envoy-{self.port}.log", "wb")
        self.process = subprocess.Popen([BINARY, "-c", path, "--concurrency", "1", "--disable-hot-restart", "-l", "warning"],
                                        stdout=self.log, stderr=subprocess.STDOUT)
        wait_until(self.listens, "Envoy's start")

    def listens(self):
        assert self.process.poll() is None, pathlib.Path(self.log.name).read_text()[-2000:]
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def available():
    return BINARY.exists() or shutil.which(str(BINARY))
