"""A weir serve with the control plane, and what asks it: for tests, and for the bench."""
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
RULES = """rules:
  - { name: two, match: { path: /two }, limit: 2, window: 1h }
"""


def weir(*arguments, code=0, **more):
    environment = {**ENVIRONMENT, "NO_COLOR": "1", **more.pop("env", {})}
    done = subprocess.run([WEIR, *arguments], env=environment, text=True, capture_output=True, timeout=60, **more)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def rule(name, limit, path=None):
    return json.dumps({"name": name, "match": {"path": path or f"/{name}"}, "limit": limit, "window": "1h"})


class Host(Served):
    """With an admin listener, or with the rules of one that has it."""

    def __init__(self, yaml, backend):
        self.admin = free_port()
        super().__init__(yaml.replace("@ADMIN@", str(self.admin)), backend)
        self.context, self.token = None, ""

    def begin(self, **more):
        """Started, and the admin listener answers; with an operator's token."""
        self.start(**more)
        self.wait_for_admin()
        made = weir("token", "create", "tests", "--role", "operator", "--file", "weir.yaml", cwd=self.folder)
        self.token = made.stdout.strip()
        return self

    def wait_for_admin(self):
        wait_until(lambda: self.ask("GET", "/healthz")[0] == 200, "the admin listener")

    def ask(self, method, path, body=None, token=None, **headers):
        """(status, JSON or text, headers), or status 0 if nobody answers."""
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

    def told(self, method, path, *more, **headers):
        """What the admin listener answers, which must be good."""
        status, told, _ = self.ask(method, path, *more, **headers)
        assert status == 200, (method, path, status, told)
        return told

    def publish(self, name, limit, path=None):
        """A new version of the rule, enforced. The status of the publication."""
        status, seen, headers = self.ask("GET", f"/v1/rules/{name}")
        if status == 200:
            status, told, _ = self.ask("PUT", f"/v1/rules/{name}", rule(name, limit, path), If_Match=headers["ETag"])
        else:
            status, told, _ = self.ask("POST", "/v1/rules", rule(name, limit, path))
        assert status in (200, 201), told
        return self.ask("POST", f"/v1/rules/{name}/publish", json.dumps({"stage": "enforced", "reason": "test"}))[0]

    def another_agent(self, before):
        """Waits until one has taken the place of that, and answers."""
        self.the_agent(before)
        self.wait_for_admin()

    def published(self):
        return (self.folder / "state" / "published.yaml").read_text()


def reloads(one, seen, result="ok"):
    """Adds to `seen` what the worker that answers says: worker -> changes that it took up, or that failed."""
    for line in get(one.metrics, "/metrics").body.decode().splitlines():
        if line.startswith("weir_rules_reloads_total") and f'result="{result}"' in line:
            seen[line.split('worker="')[1].split('"')[0]] = int(float(line.split()[-1]))
    return seen


def both_workers(one):
    seen = {}
    wait_until(lambda: len(reloads(one, seen)) == 2, "figures of both workers")
    return seen


def limit_of(one, name):
    """The limit that is enforced, as the database has it."""
    told = one.told("GET", f"/v1/rules/{name}")
    text = one.told("GET", f"/v1/rules/{name}?version={told['enforced_version']}")["text"]
    return int(re.search(r'limit"?: (\d+)', text).group(1))


def published_is_whole(one):
    """The workers' file says what the rules service says, and all of it."""
    published = one.told("GET", "/v1/rules/published", Accept="application/yaml")
    wait_until(lambda: published.strip() in one.published(), "the file as the database has it")
    assert weir("lint", str(one.folder / "state" / "published.yaml"))


def killed_while_publishing(one, turns=6):
    """What was acknowledged is there, what is in force is whole, and the gateway decides all the while."""
    acknowledged, turn = 0, 0
    while turn < turns or not acknowledged and turn < 100:  # on a busy machine it takes longer until the first is there
        agent = one.the_agent()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            killed = pool.submit(lambda: (time.sleep(0.01 * turn), os.kill(agent, signal.SIGKILL)))
            for limit in range(100 * turn + 10, 100 * turn + 60):
                status, seen, headers = one.ask("GET", "/v1/rules/two")
                if status != 200:
                    break
                one.ask("PUT", "/v1/rules/two", rule("two", limit), If_Match=headers["ETag"])
                if one.ask("POST", "/v1/rules/two/publish", '{"stage": "enforced", "reason": "x"}')[0] != 200:
                    break
                acknowledged = limit
            assert one.get("/two").status in (200, 429)
            killed.result()
        one.another_agent(agent)
        wait_until(lambda: one.ask("GET", "/v1/rules/two")[0] == 200, "the database")
        assert limit_of(one, "two") >= acknowledged
        published_is_whole(one)
        turn += 1
    assert acknowledged and one.process.poll() is None


def restored_from_an_old_copy(one):
    """The database is as it was at revision 1; in force is revision 3, with another rule."""
    wait_until(lambda: one.ask("GET", "/healthz")[1].get("database_restored"), "that it is noticed")
    assert one.told("GET", "/healthz")["revision"] == 3
    seen = []  # a worker that has not taken the rule up yet lets pass without counting
    wait_until(lambda: seen.append(one.get("/late").status) or seen[-1] == 429, "the lost rule, still in force")
    assert len(seen) > 1 and set(seen[:-1]) == {200}
    assert one.ask("GET", "/v1/rules/late")[0] == 404
    status, told, _ = one.ask("POST", "/v1/rules/two/publish", '{"stage": "draft"}')
    assert status == 409 and told["error"]["code"] == "database_restored", told
    one.another_agent(one.kill_agent())  # nor does another agent forget it
    assert one.told("GET", "/healthz")["revision"] == 3 and one.get("/late").status == 429
    status, told, _ = one.ask("POST", "/v1/revisions/1/rollback", '{"reason": "what is left"}')
    assert status == 200 and told["revision"] == 4, told
    wait_until(lambda: one.get("/late").status == 200, "what the copy has, in force")
    assert one.publish("late", 1) == 200
