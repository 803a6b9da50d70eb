"""A weir serve with the rules service, and its clients: for tests, and for the bench."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import time

from clients import get
from gateway import wait_until
from ports import free_port
from served import ENVIRONMENT, WEIR, Served

HEAD = """gateway: { listen: "127.0.0.1:@PORT@", upstreams: ["@BACKEND@"] }
metrics: 127.0.0.1:@METRICS@
segment: { path: "@FOLDER@/segment", size: 1MiB }
state: "@FOLDER@/state"
workers: 2
"""
ADMIN = 'admin: { listen: "127.0.0.1:@ADMIN@", rules: database }\n'
RULES = """rules:
  - { name: two, match: { path: /two }, limit: 2, window: 1h }
"""


def weir(*arguments, code=0, **more):
    environment = {**ENVIRONMENT, "NO_COLOR": "1", **more.pop("env", {})}
    done = subprocess.run([WEIR, *arguments], env=environment, text=True, capture_output=True, timeout=60, **more)
    assert code is None or done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def rule(name, limit, path=None):
    return json.dumps({"name": name, "match": {"path": path or f"/{name}"}, "limit": limit, "window": "1h"})


class Host(Served):
    """A host with an admin listener, or one that takes its rules from such a host."""

    def __init__(self, yaml, backend):
        self.admin = free_port()
        super().__init__(yaml.replace("@ADMIN@", str(self.admin)), backend)
        self.context, self.token = None, ""

    def begin(self, **more):
        """Starts it, waits for the admin listener, and creates an operator's token. With rules in the database, those
        that weir.yaml has are imported first."""
        text = self.file.read_text()
        if "rules: database" in text and re.search("^rules:", text, re.MULTILINE):
            weir("rules", "import", "--file", "weir.yaml", cwd=self.folder, code=None)
        self.start(**more)
        self.wait_for_admin()
        made = weir("token", "create", "tests", "--role", "operator", "--file", "weir.yaml", cwd=self.folder)
        self.token = made.stdout.strip()
        return self

    def wait_for_admin(self):
        wait_until(lambda: self.request("GET", "/healthz")[0] == 200, "the admin listener")

    def request(self, method, path, body=None, token=None, **headers):
        """A request to the admin listener: (status, JSON or text, headers), or status 0 without a reply."""
        if self.context:
            connection = http.client.HTTPSConnection("127.0.0.1", self.admin, context=self.context, timeout=60)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=60)
        with contextlib.closing(connection):
            try:
                connection.request(method, path, body=body, headers={
                    "Authorization": f"Bearer {token or self.token}", "Content-Type": "application/json",
                    **{name.replace("_", "-"): value for name, value in headers.items()}})
                answer = connection.getresponse()
                text = answer.read().decode()
            except (OSError, http.client.HTTPException):
                return 0, "", {}
        is_json = "json" in answer.headers.get("Content-Type", "")
        return answer.status, json.loads(text) if is_json and text else text, answer.headers

    def request_json(self, method, path, *more, **headers):
        """The body of a reply of the admin listener, which must be 200."""
        status, reply, _ = self.request(method, path, *more, **headers)
        assert status == 200, (method, path, status, reply)
        return reply

    def publish(self, name, limit, path=None):
        """Publishes a new version of the rule, enforced; returns the status."""
        status, seen, headers = self.request("GET", f"/v1/rules/{name}")
        if status == 200:
            status, reply, _ = self.request("PUT", f"/v1/rules/{name}", rule(name, limit, path), If_Match=headers["ETag"])
        else:
            status, reply, _ = self.request("POST", "/v1/rules", rule(name, limit, path))
        assert status in (200, 201), reply
        return self.request("POST", f"/v1/rules/{name}/publish", json.dumps({"stage": "enforced", "reason": "test"}))[0]

    def wait_for_new_agent(self, before):
        """Waits until another agent has replaced that one, and replies."""
        self.wait_for_agent(before)
        self.wait_for_admin()

    def published(self):
        return (self.folder / "state" / "published.yaml").read_text()


def reloads(one, seen, result="ok"):
    """Adds the reloads of the responding worker to `seen`: worker -> number with this result."""
    for line in get(one.metrics, "/metrics").body.decode().splitlines():
        if line.startswith("weir_rules_reloads_total") and f'result="{result}"' in line:
            seen[line.split('worker="')[1].split('"')[0]] = int(float(line.split()[-1]))
    return seen


def both_workers(one):
    seen = {}
    wait_until(lambda: len(reloads(one, seen)) == 2, "metrics of both workers")
    return seen


def limit_of(one, name):
    """The enforced limit in the database."""
    reply = one.request_json("GET", f"/v1/rules/{name}")
    text = one.request_json("GET", f"/v1/rules/{name}?version={reply['enforced_version']}")["text"]
    return int(re.search(r'limit"?: (\d+)', text).group(1))


def published_is_complete(one):
    """The workers' file is identical with the rules of the rules service."""
    published = one.request_json("GET", "/v1/rules/published", Accept="application/yaml")
    wait_until(lambda: published.strip() in one.published(), "the file as the database has it")
    assert weir("lint", str(one.folder / "state" / "published.yaml"))


def killed_while_publishing(one, turns=6):
    """Acknowledged changes are stored, the published rules are complete, and the gateway decides all the time."""
    acknowledged, turn = 0, 0
    while turn < turns or not acknowledged and turn < 100:  # on a busy machine it takes longer until the first is there
        agent = one.wait_for_agent()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            killed = pool.submit(lambda: (time.sleep(0.01 * turn), os.kill(agent, signal.SIGKILL)))
            for limit in range(100 * turn + 10, 100 * turn + 60):
                status, seen, headers = one.request("GET", "/v1/rules/two")
                if status != 200:
                    break
                one.request("PUT", "/v1/rules/two", rule("two", limit), If_Match=headers["ETag"])
                if one.request("POST", "/v1/rules/two/publish", '{"stage": "enforced", "reason": "x"}')[0] != 200:
                    break
                acknowledged = limit
            assert one.get("/two").status in (200, 429)
            killed.result()
        one.wait_for_new_agent(agent)
        wait_until(lambda: one.request("GET", "/v1/rules/two")[0] == 200, "the database")
        assert limit_of(one, "two") >= acknowledged
        published_is_complete(one)
        turn += 1
    assert acknowledged and one.process.poll() is None


def restored_from_an_old_copy(one):
    """The database is that of revision 1; revision 3, with another rule, is published."""
    wait_until(lambda: one.request("GET", "/healthz")[1].get("database_restored"), "its detection")
    assert one.request_json("GET", "/healthz")["revision"] == 3
    seen = []  # a worker that has not taken the rule up yet lets pass without counting
    wait_until(lambda: seen.append(one.get("/late").status) or seen[-1] == 429, "the lost rule, still published")
    assert len(seen) > 1 and set(seen[:-1]) == {200}
    assert one.request("GET", "/v1/rules/late")[0] == 404
    status, reply, _ = one.request("POST", "/v1/rules/two/publish", '{"stage": "draft"}')
    assert status == 409 and reply["error"]["code"] == "database_restored", reply
    one.wait_for_new_agent(one.kill_agent())  # nor does another agent forget it
    assert one.request_json("GET", "/healthz")["revision"] == 3 and one.get("/late").status == 429
    status, reply, _ = one.request("POST", "/v1/revisions/1/rollback", '{"reason": "what is left"}')
    assert status == 200 and reply["revision"] == 4, reply
    wait_until(lambda: one.get("/late").status == 200, "the rules of the copy, published")
    assert one.publish("late", 1) == 200
