#!/bin/sh
# weir rules, weir token, weir queue and weir key with a private database, as a user would try them: $1 is the binary.
# tests/e2e/test_control_cli.py has the same over HTTP, tests/e2e/test_keys.py keys of several hosts.
set -eu
weir=$(realpath "$1")
. "$(dirname "$0")/cli_checks.sh"
rules=$(realpath "$(dirname "$0")/rules")
[ -w /dev/shm ] && root=/dev/shm || root=/tmp # databases without a disk to wait for
work=$(mktemp -d -p $root)
trap 'rm -rf "$work"' EXIT
export NO_COLOR=1
unset WEIR_URL WEIR_TOKEN
cd "$work"
db=--db=sqlite:$work/rules.db

# json EXPRESSION: true of the object d on standard input.
json() { python3 -c "
import datetime, json, sys
def seconds(begin, end): return (datetime.datetime.fromisoformat(end[:19]) - datetime.datetime.fromisoformat(begin[:19])).total_seconds()
d = json.load(sys.stdin)
assert $1, json.dumps(d, indent=1)"; }
# printed LINE: the last output has this line.
printed() { grep -qx -- "$1" "$work/out" || { echo "expected: $1"; cat "$work/out"; exit 1; }; }

# lacks TEXT FILE: the file does not contain the text.
lacks() { if grep -qF -- "$1" "$2"; then echo "unexpected: $1"; exit 1; fi; }

# ---- help and wrong command lines ----
"$weir" help | grep -q '  rules '
for command in "rules list" "rules get" "rules apply" "rules import" "rules diff" "rules publish" "rules rollback" "rules history" \
    "rules validate" "token create" "token link" "token list" "token revoke" "queue stats" "queue list" "queue get" "queue cancel" \
    "queue requeue" "key show" "key list" "key block" "key unblock" "key reset" "key take"; do
    # shellcheck disable=SC2086 # two words on purpose
    "$weir" $command --help >"$work/out"
    grep -q "^usage: weir $command" "$work/out"
    [ "$(wc -L <"$work/out")" -le 80 ]
    # shellcheck disable=SC2086
    fails 2 "$weir" $command --hepl
    reported "did you mean '--help'?"
done
"$weir" rules --help | grep -q '^usage: weir rules COMMAND'
"$weir" token -h | grep -q '^usage: weir token COMMAND'
fails 2 "$weir" rules
fails 2 "$weir" rules lsit
reported "did you mean 'list'?"
fails 2 "$weir" token remake
fails 2 "$weir" rules list
reported "which rules service?"
fails 2 "$weir" key show 203.0.113.9
reported "no weir.yaml in this folder: --file /etc/weir/weir.yaml names one"
fails 2 "$weir" rules list --db sqlite:/a --url http://b
reported "one of --url, --db and --file"
fails 2 "$weir" rules list "$db" --token-file x
reported "are for a --url"
# The arguments of a process are visible to every user of the host.
fails 2 "$weir" rules list --url http://127.0.0.1:1 --token weir_0_secret
reported "use --token-file FILE or the environment: WEIR_TOKEN"
fails 2 "$weir" rules list --db postgresql://weir:secret@127.0.0.1/rules
reported "PGPASSWORD"
fails 2 "$weir" rules list --db "postgresql://127.0.0.1/rules?password=secret"
reported "PGPASSWORD"
fails 2 "$weir" rules list --url http://me:secret@127.0.0.1:1
reported "neither user nor password"
echo weir_0_secret >"$work/open.token"
chmod 644 "$work/open.token"
fails 1 "$weir" rules list --url http://127.0.0.1:1 --token-file "$work/open.token"
reported "every user of this host may read it (mode 0644)"
chmod 640 "$work/open.token"
fails 1 "$weir" rules list --url http://127.0.0.1:1 --token-file "$work/open.token"
lacks "may read" "$work/err"
fails 2 "$weir" rules list --prune "$db"
reported "no option '--prune'"
fails 2 "$weir" rules get "$db"
reported "which document?"
fails 2 "$weir" rules get a b "$db"
fails 2 "$weir" rules get a --version x "$db"
reported "--version is a number of at least 1"
fails 2 "$weir" rules publish login "$db"
reported "--stage shadow, enforced or draft"
fails 2 "$weir" rules publish a b --stage shadow --version 2 "$db"
fails 2 "$weir" rules apply --publish draft x "$db"
reported "--publish shadow or enforced"
fails 2 "$weir" rules rollback login "$db"
fails 2 "$weir" rules rollback login --to 1 --revision 1 "$db"
fails 2 "$weir" token create me "$db"
reported "--role viewer, editor or operator"
fails 1 "$weir" rules list --db mysql:/x
reported "sqlite:PATH"
fails 1 "$weir" rules list --db "sqlite:$work/no/such/folder/rules.db"
fails 1 "$weir" rules list --url ftp://host
reported "such as https://host:9091"
fails 1 "$weir" rules list --file "$work/none.yaml"

# ---- a first set ----
"$weir" rules list "$db" | grep -qx 'no documents'
"$weir" rules list --json "$db" | json 'd == {"items": []}'
"$weir" rules history "$db" | grep -q 'nothing has been published'
fails 1 "$weir" rules get login "$db"
reported "login: there is no document of this name"
fails 1 "$weir" rules get published "$db"
cp "$rules/service/shop.yaml" shop.yaml
"$weir" rules apply --dry-run "$db" shop.yaml >"$work/out"
printed '+# Guessing passwords takes many tries.'
printed 'would be: 3 created, 0 changed, 0 deleted, 0 unchanged; nothing was written'
"$weir" rules list --json "$db" | json 'd["items"] == []'
"$weir" rules apply "$db" shop.yaml --reason "the first" >"$work/out"
printed '3 created, 0 changed, 0 deleted, 0 unchanged'
printed 'these are drafts: --publish enforced, or weir rules publish, publishes them'
"$weir" rules list --json "$db" | json '[(i["name"], i["version"], i["stage"]) for i in d["items"]] == \
    [("login", 1, "draft"), ("settings", 1, "draft"), ("user-api", 1, "draft")]'
"$weir" rules history login --json "$db" | json 'd["items"][0]["reason"] == "the first" and d["items"][0]["author"]'
[ "$("$weir" rules list "$db" | wc -l)" -eq 4 ]
[ "$("$weir" rules list "$db" --search LOGIN | wc -l)" -eq 2 ]
[ "$("$weir" rules list "$db" --kind settings | wc -l)" -eq 2 ]
"$weir" rules list "$db" --kind settings | grep -qE ' identity$'
"$weir" rules list "$db" --stage enforced | grep -qx 'no documents'
fails 1 "$weir" rules list "$db" --stage great

# A rule is stored as written, and can be applied again.
"$weir" rules get login "$db" >login.yaml
head -n 2 login.yaml | tr '\n' '|' | grep -qxF '# Guessing passwords takes many tries.|name: login|'
"$weir" rules apply "$db" login.yaml | grep -qx '0 created, 0 changed, 0 deleted, 1 unchanged'
"$weir" rules apply "$db" - <login.yaml | grep -qx '0 created, 0 changed, 0 deleted, 1 unchanged'
"$weir" rules get login --json "$db" | json 'd["version"] == 1 and d["text"].endswith("window: 1m\n")'
mkdir parts
for name in login user-api settings; do "$weir" rules get $name "$db" >parts/$name.yaml; done
"$weir" rules apply "$db" parts | grep -qx '0 created, 0 changed, 0 deleted, 3 unchanged'
sed 's/$/\r/' shop.yaml >dos.yaml
"$weir" rules apply "$db" dos.yaml | grep -qx '0 created, 0 changed, 0 deleted, 3 unchanged'

# ---- changes, stages ----
"$weir" rules apply "$db" shop.yaml --publish enforced >"$work/out"
printed '0 created, 0 changed, 0 deleted, 3 unchanged; revision 1 is published'
"$weir" rules apply "$db" shop.yaml --publish enforced >"$work/out"
printed '0 created, 0 changed, 0 deleted, 3 unchanged'
"$weir" rules get published "$db" >published.yaml
"$weir" lint published.yaml | grep -q 'published.yaml: 2 rules; no warnings'
sed 's/limit: 5/limit: 50/' shop.yaml >looser.yaml
"$weir" rules apply "$db" looser.yaml --publish shadow --json | json 'd["ok"] and d["revision"] == 2 and \
    [(c["name"], c["action"], c["version"], c["published"]) for c in d["changes"]] == [("settings", "none", 1, None), \
    ("login", "update", 2, "shadow"), ("user-api", "none", 1, None)] and "+limit: 50\n" in d["changes"][1]["diff"]'
"$weir" rules list --json "$db" | json '[(i["enforced_version"], i["shadow_version"]) for i in d["items"]] == \
    [(1, 2), (1, None), (1, None)]'
"$weir" rules diff login "$db" >"$work/out"
printed '-limit: 5'
printed '+limit: 50'
"$weir" rules diff login --from 2 --to 1 --json "$db" | json 'd["from"] == 2 and "+limit: 5\n" in d["unified"]'
"$weir" rules publish login --stage enforced --reason "it is good" "$db" >"$work/out"
printed 'login: enforced'
printed 'revision 3 is published'
"$weir" rules publish login --stage enforced "$db" | grep -qx 'login: unchanged'
"$weir" rules publish settings login --stage enforced --json "$db" | json 'd["ok"] and d["revision"] is None and \
    [p["changed"] for p in d["published"]] == [False, False]'
# A name that cannot be sent: nothing is published.
fails 1 "$weir" rules publish "$(printf '\377')" login --stage draft "$db"
reported "not UTF-8"
"$weir" rules publish login --stage enforced "$db" | grep -qx 'login: unchanged'
fails 1 "$weir" rules publish login --stage enforced --version 9 "$db"
reported "there is no such version"
fails 1 "$weir" rules publish settings --stage shadow --version 1 "$db"
"$weir" rules rollback login --to 1 --publish enforced "$db" | grep -qx 'login: v3 has the text of v1'
"$weir" rules get login "$db" | grep -qx 'limit: 5'
"$weir" rules rollback login --to 3 "$db" >"$work/out"
printed 'login: v4 has the text of v3; it is not published: --publish enforced does that'
fails 1 "$weir" rules rollback login --to 77 "$db"
"$weir" rules rollback --revision 3 --reason "as it was" "$db" | grep -qx 'revision 5 is published, as revision 3 was'
"$weir" rules get published "$db" | grep -q 'limit: 50'
"$weir" rules history --json "$db" | json '[i["revision"] for i in d["items"]] == [5, 4, 3, 2, 1] and \
    d["items"][0]["reason"] == "as it was"'
fails 1 "$weir" rules rollback --revision 99 "$db"

# ---- rules that are not in the files ----
"$weir" rules apply "$db" login.yaml --prune --dry-run --publish enforced >"$work/out"
printed 'would be: 0 created, 0 changed, 2 deleted, 1 unchanged; nothing was written'
fails 1 "$weir" rules apply "$db" login.yaml --prune
reported "user-api: error: it is published and in no file"
reported "nothing was written"
"$weir" rules apply "$db" "$rules/many" --prune --publish enforced >"$work/out" 2>"$work/err"
printed '2 created, 0 changed, 3 deleted, 0 unchanged; revision 6 is published'
grep -q '10-messages.yaml:19:5: warning' "$work/err"
"$weir" rules list --json "$db" | json '[i["name"] for i in d["items"]] == ["domain:messages", "everything"]'
"$weir" rules apply "$db" "$rules/many" --prune --publish enforced 2>/dev/null |
    grep -qx '0 created, 0 changed, 0 deleted, 2 unchanged'
"$weir" rules apply "$db" shop.yaml | grep -q '^login  *created  *v6$' # its versions continue

# ---- all of it, or nothing ----
cat >clash.yaml <<'END'
rules:
  - { name: fine, limit: 1, window: 1m }
  - { name: m, limits: [ { limit: 1, window: 1m, name: x } ] }
  - name: m/x
    limit: 1
    window: 1m
END
fails 1 "$weir" rules apply "$db" clash.yaml --publish enforced
reported "clash.yaml:4:5: error: "
! grep -q warning "$work/err"
"$weir" rules list --stage enforced --json "$db" | json '[i["name"] for i in d["items"]] == ["domain:messages", "everything"]'
"$weir" rules history --json "$db" | json 'd["items"][0]["revision"] == 6'
fails 1 "$weir" rules publish fine none --stage enforced "$db"
reported "none: there is no document of this name"
"$weir" rules publish fine m --stage enforced --json "$db" | json 'd["revision"] == 7 and len(d["published"]) == 2'
"$weir" rules publish fine m --stage draft "$db" | grep -qx 'revision 8 is published'

# ---- mistakes ----
fails 1 "$weir" rules validate "$db" "$rules/wide.yaml"
reported "wide.yaml:3:42: error: a rule has no field \"kee\"; did you mean 'key'?"
reported "wide.yaml: 2 errors"
grep -qxF '      |                                             ^' "$work/err"
# A character in a quoted line does not change the direction of the text.
printf 'rules:\n  - name: a\n    limt: 1 # \342\200\256x\n' >direction.yaml
fails 1 "$weir" rules validate "$db" direction.yaml
reported '    3 |     limt: 1 # ?x'
"$weir" lint "$rules/broken.yaml" 2>lint.err || true
fails 1 "$weir" rules apply "$db" "$rules/broken.yaml"
[ "$(head -n 1 lint.err)" = "$(head -n 1 "$work/err")" ]
reported "nothing was written"
fails 1 "$weir" rules apply "$db" "$rules/shop.yaml"
reported "shop.yaml:22:5: error: there is another user-api"
"$weir" rules apply "$db" "$rules/wide.yaml" --json >"$work/out" || [ $? -eq 1 ]
json 'not d["ok"] and [(e["line"], e["column"], e["suggestion"]) for e in d["errors"]] == \
    [(2, 39, "key"), (3, 42, "key")] and not any(c["done"] for c in d["changes"])' <"$work/out"
# With one invalid rule none is written; a rule that needs settings of the same file is checked with those.
cat >mixed.yaml <<'END'
identity: { team: "header:X-Team" }
rules:
  - { name: good, key: "t:${team}", limit: 1, window: 1s }
  - name: bad
    key: "t:${teem}"
    limit: 1
    window: soon
END
fails 1 "$weir" rules apply "$db" mixed.yaml
reported "mixed.yaml:5:10: warning: identity does not name teem"
reported "mixed.yaml:7:13: error: "
lacks 'name team' "$work/err"
"$weir" rules list "$db" --search good | grep -qx 'no documents'
sed -i -e s/teem/team/ -e s/soon/1s/ mixed.yaml
"$weir" rules validate "$db" mixed.yaml | grep -qx 'mixed.yaml: 3 documents, good'
"$weir" rules apply "$db" mixed.yaml >/dev/null
"$weir" rules validate "$db" --json "$rules/warned.yaml" | json 'd["ok"] and len(d["warnings"]) == 1 and d["documents"] == 1'
# At the top of a file these are settings; in a rule that is alone in its file they are the rule's.
other=--db=sqlite:$work/other.db
printf 'response: { headers: [] } # none\nrules:\n  - { name: r, limit: 1, window: 1m }\n' >top.yaml
printf 'name: s\nlimit: 1\nwindow: 1m\nresponse: { headers: [draft] }\nallow: { keys: [a] }\n' >alone.yaml
"$weir" rules apply "$other" top.yaml --publish enforced >/dev/null
"$weir" rules apply "$other" alone.yaml --publish enforced >/dev/null
"$weir" rules get settings "$other" | grep -qxF 'response: { headers: [] } # none'
"$weir" rules get s "$other" | cmp - alone.yaml
"$weir" rules get published "$other" >whole.yaml
"$weir" lint whole.yaml >/dev/null
grep -qxF 'response: { headers: [] } # none' whole.yaml
for bad in 'ruels: []' 'rules: {}' 'rules: [x]' 'rules: [{ limit: 1 }]' '- a' '' 'a: [' 'rules: []
rules: []' 'name: x
rules: []' 'domain: x
rules: []' 'descriptors: []' '--- a
--- b' "$(printf 'name: "a\302\205b"')"; do
    printf '%s\n' "$bad" >bad.yaml
    fails 1 "$weir" rules apply "$db" bad.yaml
    reported "bad.yaml:"
done
fails 1 "$weir" rules apply "$db" none.yaml
reported "No such file"
mkdir empty
fails 1 "$weir" rules apply "$db" empty
reported "no *.yaml or *.yml"
# Names that look like other paths, and text with control characters for the terminal.
printf 'name: "a/../b?x=1#%%41"\nlimit: 1\nwindow: 1s\n' >odd.yaml
"$weir" rules apply "$db" odd.yaml >/dev/null
"$weir" rules get 'a/../b?x=1#%41' "$db" | cmp - odd.yaml
printf 'name: odd2\n# \033[31mred\nlimit: 1\nwindow: 1s\n' >odd.yaml
"$weir" rules apply "$db" odd.yaml >"$work/out" 2>&1 || true
lacks "$(printf '\033')" "$work/out"

# ---- tokens ----
"$weir" token list "$db" | grep -qx 'no tokens'
"$weir" token create "ci" --role editor --expires 30d "$db" >token 2>"$work/err"
grep -qE '^weir_[0-9a-f]+_[A-Za-z0-9_-]{40,}$' token
reported "not shown again"
"$weir" token create two --role viewer --json "$db" >two.json
json 'd["role"] == "viewer" and d["expires"] is None' <two.json
"$weir" token list --json "$db" | json 'len(d["items"]) == 2 and "token" not in d["items"][0]'
"$weir" token list "$db" >"$work/out"
lacks "$(cut -d_ -f3- token)" "$work/out"
id=$(cut -d_ -f2 token)
"$weir" token revoke "$id" "$db" | grep -qx "$id: revoked"
"$weir" token list "$db" | grep -qE "^$id +ci +editor .* revoked"
fails 1 "$weir" token revoke "$id" "$db"
fails 1 "$weir" token create x --role emperor "$db"
# Login links: for a dashboard that only this host can reach.
fails 1 "$weir" token link me --role viewer "$db"
reported "where is the dashboard? --url, or --file with its weir.yaml"
printf 'admin: 127.0.0.1:9091\nstate: %s/linked\nsegment: { path: %s/linked-segment }\nrules: []\n' "$work" "$work" >linked.yaml
fails 2 "$weir" token link me --file linked.yaml
"$weir" token link me --role viewer --file linked.yaml >link 2>"$work/err"
grep -qE '^http://127\.0\.0\.1:9091/#login=[0-9a-f]{12}_[A-Za-z0-9_-]{43}$' link
reported "logs a browser of this host in, once, until"
"$weir" token link me --role viewer --json --file linked.yaml | json '"#login=" + d["link"] in d["url"] and d["role"] == "viewer"'
"$weir" token list --json --file linked.yaml | json 'len(d["items"]) == 2 and "link" not in d["items"][0]'
# An unused link expires after five minutes, not with the session that it would begin.
"$weir" token list --json --file linked.yaml | json 'all(0 < seconds(t["created"], t["expires"]) <= 300 for t in d["items"])'
sed -i 's/127.0.0.1/0.0.0.0/' linked.yaml
fails 1 "$weir" token link me --role viewer --file linked.yaml
reported "login links are for an admin listener that only this host can reach"
# The state folder is made with the folders above it, as a new user's ~/.local/state/weir has to be.
mkdir fresh
printf '%s\n' "gateway: { listen: 8080, upstreams: [http://127.0.0.1:9000] }" "admin: 127.0.0.1:9091" "state: a/b/state" >fresh/weir.yaml
"$weir" token create first --role operator --file fresh/weir.yaml >"$work/out" 2>&1
[ -s fresh/a/b/state/rules.db ]
fails 1 "$weir" token create x --role viewer --expires yesterday "$db"

# ---- the database that a weir.yaml names ----
cat >weir.yaml <<END
gateway: { listen: 127.0.0.1:1, upstreams: [http://127.0.0.1:2] }
admin: 127.0.0.1:3
rules_db: sqlite:$work/rules.db
state: $work/state
END
"$weir" rules list --json --file weir.yaml | json '"login" in [i["name"] for i in d["items"]]'
"$weir" rules list --json | json '"login" in [i["name"] for i in d["items"]]'
sed -i /rules_db/d weir.yaml
"$weir" rules list | grep -qx 'no documents'
sed -i 's/^admin.*/rules: shop.yaml/' weir.yaml
fails 1 "$weir" rules list
reported "no rules service"

# ---- rules in files: shown, compared, and moved to the database by a command ----
mkdir files rules.d
cat >files/weir.yaml <<END
gateway: { listen: 127.0.0.1:1, upstreams: [http://127.0.0.1:2] }
admin: { listen: 127.0.0.1:3, rules: files }
state: $work/files/state
rules: $work/rules.d
END
printf 'rules:\n  # kept\n  - { name: a, limit: 1, window: 1m }\n  - { name: b, shadow: true, limit: 2, window: 1m }\n' >rules.d/a.yaml
file=--file=$work/files/weir.yaml
"$weir" rules list "$file" >"$work/out"
grep -qE "^a +v1 +v1 +[0-9-]+ +files +$work/rules.d/a.yaml:3 +1 per 1m" "$work/out"
"$weir" rules list "$file" --json | json '[(i["name"], i["line"], i["stage"]) for i in d["items"]] == [("a", 3, "enforced"), ("b", 4, "shadow")]'
[ "$("$weir" rules get a "$file")" = "$(printf '# kept\n{ name: a, limit: 1, window: 1m }')" ]
"$weir" rules get published "$file" | grep -q 'name: b'
"$weir" rules history "$file" | grep -qE '^1 +2 .* files'
"$weir" rules validate rules.d "$file" | grep -qx 'rules.d: 2 documents, good'
for change in "apply rules.d" "publish a --stage draft" "rollback a --to 1" "rollback --revision 1"; do
    # shellcheck disable=SC2086 # several words on purpose
    fails 1 "$weir" rules $change "$file"
    reported "the rules are those of $work/rules.d, and are changed there"
done
echo 'rules: [{ name: c, limt: 1, window: 1m }]' >rules.d/c.yaml
"$weir" rules list "$file" >"$work/out" 2>"$work/err"
reported "$work/rules.d/c.yaml:1:20: error: a rule has no field \"limt\""
printed 'no documents'
fails 1 "$weir" rules import "$file"
reported 'c.yaml:1:20: error'
reported 'nothing was imported'
rm rules.d/c.yaml
fails 2 "$weir" rules import --url http://127.0.0.1:1
reported 'use --file with its weir.yaml, or --db'
fails 2 "$weir" rules import --db "sqlite:$work/fresh.db"
reported 'which file or directory?'
fails 1 "$weir" rules import "$work/nowhere" "$file"
"$weir" rules import --reason 'to the database' "$file" >"$work/out"
printed "imported and published 2 documents of $work/rules.d"
grep -q 'admin: { rules: database }' "$work/out"
fails 1 "$weir" rules import "$file"
reported 'the database has documents already; weir rules apply changes them'
"$weir" rules import --json "$file" >"$work/out" || true
json 'd["ok"] is False' <"$work/out"
sed -i 's/rules: files/rules: database/' files/weir.yaml
"$weir" rules history "$file" | grep -qE '^1 +2 .* to the database$'
"$weir" rules list "$file" --json | json '[(i["name"], i["stage"], "file" in i) for i in d["items"]] == [("a", "enforced", False), ("b", "shadow", False)]'
# Drift: the exit code, with and without a difference.
printf '{ name: a, limit: 1, window: 1m }\n' >only.yaml
"$weir" rules get a "$file" >same.yaml
"$weir" rules apply --dry-run --exit-code --publish enforced same.yaml "$file" >/dev/null
"$weir" rules apply --dry-run --publish enforced only.yaml "$file" >/dev/null
fails 3 "$weir" rules apply --dry-run --exit-code --publish enforced only.yaml "$file"
fails 3 "$weir" rules apply --dry-run --exit-code --prune --publish enforced same.yaml "$file"
"$weir" rules publish a --stage draft "$file" >/dev/null
"$weir" rules apply --dry-run --exit-code same.yaml "$file" >/dev/null
fails 3 "$weir" rules apply --dry-run --exit-code --publish enforced same.yaml "$file"
fails 1 "$weir" rules apply --dry-run --exit-code nowhere.yaml "$file"

# ---- the queue of a weir.yaml, without a rules service ----
fails 1 "$weir" queue stats
reported "there is no queue in it"
echo 'queue: on' >>weir.yaml
"$weir" queue stats | grep -qx 'the queue is empty'
"$weir" queue list --state dead --file weir.yaml | grep -qx 'no requests'
"$weir" queue list --json | json 'd == {"items": [], "next": None}'
"$weir" queue stats --json | json 'd["waiting"] == 0 and d["oldest_s"] is None and d["rules"] == []'
"$weir" queue requeue --all --json | json 'd == {"items": []}'
fails 1 "$weir" queue get 00000000000000000000000000000000
reported "there is no such ticket"
fails 1 "$weir" queue cancel 'no/ticket' ''
fails 1 "$weir" queue list --state lost
reported "waiting, under_way, delivered, dead or cancelled"
fails 2 "$weir" queue list --limit 1001
fails 2 "$weir" queue list "$db"
fails 2 "$weir" queue cancel
fails 2 "$weir" queue cancel --all
fails 2 "$weir" queue cancel --all --state delivered
fails 2 "$weir" queue requeue --all 00
fails 2 "$weir" queue requeue --rule api 00
fails 2 "$weir" queue get
reported "which ticket?"

# ---- a key of a weir.yaml, without a store and a rules service ----
mkdir key
cat >key/weir.yaml <<END
segment: { path: $work/key/segment, size: 64KiB }
state: $work/key/state
hot_keys: 1MiB
gateway: { listen: 127.0.0.1:1, upstreams: ["http://127.0.0.1:2"] }
rules:
  - { name: api, match: { path: /api }, key: "user:\${header:x-user}", limit: 2, window: 1h }
  - { name: team, match: { path: /team }, key: "user:\${header:x-user}", limit: 5, window: 1h }
  - { name: order, match: { path: /order }, key: "order:\${header:x-order}", limit: 5, window: 1h }
  - { name: closed, match: { path: /closed }, key: "user:\${header:x-user}", limit: 0, window: 1h }
END
cd key
fails 1 "$weir" key show user:42
reported "there is no segment; is weir serve running?"
chmod 755 "$work" . # root hands the agent over to another user
"$weir" agent >agent.log 2>&1 & # makes the segment
agent=$!
for _ in $(seq 100); do
    [ ! -e segment ] || break
    sleep 0.1
done
kill "$agent"
wait "$agent" || { cat agent.log; exit 1; }
"$weir" key take user:42 --rule api | grep -qx 'api: user:42 took it, 1 left'
"$weir" key show user:42 >"$work/out"
printed 'api   user:42  1 of 2  passes'
printed 'team  user:42  0 of 5  passes'
printed 'blocks hold on this host alone'
"$weir" key show user:42 --json | json '[i["remaining"] for i in d["items"]] == [1, 5] and d["hosts"] == "this"'
"$weir" key block user:42 --for 90s --reason 'a reason' >"$work/out"
printed 'api: user:42 blocked for 90s on this host only: there is no store'
printed 'team: user:42 blocked for 90s on this host only: there is no store'
"$weir" key show user:42 --rule api | grep -q 'blocked for 90s on this host'
"$weir" key unblock user:42 --rule team >"$work/out"
printed 'team: user:42 unblocked on this host only: there is no store'
"$weir" key show user:42 --json | json '[i["reason"] for i in d["items"]] == ["blocked", "limit"]'
"$weir" key unblock user:42 >"$work/out"
"$weir" key take user:42 --rule api --cost 1 --json | json 'd["items"][0]["allowed"] and d["items"][0]["remaining"] == 0'
"$weir" key take user:42 --rule api | grep -q '^api: user:42 denied, 0 left, passes again in 30m$'
"$weir" key reset user:42 --json | json '[i["hosts"] for i in d["items"]] == ["this", "this"]'
"$weir" key show user:42 --json | json '[i["remaining"] for i in d["items"]] == [2, 5]'
"$weir" key show 42 --json | json '[i["key"] for i in d["items"]] == ["user:42", "user:42", "order:42"]'
fails 2 "$weir" key block 42
reported "'42' is part of several keys"
reported '  order:42 --rule order'
"$weir" key block 42 --rule order >"$work/out"
printed 'order: order:42 blocked for 1h on this host only: there is no store'
"$weir" key block anything --rule api >"$work/out"
printed 'api: user:anything blocked for 1h on this host only: there is no store'
fails 1 "$weir" key block user:42 --rule nope
reported 'no rule of this name'
fails 1 "$weir" key block user:42 --rule closed
reported 'the rule has no counter'
fails 1 "$weir" key block user:42 --for 401d
reported 'at most 400 days'
fails 1 "$weir" key block user:42 --all-hosts
reported '--all-hosts needs a store'
fails 2 "$weir" key take user:42 --cost 0
fails 2 "$weir" key show
reported 'which key?'
fails 2 "$weir" key show user:42 "$db"
reported 'the database of rules has no keys in it'
cd ..

# ---- a terminal of 80 columns ----
python3 - "$weir" "$db" <<'END'
import fcntl, os, pty, struct, sys, termios
for command in (["rules", "list"], ["rules", "history"], ["token", "list"]):
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.execv(sys.argv[1], ["weir", *command, sys.argv[2]])
    text = b""
    try:
        while part := os.read(terminal, 4096):
            text += part
    except OSError:
        pass
    os.waitpid(pid, 0)
    lines = text.decode().splitlines()
    assert len(lines) > 1 and all(len(line) <= 80 for line in lines), lines
END
# ---- progress: on a terminal only ----
{
    echo "rules:"
    seq 1500 | sed 's|.*|  - { name: p&, match: { path: /p& }, limit: 5, window: 1m }|'
} >many.yaml
python3 - "$weir" <<'END'
import os, pty, re, subprocess, sys
ends = pty.openpty()
command = [sys.argv[1], "rules", "apply", "many.yaml", "--db=sqlite:many.db"]
process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=ends[1])
os.close(ends[1])
shown = b""
while True:
    try:
        data = os.read(ends[0], 4096)
    except OSError:
        break
    shown += data
assert process.wait() == 0
lines = re.findall(rb"writing: (\d+) of 1500, about \d+ s left\r", shown)
assert not shown or (lines == sorted(lines, key=int) and shown.endswith(b"\033[K")), shown # a fast machine shows nothing
command[-1] = "--db=sqlite:piped.db"
piped = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
assert piped.stderr == b"", piped.stderr
END

echo "weir rules, weir token, weir queue and weir key: good"
