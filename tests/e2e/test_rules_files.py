"""Rules in files with a dashboard (admin: { rules: files }), where the rules are if that is not stated, and the recipes of
docs/reference/rules-service.md for rules in git, whose commands run here as they are written there."""
import json
import pathlib
import re
import signal
import subprocess
import time

import pytest

from controlled import ADMIN, HEAD, RULES, weir
from gateway import wait_until
from measured import Lateness, measured
from served import ENVIRONMENT, WEIR
from test_control_faults import give_to_agent

FILES = HEAD + 'admin: { listen: "127.0.0.1:@ADMIN@", rules: files }\nrules: rules.d\n'
UNSTATED = HEAD + "admin: 127.0.0.1:@ADMIN@\nrules: rules.d\n"
ONE = "rules:\n  # why\n  - { name: two, match: { path: /two }, limit: 2, window: 1h }\n"
OTHER = "rules:\n  - { name: other, match: { path: /other }, limit: 1, window: 1h }\n"


def put(one, name, text, folder="rules.d"):
    """As a deployment should: another file, renamed."""
    (one.folder / folder).mkdir(exist_ok=True)
    path = one.folder / folder / name
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.rename(path)
    return path


def with_rules(one, text=ONE):
    put(one, "one.yaml", text)
    return one


def listed(one):
    return {item["name"]: item for item in one.request_json("GET", "/v1/rules")["items"]}


def revisions(one):
    """Those in the database itself."""
    database = f"sqlite:{one.folder}/state/rules.db"
    return len(json.loads(weir("rules", "history", "--db", database, "--json").stdout)["items"])


@pytest.mark.parametrize("yaml", [FILES, UNSTATED], ids=["stated", "by default"])
def test_everything_is_shown_and_nothing_about_rules_is_changed(host, yaml):
    one = with_rules(host(yaml)).begin()
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    assert one.request_json("GET", "/healthz")["rules"] == "files" == one.request_json("GET", "/v1/session")["rules"]
    rule = listed(one)["two"]
    assert (rule["file"], rule["line"], rule["stage"]) == (str(one.folder / "rules.d/one.yaml"), 3, "enforced")
    assert one.request_json("GET", "/v1/rules/two")["text"].startswith("# why\n{ name: two")
    assert "name: two" in one.request("GET", "/v1/rules/published")[1]
    assert one.request_json("GET", "/v1/stats")["rules"][0]["totals"]["denied"] == 1
    for path in ("/v1/stats/hot?rule=two", "/v1/denials", "/v1/hosts", "/v1/audit", "/v1/revisions", "/v1/advice"):
        assert one.request("GET", path)[0] == 200, path
    for method, path, body in (("POST", "/v1/rules", '{"name": "new", "limit": 1, "window": "1s"}'),
                               ("PUT", "/v1/rules/two", '{"name": "two", "limit": 9, "window": "1s"}'),
                               ("DELETE", "/v1/rules/two?withdraw=true", None), ("POST", "/v1/rules/two/rollback", '{"version": 1}'),
                               ("POST", "/v1/rules/two/publish", '{"stage": "draft"}'),
                               ("POST", "/v1/revisions", '{"documents": [{"name": "two"}], "stage": "draft"}'),
                               ("POST", "/v1/revisions/1/rollback", "{}")):
        status, reply, _ = one.request(method, path, body, If_Match="*")
        assert (status, reply["error"]["code"]) == (409, "rules_are_files"), (method, path, reply)
        assert str(one.folder / "rules.d") in reply["error"]["message"]
    assert one.request("PUT", "/v1/keys/two/x/block", '{"for": "1m"}')[0] == 200  # keys are an operator's, as ever
    url = ["--url", f"http://127.0.0.1:{one.admin}"]
    for where in (url, ["--file", "weir.yaml"]):
        environment = {"WEIR_TOKEN": one.token}
        assert f"{one.folder}/rules.d/one.yaml:3" in weir("rules", "list", *where, cwd=one.folder, env=environment).stdout
        assert "name: two" in weir("rules", "get", "published", *where, cwd=one.folder, env=environment).stdout
        refused = weir("rules", "publish", "two", "--stage", "draft", *where, cwd=one.folder, env=environment, code=1)
        assert "are changed there" in refused.stderr, refused.stderr
    assert revisions(one) == 0  # nothing was imported
    assert one.get("/two").status == 429


