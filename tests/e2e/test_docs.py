"""nginx accepts the configurations of docs/reference/nginx*.md, and the responses have the fields that it shows."""
import json
import pathlib
import re

import pytest

from clients import get
from gateway import MODULE

REFERENCE = pathlib.Path(__file__).parents[2] / "docs" / "reference"
TEXT = "".join((REFERENCE / name).read_text() for name in ("nginx.md", "nginx-queue.md", "nginx-logs.md"))
RULES = json.dumps({"rules": [{"name": "api", "key": "ip:${client_ip}", "limit": 1, "window": "1d"}]})


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, re.S)


@pytest.mark.parametrize("example", blocks("nginx"))
def test_examples_are_accepted(gateway, example):
    outer, example = re.fullmatch(r"(map .*?\n}\n|)(.*)", example, re.S).groups()
    g = gateway(RULES, start=False, http=outer + "upstream weir_queue { server unix:/var/lib/weir/queue.sock; keepalive 64; }")
    if "http {" in example:
        for path, own in (("/usr/lib/nginx/modules/ngx_http_weir_module.so", MODULE), ("/dev/shm/weir ", f"{g.segment} "),
                          ("/etc/weir/rules.d", f"{g.folder}/rules"), ("/var/log/nginx", str(g.folder)),
                          ("listen 8080", f"listen 127.0.0.1:{g.port}")):
            assert path in example
            example = example.replace(path, own)
        g.config.write_text(f"pid {g.folder}/nginx.pid; error_log {g.folder}/error.log;\n{example}")
    else:
        g.config.write_text(g.config.read_text().replace("location = /weir/status", f"{example}\nlocation = /weir/status"))
    content, output = g.test()
    assert content, output


def fields(value):
    return {key: fields(inner) for key, inner in value.items()} if isinstance(value, dict) else None


def test_logs_and_status_are_as_shown(gateway):
    log, status = (json.loads(block) for block in blocks("json"))
    g = gateway(RULES, server="location /api { weir_log_denied @FOLDER@/denied; proxy_pass http://@BACKEND@; }")
    get(g.port, "/api"), get(g.port, "/api")
    assert fields(g.denied(1)[0]) == fields(log)
    got = g.status()
    assert fields(got) == fields(status) and fields(got["by_rule"][0]) == fields(status["by_rule"][0])


def test_every_directive_and_variable_is_described():
    sources = "".join(path.read_text() for path in pathlib.Path(__file__).parents[2].glob("nginx/*.c"))
    for name in set(re.findall(r'ngx_string\("(weir(?:_\w+)?)"\)', sources)):
        assert f"`{name}" in TEXT or f"`${name}" in TEXT or f"`${name}`" in TEXT, name
