#!/usr/bin/python3
"""Runs a command beside a real weir serve with gateway and admin listener: WEIR_WEB_URL, WEIR_WEB_GATEWAY and
WEIR_WEB_OPERATOR tell it where they are; WEIR_WEB_FILES_URL, _OPERATOR and _RULES those of another one, whose rules are in
that file. served.py COMMAND..."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from controlled import Host  # noqa: E402
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
RULES = "rules:\n  - { name: of-a-file, match: { path: /a }, limit: 4, window: 1m }\n"


def main():
    upstream = Backend()
    host, files = Host(YAML, upstream), Host(FILES, upstream)
    code = 1
    try:
        host.begin()
        (files.folder / "rules.yaml").write_text(RULES)
        files.begin()
        code = subprocess.run(sys.argv[1:], env={**os.environ, "WEIR_WEB_URL": f"http://127.0.0.1:{host.admin}",
                                                 "WEIR_WEB_GATEWAY": f"http://127.0.0.1:{host.port}",
                                                 "WEIR_WEB_OPERATOR": host.token,
                                                 "WEIR_WEB_FILES_URL": f"http://127.0.0.1:{files.admin}",
                                                 "WEIR_WEB_FILES_OPERATOR": files.token,
                                                 "WEIR_WEB_FILES_RULES": str(files.folder / "rules.yaml")}).returncode
    finally:
        for one in (host, files):
            if code and one.process:
                print(one.log_text(), file=sys.stderr)
            one.remove()
        upstream.stop()
    return code


sys.exit(main())