@measured
def test_a_changed_file_is_shown_and_enforced_within_two_seconds(host):
    one = with_rules(host(FILES)).begin()
    took = []
    with Lateness() as machine:
        for line in range(3, 7):
            begin = time.monotonic()
            put(one, "one.yaml", "\n" * (line - 3) + ONE.replace("limit: 2", f"limit: {line}"))

            def shown():
                rule = listed(one)["two"]
                return rule["line"] == line and f"limit: {line}" in one.request_json("GET", "/v1/rules/two")["text"]
            wait_until(shown, "the changed file")
            end = time.monotonic()
            took.append(end - begin - machine.still(begin, end))
    print(f"changed to shown: {', '.join(f'{t:.2f}' for t in took)} s")
    assert max(took) < 2
    put(one, "two.yaml", OTHER)
    wait_until(lambda: "other" in listed(one) and one.get("/other").status == 429, "a new file")
    assert "other" in {rule["name"] for rule in one.request_json("GET", "/v1/stats")["rules"]}


def test_a_file_with_errors_changes_nothing_and_is_reported(host):
    one = with_rules(host(FILES)).begin()
    before = one.request("GET", "/v1/rules/published")[2]["ETag"]
    bad = put(one, "two.yaml", OTHER.replace("limit:", "limt:"))

    def errors():
        return one.request_json("GET", "/v1/rules")["files"]["errors"]
    wait_until(errors, "the error")
    assert (errors()[0]["file"], errors()[0]["line"]) == (str(bad), 2) and "limt" in errors()[0]["message"]
    assert set(listed(one)) == {"two"} and one.request("GET", "/v1/rules/published")[2]["ETag"] == before
    assert "two.yaml:2:" in weir("rules", "list", "--file", "weir.yaml", cwd=one.folder).stderr
    agent = one.kill_agent()  # another one shows what is wrong, too, though it has never seen good files
    one.wait_for_new_agent(agent)
    wait_until(errors, "the error")
    assert one.request("GET", "/v1/rules/published")[0] == 503 and one.get("/two").status == 200
    put(one, "two.yaml", OTHER)
    wait_until(lambda: set(listed(one)) == {"two", "other"}, "the repaired file")
    assert errors() == []


def test_another_host_follows_the_files(host):
    one = with_rules(host(FILES)).begin()
    other = host(HEAD + f'rules: {{ url: "http://127.0.0.1:{one.admin}/v1/rules/published", token: {one.token}, poll: 200ms }}\n')
    other.start()
    assert [other.get("/two").status for _ in range(3)] == [200, 200, 429]
    put(one, "two.yaml", OTHER)
    wait_until(lambda: other.get("/other").status == 429, "a rule of the other host's file")

    def fleet():
        reply = one.request_json("GET", "/v1/hosts")
        return len(reply["hosts"]), reply["fleet"]["rules_differ"]
    wait_until(lambda: fleet() == (2, 0), "both with the same rules")


# ---- Files or database ----

