#!/usr/bin/python3
"""Runs a command beside a real weir serve with gateway and admin listener: WEIR_WEB_URL, WEIR_WEB_GATEWAY and
WEIR_WEB_OPERATOR tell it where they are. served.py COMMAND..."""
import os
import pathlib
import subprocess
import sys
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))

from gateway import free_port, wait_until  # noqa: E402
from served import ENVIRONMENT, WEIR, Backend, Served  # noqa: E402

YAML = """
gateway: { listen: "127.0.0.1:@PORT@", upstreams: ["@BACKEND@"] }
admin: 127.0.0.1:@ADMIN@
state: @FOLDER@/state
segment: { path: @FOLDER@/segment, size: 16MiB }
hot_keys: 64MiB
workers: 2
"""


def answers(url):
    try:
        return urllib.request.urlopen(f"{url}/healthz", timeout=2).status == 200
    except OSError:
        return False


def main():
    admin = free_port()
    url = f"http://127.0.0.1:{admin}"
    upstream = Backend()
    host = Served(YAML.replace("@ADMIN@", str(admin)), upstream)
    code = 1
    try:
        host.start()
        wait_until(lambda: answers(url), "the admin listener", 10)
        token = subprocess.run([WEIR, "token", "create", "--file", "weir.yaml", "--role", "operator", "tests"], cwd=host.folder,
                               env=ENVIRONMENT, check=True, capture_output=True, text=True, timeout=20).stdout.strip()
        code = subprocess.run(sys.argv[1:], env={**os.environ, "WEIR_WEB_URL": url, "WEIR_WEB_OPERATOR": token,
                                                 "WEIR_WEB_GATEWAY": f"http://127.0.0.1:{host.port}"}).returncode
    finally:
        if code:
            print(host.said() if host.process else "", file=sys.stderr)
        host.remove()
        upstream.stop()
    return code


sys.exit(main())
