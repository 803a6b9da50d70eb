"""A weir serve with the control plane, and what asks it: for tests, and for the bench."""
import contextlib
import http.client
import json
import pathlib
import subprocess

from clients import get
from gateway import wait_until
from ports import free_port
from served import ENVIRONMENT, WEIR, Served


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

    def begin(self):
        """Started, and the admin listener answers; with an operator's token."""
        self.start()
        self.wait_for_admin()
        made = weir("token", "create", "tests", "--role", "operator", "--file", "weir.yaml", cwd=self.folder)
        self.token = made.stdout.strip()
        return self

    def wait_for_admin(self):
        wait_until(lambda: self.ask("GET", "/healthz")[0] == 200, "the admin listener")

    def ask(self, method, path, body=None, token=None, **headers):
        """(status, JSON or text, headers), or status 0 if nobody answers."""
        if self.context:
            connection = http.client.HTTPSConnection("127.0.0.1", self.admin, context=self.context, timeout=15)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=15)
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
        wait_until(lambda: self.agent() not in (0, before), "another agent")
        self.wait_for_admin()

    def agent(self):
        """Its pid, or 0 while there is none. weir serve's other children are nginx."""
        for child in pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "weir-agent":
                    return int(child)
        return 0

    def published(self):
        return (self.folder / "state" / "published.yaml").read_text()


def reloads(one, seen):
    """Adds to `seen` what the worker that answers says: worker -> changes that it took up."""
    for line in get(one.metrics, "/metrics").body.decode().splitlines():
        if line.startswith("weir_rules_reloads_total") and 'result="ok"' in line:
            seen[line.split('worker="')[1].split('"')[0]] = int(float(line.split()[-1]))
    return seen


def both_workers(one):
    seen = {}
    wait_until(lambda: len(reloads(one, seen)) == 2, "figures of both workers")
    return seen