def test_a_database_that_has_published_rules_goes_on_deciding(host):
    one = with_rules(host(HEAD + ADMIN + "rules: rules.d\n")).begin()
    assert one.publish("two", 1) == 200  # by now another limit than in the file
    wait_until(lambda: "published revision 2" in one.published(), "the published set")
    one.write(one.file.read_text().replace(", rules: database", ""))
    one.wait_for_log("reloaded")
    one.wait_for_log("state which: admin: { rules: database }, and remove rules here, or admin: { rules: files }")
    one.wait_for_admin()
    assert one.request_json("GET", "/healthz")["rules"] == "database"
    assert [one.get("/two").status for _ in range(2)] == [200, 429]
    assert "state which: " in one.run("--check").stderr
    # Stated, the files decide, and the database is kept.
    one.write(one.file.read_text().replace(f"admin: {{ listen: \"127.0.0.1:{one.admin}\" }}",
                                           f"admin: {{ listen: \"127.0.0.1:{one.admin}\", rules: files }}"))
    one.wait_for_log("of the rules database is not used: the rules are those of")
    wait_until(lambda: one.request("GET", "/healthz")[1].get("rules") == "files", "the other agent")
    assert "limit: 2" in one.request_json("GET", "/v1/rules/two")["text"] and revisions(one) == 2
    wait_until(lambda: one.get("/two").status == 200, "the file's limit")


def test_on_a_new_host_the_database_is_asked(host):
    """Its state folder is empty, as that of a container."""
    one = with_rules(host(UNSTATED + 'rules_db: "sqlite:@FOLDER@/shared/rules.db"\n'))
    (one.folder / "shared").mkdir()
    put(one, "one.yaml", ONE.replace("limit: 2", "limit: 1"), "first")
    weir("rules", "import", "--file", "weir.yaml", "first", cwd=one.folder)
    one.start()
    one.wait_for_log("state which: admin:")
    one.wait_for_admin()
    assert one.request_json("GET", "/healthz")["rules"] == "database" and "published revision 1" in one.published()
    assert [one.get("/two").status for _ in range(2)] == [200, 429]


def test_a_database_that_is_found_later_decides_after_the_next_start_only(host):
    one = with_rules(host(UNSTATED + 'rules_db: "sqlite:@FOLDER@/later/rules.db"\n'))
    put(one, "one.yaml", ONE.replace("limit: 2", "limit: 1"), "first")
    (one.folder / "made").mkdir()
    weir("rules", "import", "--db", f"sqlite:{one.folder}/made/rules.db", "first", cwd=one.folder)
    (one.folder / "later").write_text("in the way")
    one.start()
    one.wait_for_log("the database cannot be reached")
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    one.wait_for_admin()
    assert one.request_json("GET", "/healthz")["rules"] == "files"
    (one.folder / "later").unlink()
    for path in (one.folder / "made").iterdir():
        give_to_agent(one, path)
    give_to_agent(one, one.folder / "made").rename(one.folder / "later")
    one.wait_for_log("revision 1 of the rules database is not used: the rules are those of")
    assert "the next start would use it: state admin: { rules: files } or { rules: database }" in one.log_text()
    assert one.request_json("GET", "/healthz")["rules"] == "files" and not (one.folder / "state/published.yaml").exists()
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    one.start()
    one.wait_for_log("state which: admin:")
    one.wait_for_admin()
    assert one.request_json("GET", "/healthz")["rules"] == "database"


def test_nothing_is_imported_unasked(host):
    one = with_rules(host(HEAD + ADMIN + "rules: rules.d\n"))
    one.start()
    one.wait_for_log("are active until the rules service has some: weir rules import")
    assert [one.get("/two").status for _ in range(3)] == [200, 200, 429]
    one.wait_for_admin()
    assert one.request_json("GET", "/healthz")["revision"] == 0
    done = weir("rules", "import", "--file", "weir.yaml", cwd=one.folder)
    assert "imported and published 1 document" in done.stdout and "rules: database" in done.stdout
    one.wait_for_log("revision 1 of the rules is active")
    assert one.get("/two").status == 429
    again = weir("rules", "import", "--file", "weir.yaml", cwd=one.folder, code=1)
    assert "has documents already" in again.stderr
    assert "use --file" in weir("rules", "import", "--url", "http://127.0.0.1:1", cwd=one.folder, code=2).stderr


