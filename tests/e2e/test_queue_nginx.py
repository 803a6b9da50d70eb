"""on_limit: queue in an nginx that weir does not manage, as docs/reference/nginx-queue.md has it."""
import http.server
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading

import pytest

from clients import get
from delivering import Upstream
from gateway import wait_until
from ports import free_port
from queued import wait_until_queue_answers
from served import ENVIRONMENT, WEIR

TEXT = (pathlib.Path(__file__).parents[2] / "docs" / "reference" / "nginx-queue.md").read_text()
OWN = next(block for block in re.findall(r"```nginx\n(.*?)```", TEXT, re.S) if "weir_queue @" in block).replace("1m;", "10k;")


@pytest.fixture
def upstream():
    one = Upstream()
    yield one
    one.stop()


@pytest.fixture
def agent(upstream):
    """weir agent with a queue, and an nginx that it did not start."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-queue-"))
    folder.chmod(0o755)
    file = folder / "weir.yaml"
    file.write_text(f'segment: {{ path: "{folder}/segment", size: 1MiB }}\nstate: "{folder}/state"\n'
                    'user: nobody\nrules:\n  - { name: named, match: { path: /named }, limit: 1000, window: 1s }\n'
                    f'queue: {{ deliver_to: "{upstream.url}" }}\n')
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen([WEIR, "agent", str(file)], env=ENVIRONMENT, stderr=output, stdout=output)
    wait_until((folder / "state/queue.sock").exists, "the queue")
    yield folder / "state/queue.sock"
    process.terminate()
    code, output = process.wait(20), (folder / "output").read_text()
    shutil.rmtree(folder)
    assert code == 0, output


class Names(http.server.BaseHTTPRequestHandler):
    """An authentication service: returns the user of a request."""

    def do_GET(self):
        self.send_response(200 if self.headers["Authorization"] else 401)
        self.send_header("X-Name", self.headers["Authorization"] or "")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *arguments):
        pass


def test_an_nginx_of_ones_own_with_subrequests(gateway, agent):
    rules = json.dumps({"rules": [{"name": "r", "key": "${name}", "limit": 1, "window": "1d", "on_limit": "queue",
                                   "match": {"path": ["/x", "/x/*"]}}]})
    g = gateway(rules, http=f"upstream weir_queue {{ server unix:{agent}; keepalive 8; }}", server=OWN + """
        location /x {
            auth_request /ask;
            auth_request_set $name $upstream_http_x_name;
            weir_phase precontent;
            weir_attribute name $name;
            mirror /mirror;
            proxy_pass http://@BACKEND@;
        }
        location = /ask { internal; proxy_pass_request_body off; proxy_set_header Content-Length "";
                          proxy_pass http://127.0.0.1:%d; }
        location = /mirror { internal; proxy_pass http://@BACKEND@; }
        location /x/early { proxy_pass http://@BACKEND@; weir_attribute name "early"; }
        location /x/dry { proxy_pass http://@BACKEND@; weir dry_run; weir_attribute name "dry"; }
        location /x/off { proxy_pass http://@BACKEND@; weir_queue off; weir_attribute name "off"; }
        location /x/lost { proxy_pass http://@BACKEND@; weir_queue @nowhere; weir_attribute name "lost"; }
        location /direct { weir_denied; }
    """ % (port := free_port()), workers=2)
    wait_until_queue_answers(g.port)
    names = http.server.ThreadingHTTPServer(("127.0.0.1", port), Names)
    threading.Thread(target=names.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        sent = [get(g.port, "/x", method="POST", body=b"a" * 9000, headers={"Authorization": name})
                 for name in ("a", "a", "b", "b", "a")]
        assert [a.status for a in sent] == [200, 202, 200, 202, 202], (sent, g.errors())
        assert get(g.port, "/x", method="POST", body=b"a" * 11000, headers={"Authorization": "a"}).status == 429
        assert get(g.port, "/x").status == 401
    finally:
        names.shutdown()
        names.server_close()
    assert [get(g.port, "/x/early").status for _ in range(2)] == [200, 202]
    assert [get(g.port, "/x/dry").status for _ in range(2)] == [200, 200]
    assert [get(g.port, "/x/off").status for _ in range(2)] == [200, 429]
    assert [get(g.port, "/x/lost").status for _ in range(2)] == [200, 429]
    assert "there is no location @nowhere" in g.errors()
    assert get(g.port, "/direct").status == 404
    ticket = json.loads(sent[1].body)["status"]
    assert json.loads(get(g.port, ticket).body)["rule"] == "r" and get(g.port, ticket[:-1]).status == 404
    # A worker logs after it has replied, so lines of two workers may be late and in any order.
    logged = lambda path: sorted(line["decision"] for line in g.log() if line["uri"] == path)
    wait_until(lambda: logged("/x/dry") == ["allow", "deny_dry_run"], "the lines of /x/dry in the access log")
    wait_until(lambda: logged("/x/early") == ["allow", "queue"], "the lines of /x/early in the access log")


SETS = OWN.replace("    # proxy_set_header X-User           $verified_user;", "    proxy_set_header X-User $verified;")
PASSES = OWN.replace("proxy_pass_request_headers off;\n    proxy_set_header Accept", "proxy_set_header Accept")
FORGED = {"X-User": "admin", "X-Internal": "yes", "Authorization": "mine", "Cookie": "a=1", "Content-Type": "text/x"}


@pytest.mark.parametrize("config, delivered", [
    (SETS, {"X-User": "ann", "X-Internal": None, "Authorization": "mine", "Cookie": "a=1", "Content-Type": "text/x"}),
    # An @queue that passes the client's headers on, as the documentation had it: nothing that says who the client is.
    (PASSES, {"X-User": None, "X-Internal": None, "Authorization": None, "Cookie": None, "Content-Type": "text/x"}),
    (PASSES.replace("weir_queue @queue", "weir_queue @queue headers=client"),
     {"X-User": "admin", "X-Internal": "yes", "Authorization": "mine", "Cookie": "a=1", "Content-Type": "text/x"})],
    ids=["set", "passed on", "client"])
def test_what_the_gateway_sends_is_delivered(gateway, agent, upstream, config, delivered):
    """Not what the client sent under the name of a header that the location overwrites."""
    assert SETS != OWN and PASSES != OWN
    rules = json.dumps({"rules": [{"name": "named", "match": {"path": "/named"}, "limit": 1, "window": "1d", "on_limit": "queue"}]})
    g = gateway(rules, http=f"upstream weir_queue {{ server unix:{agent}; keepalive 8; }}", server=config + """
        set $verified ann;
        location /named { proxy_set_header X-User $verified; proxy_pass http://@BACKEND@; }
    """)
    wait_until_queue_answers(g.port)
    sent = [get(g.port, "/named", method="POST", body=b"a", headers=FORGED) for _ in range(2)]
    assert [a.status for a in sent] == [200, 202], (sent, g.errors())
    came = wait_until(lambda: upstream.deferred(), "the delivery")[0]
    assert {name: came.headers[name] for name in delivered} == delivered
    assert came.headers["X-Real-IP"] == "127.0.0.1" and came.body == b"a"


@pytest.mark.parametrize("line, wrong", [
    ("weir_queue @q headers=all;", "use body=1m, headers=client or headers=set"),
    ("weir_queue /uri;", "needs a named location"), ("weir_queue @;", "needs a named location"),
    ("weir_queue @q body=x;", "invalid parameter"), ("weir_queue @q size=1;", "invalid parameter"),
    ("weir_queue off body=1;", "takes no parameters"), ("weir_queue @q; weir_queue @q;", "is duplicate")])
def test_wrong_directives_are_reported(gateway, line, wrong):
    g = gateway("rules: []\n", start=False, server=line)
    good, output = g.test()
    assert not good and wrong in output
