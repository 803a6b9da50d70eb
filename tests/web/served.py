#!/usr/bin/python3
"""Runs a command beside a real weir serve with gateway and admin listener: WEIR_WEB_URL, WEIR_WEB_GATEWAY and
WEIR_WEB_OPERATOR tell it where they are; WEIR_WEB_FILES_URL, _OPERATOR and _RULES those of another one, whose rules are in
that file; WEIR_WEB_HOSTS_URL and _OPERATOR those of one that shares a real Redis with another, gate-2, with the gateways in
WEIR_WEB_HOSTS_GATEWAYS and the pid of gate-2's agent in WEIR_WEB_HOSTS_AGENT. served.py COMMAND..."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from controlled import Host  # noqa: E402
from gateway import wait_until  # noqa: E402
from redis_server import RedisServer  # noqa: E402
from served import Backend  # noqa: E402

YAML = """
gateway: { listen: "127.0.0.1:@PORT@", upstreams: ["@BACKEND@"] }
admin: 127.0.0.1:@ADMIN@
state: @FOLDER@/state
segment: { path: @FOLDER@/segment, size: 16MiB }
hot_keys: 64MiB
load: { signals: { in_flight: 4 }, smooth: 100ms }
queue: on
workers: 2
"""
FILES = """
gateway: { listen: "127.0.0.1:@PORT@", upstreams: ["@BACKEND@"] }
admin: { listen: "127.0.0.1:@ADMIN@", rules: files }
state: @FOLDER@/state
segment: { path: @FOLDER@/segment, size: 1MiB }
workers: 1
rules: rules.yaml
"""
SHARED = """
host: %s
gateway: { listen: "127.0.0.1:@PORT@", upstreams: ["@BACKEND@"] }
%s
state: @FOLDER@/state
segment: { path: @FOLDER@/segment, size: 1MiB }
hot_keys: 1MiB
workers: 1
store: { url: "%s", consistency: local }
rules:
  - { name: shared, match: { path: /shared }, key: "user:${header:x-user-id}", limit: 3, window: 10m, algorithm: fixed_window }
  - { name: shared, match: { path: /shared }, key: "user:${header:x-user-id}", limit: 1, window: 10m, algorithm: fixed_window, shadow: true }
"""
RULES = "rules:\n  - { name: of-a-file, match: { path: /a }, limit: 4, window: 1m }\n"


def main():
    upstream = Backend()
    store = RedisServer()
    host, files = Host(YAML, upstream), Host(FILES, upstream)
    shared = [Host(SHARED % (name, admin, store.url()), upstream) for name, admin in
              (("gate-1", 'admin: { listen: "127.0.0.1:@ADMIN@", rules: files }'), ("gate-2", ""))]
    code = 1
    try:
        store.start()
        shared[0].begin()
        shared[1].start()
        wait_until(lambda: len(shared[0].request_json("GET", "/v1/hosts")["hosts"]) == 2, "two hosts")
        host.begin()
        (files.folder / "rules.yaml").write_text(RULES)
        files.begin()
        code = subprocess.run(sys.argv[1:], env={**os.environ, "WEIR_WEB_URL": f"http://127.0.0.1:{host.admin}",
                                                 "WEIR_WEB_GATEWAY": f"http://127.0.0.1:{host.port}",
                                                 "WEIR_WEB_OPERATOR": host.token,
                                                 "WEIR_WEB_FILES_URL": f"http://127.0.0.1:{files.admin}",
                                                 "WEIR_WEB_FILES_OPERATOR": files.token,
                                                 "WEIR_WEB_HOSTS_URL": f"http://127.0.0.1:{shared[0].admin}",
                                                 "WEIR_WEB_HOSTS_OPERATOR": shared[0].token,
                                                 "WEIR_WEB_HOSTS_GATEWAYS": " ".join(f"http://127.0.0.1:{one.port}" for one in shared),
                                                 "WEIR_WEB_HOSTS_AGENT": str(shared[1].agent_pid()),
                                                 "WEIR_WEB_FILES_RULES": str(files.folder / "rules.yaml")}).returncode
    finally:
        for one in (host, files, *shared):
            if code and one.process:
                print(one.log_text(), file=sys.stderr)
            one.remove()
        store.remove()
        upstream.stop()
    return code


sys.exit(main())