def test_a_changed_file_that_is_not_read_is_logged(host):
    one = with_rules(host(HEAD + ADMIN + "rules: rules.d\n")).begin()
    one.wait_for_log("names are not read")
    time.sleep(1.2)  # the agent has looked at the files
    put(one, "one.yaml", ONE.replace("limit: 2", "limit: 9"))
    one.wait_for_log(f"{one.folder}/rules.d has changed and is not read: the rules are those of the rules service")
    assert "limit: 2" in one.request_json("GET", "/v1/rules/two")["text"]
    time.sleep(1.2)
    assert one.log_text().count("has changed and is not read") == 1


# ---- The recipes ----

def recipe(beginning):
    """The commands of the code block in docs/reference/rules-service.md that begins so, as they are written there."""
    page = (pathlib.Path(__file__).parents[2] / "docs/reference/rules-service.md").read_text()
    blocks = [block for block in re.findall("```sh\n(.*?)```", page, re.DOTALL) if block.startswith(beginning)]
    assert len(blocks) == 1
    return blocks[0].splitlines()


def shell(one, command, code=0, sha="4f2a"):
    environment = {**ENVIRONMENT, "NO_COLOR": "1", "SHA": sha, "WEIR_URL": f"http://127.0.0.1:{one.admin}", "WEIR_TOKEN": one.token,
                   "PATH": f"{pathlib.Path(WEIR).parent}:{ENVIRONMENT['PATH']}"}
    done = subprocess.run(["sh", "-c", command], cwd=one.folder, env=environment, text=True, capture_output=True, timeout=60)
    assert done.returncode == code, (command, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def test_the_recipe_for_a_database(host):
    dry_run, apply, drift = recipe("weir rules apply")
    one = host(HEAD + ADMIN + RULES).begin()  # its rule is in no file of git's
    put(one, "one.yaml", ONE.replace("name: two", "name: login"))
    output = shell(one, dry_run)
    assert "+{ name: login" in output and "to be created" in output and "to be deleted" in output and "nothing was written" in output
    assert set(listed(one)) == {"two"}
    assert "to be created" in shell(one, drift, code=3)
    assert "revision 2 is published" in shell(one, apply)
    assert set(listed(one)) == {"login"} and one.request_json("GET", "/v1/revisions/2")["reason"] == "4f2a"
    assert "0 created, 0 changed, 0 deleted, 1 unchanged" in shell(one, drift)
    assert "revision" not in shell(one, apply)  # nothing to do
    assert one.publish("login", 9) == 200  # in the dashboard
    assert "-{" in shell(one, drift, code=3)
    assert "revision 4 is published" in shell(one, apply, sha="77b1")
    assert "limit: 2" in one.request_json("GET", "/v1/rules/login")["text"]
    assert one.request("POST", "/v1/rules/login/publish", '{"stage": "draft"}')[0] == 200  # the text is the same, but is no rule
    shell(one, drift, code=3)
    shell(one, apply)
    shell(one, drift)


def test_the_recipe_for_files(host):
    lint, switch, show = recipe("weir lint")
    one = host(HEAD + 'admin: { listen: "127.0.0.1:@ADMIN@", rules: files }\nrules: rules\n')
    put(one, "login.yaml", ONE.replace("name: two", "name: login"), "rules-4f2a")
    assert "1 rule" in shell(one, lint)
    shell(one, switch)
    one.begin()
    assert "rules/login.yaml:3" in shell(one, show)
    put(one, "login.yaml", "# moved\n" + ONE.replace("name: two", "name: login").replace("limit: 2", "limit: 1"), "rules-77b1")
    put(one, "other.yaml", OTHER.replace("limit: 1", "limit: 10000"), "rules-77b1")
    shell(one, lint, sha="77b1")
    shell(one, switch, sha="77b1")
    wait_until(lambda: "rules/login.yaml:4" in shell(one, show), "the new commit")
    # The agent and each worker notice a change by themselves.
    wait_until(lambda: all("X-RateLimit-Limit" in one.get("/other").headers for _ in range(20)), "the new commit in all workers")
    assert [one.get("/two").status for _ in range(2)] == [200, 429] and one.get("/other").status == 200
    put(one, "login.yaml", "rules: [", "rules-bad")
    shell(one, lint, sha="bad", code=1)
