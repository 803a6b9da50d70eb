#!/bin/sh
# weir lint, check and convert as a user would try them: $1 is the binary.
set -eu
weir=$(realpath "$1")
. "$(dirname "$0")/cli_checks.sh"
cd "$(dirname "$0")/rules"
work=$(mktemp -d)
trap 'chmod -R u+rwx "$work"; rm -rf "$work"' EXIT
export NO_COLOR=1

# json EXPRESSION: true of the object d on standard input, and of `applied`, its rules whose key was present.
json() { python3 -c "
import json, sys
d = json.load(sys.stdin)
applied = [r for r in d.get('rules', []) if r.get('reason') != 'missing_key']
assert $1, json.dumps(d, indent=1)"; }

# ---- help and wrong command lines ----
"$weir" help | grep -q '  lint '
for command in lint check convert; do
    "$weir" $command --help | grep -q "^usage: weir $command"
    fails 2 "$weir" $command
    fails 2 "$weir" $command --hepl
    reported "did you mean '--help'?"
    fails 2 "$weir" $command -Z
    reported "no option '-Z'"
done
fails 2 "$weir" lintt
reported "did you mean 'lint'?"
fails 2 "$weir" lint --json=yes shop.yaml
reported "takes no value"

# ---- lint: good rules ----
"$weir" lint shop.yaml >"$work/out"
grep -qE '^login +ip:\$\{client_ip\} +5 +1m +sliding_window_log +[0-9]+MiB$' "$work/out"
grep -qE '^user-api +user:\$\{user_id\} +10/tier +1h ' "$work/out"
grep -qE '^user-api \(shadow\) ' "$work/out"
grep -qE '^gone .* banned$' "$work/out"
grep -qx 'shop.yaml: 5 rules, 1 of them in shadow; no warnings' "$work/out"
grep -qx '2 token_bucket, 1 leaky_bucket, 1 sliding_window_log' "$work/out"
grep -qE '^segment for a million keys of each: [0-9]+MiB; one of 64MiB holds [0-9]+ of each$' "$work/out"
[ "$(wc -L <"$work/out")" -le 80 ]
"$weir" lint - <shop.yaml | grep -q '^<stdin>: 5 rules'
echo 'rules: [ { name: quota, limit: { none: unlimited, default: 9 }, window: 1mo, algorithm: fixed_window } ]' | "$weir" lint - |
    grep -qE '^quota +\(one for all\) +9/tier +month +fixed_window'
mkfifo "$work/pipe"
cat shop.yaml >"$work/pipe" &
"$weir" lint "$work/pipe" | grep -q '5 rules'
"$weir" lint many/20-own.yaml shop.yaml | grep -c 'rule' >/dev/null
"$weir" lint --json shop.yaml | json 'd["ok"] and d["errors"] == [] and len(d["rules"]) == 5 and \
    d["rules"][0] == {**d["rules"][0], "name": "login", "key": "ip:${client_ip}", "limit": 5, "window_s": 60, "line": 9, \
    "algorithm": "sliding_window_log", "dialect": "weir", "shadow": False, "by_tier": False} and d["rules"][2]["shadow"] and \
    [r["consistency"] for r in d["rules"]] == ["strict", "eventual", "eventual", "eventual", "local"]'
"$weir" lint --json many 2>/dev/null | json '[r["dialect"] for r in d["rules"]] == ["descriptors"] * 6 + ["weir"] and \
    d["rules"][0]["domain"] == "messages" and d["rules"][3]["limit"] == "unlimited"'
python3 -c '
print("rules:")
for i in range(10000): print(f"  - {{ name: r{i}, match: {{ path: /p{i} }}, limit: {i + 1}, window: 1h }}")' >"$work/10000.yaml"
"$weir" lint "$work/10000.yaml" >"$work/out"
grep -q '^and 9950 more (--all shows them)$' "$work/out"
grep -qE '^counts over all hosts, exchanged every 50 ms: r0, r1, .* and 9[0-9]+ more$' "$work/out"
[ "$(wc -l <"$work/out")" -eq 57 ]
"$weir" lint --all "$work/10000.yaml" >"$work/out"
[ "$(grep -c '^r[0-9]' "$work/out")" -eq 10000 ]
tail -n 1 "$work/out" | grep -q ', r9999$'

# ---- lint: invalid rules ----
fails 1 "$weir" lint wide.yaml
cat >"$work/expected" <<'END'
wide.yaml:2:39: error: a rule has no field "kee"; did you mean 'key'?
    2 |   - { name: ab, limit: 1, window: 1m, kee: x }
      |                                       ^
wide.yaml:3:42: error: a rule has no field "kee"; did you mean 'key'?
    3 |   - { name: "日本語", limit: 1, window: 1m, kee: x }
      |                                             ^
wide.yaml: 2 errors
END
diff "$work/expected" "$work/err"
set +e
"$weir" lint --json wide.yaml >"$work/out" 2>"$work/err"
[ $? -eq 1 ] && [ ! -s "$work/err" ] || exit 1
set -e
json 'd["ok"] is False and d["rules"] == [] and [(e["line"], e["column"], e["severity"], e["suggestion"]) \
    for e in d["errors"]] == [(2, 39, "error", "key"), (3, 42, "error", "key")]' <"$work/out"
"$weir" check --rules shop.yaml 'http://user:p@ss@@shop.example/x' | grep -q '^GET /x of shop.example at '
printf 'rules:\n  - name:\ttabs\t\n    limit: 1\n    window:\t1m\n    kee: x\n' >"$work/tabs.yaml"
fails 1 "$weir" lint "$work/tabs.yaml"
python3 -c 'print("rules:\n  - { name: a, limit: 1, window: 1m, response: { message: \"" + "x" * 3000 + "\" }, kee: 1 }")' >"$work/long.yaml"
fails 1 "$weir" lint "$work/long.yaml"
[ "$(wc -L <"$work/err")" -le 200 ]
fails 1 "$weir" lint broken.yaml
printf 'rules:\n  - { name: "\033[31mred", limit: 1, window: 1m, "\033[2Jkee": x }\n' >"$work/escape.yaml"
fails 1 "$weir" lint "$work/escape.yaml"
! grep -q "$(printf '\033')" "$work/err"
"$weir" lint warned.yaml >"$work/out" 2>"$work/err"
reported 'warned.yaml:3:10: warning: '
grep -q '; 1 warning$' "$work/out"
fails 1 "$weir" lint --strict warned.yaml
reported 'warned.yaml:3:10: error: '
fails 1 "$weir" lint "$work/absent.yaml"
reported 'No such file or directory'
mkdir "$work/empty"
fails 1 "$weir" lint "$work/empty"
reported 'no *.yaml or *.yml'
set +e
"$weir" lint --json "$work/empty" >"$work/out"
[ $? -eq 1 ] || exit 1
set -e
json 'not d["ok"] and len(d["errors"]) == 1' <"$work/out"
head -c 4096 /dev/urandom >"$work/noise.yaml"
fails 1 "$weir" lint "$work/noise.yaml"
fails 1 "$weir" check --rules "$work/noise.yaml" /
fails 1 "$weir" convert --from descriptors "$work/noise.yaml"
if [ "$(id -u)" -ne 0 ]; then
    cp shop.yaml "$work/secret.yaml"
    chmod 0 "$work/secret.yaml"
    fails 1 "$weir" lint "$work/secret.yaml"
    reported 'Permission denied'
fi
if command -v script >/dev/null; then # colour on a terminal, and the table cut to its width
    script -qec "stty cols 60; env -u NO_COLOR TERM=xterm '$weir' lint warned.yaml" /dev/null >"$work/out" </dev/null
    grep -q "$(printf '\033')\[35mwarning" "$work/out"
    script -qec "stty cols 60; '$weir' lint warned.yaml" /dev/null >"$work/out" </dev/null
    ! grep -q "$(printf '\033')" "$work/out"
fi

printf 'rules:\n  - { name: a, limit: { x: 0, default: unlimited } }\n' | "$weir" lint - >"$work/out"
grep -qE '^a +\(one for all\) +unlimited/tier *$' "$work/out"

# ---- check: wrong command lines ----
check() { "$weir" check --rules shop.yaml --at 2026-01-02T03:04:05Z "$@"; }
wrong() { # wrong TEXT ARGUMENTS...
    text=$1
    shift
    fails 2 "$weir" check --rules shop.yaml "$@"
    reported "$text"
}
fails 2 "$weir" check /
reported 'give --rules'
for time in yesterday 2026-02-30 2026-13-01 2026-01-02T25:00:00Z 2026-01-02T03:04:61Z 9999999999 1e9 -1 0 '' 2026-01-02T03:04:05+99:00; do
    wrong '--at' --at "$time" /
done
for header in nonsense ': value' 'a b: c' 'X'; do wrong "'Name: value'" -H "$header" /; done
for address in 1.2.3 1.2.3.4.5 example.com 'fe80::1%eth0' ::g ''; do wrong 'address' --ip "$address" /; done
for cost in x 1.5 99999999999 ''; do wrong '--cost' --cost "$cost" /; done
for count in 0 -1 1000001 many 99999999999999999999; do wrong '--repeat' --repeat "$count" /; done
for duration in fast 1ns 5x -1s 1e3 ''; do wrong '--every' --every "$duration" /; done
for pair in user_id User=1 =1 1a=1; do wrong 'name=value' -A "$pair" /; done
wrong "did you mean '--repeat'?" --repaet 3 /
wrong 'needs a value' --ip
wrong 'give METHOD URL'
wrong "begin it with '/'" example.com
wrong 'no host' http:///x
wrong 'blank' '/a b'
wrong 'one METHOD and one URL' GET / /
wrong 'not a method' 'G/T' /
wrong '--take is for --segment' --take /
wrong 'needs --domain' a=b
wrong '--hits is for descriptors' --hits 2 /
wrong 'are of requests' --domain d --ip 192.0.2.1 a=b
wrong 'KEY=VALUE' --domain d =b
wrong 'KEY=VALUE' --domain d a=b,
wrong 'which descriptor' --domain d
fails 1 "$weir" check --rules "$work/absent" /
fails 1 "$weir" check --rules wide.yaml /
reported "did you mean 'key'?"

# ---- check: decisions ----
check --ip 203.0.113.9 --repeat 7 --every 1s POST https://www.example.com/auth/login >"$work/out"
grep -qE '^ +6  \+5 +deny, 0 of 5 left, retry in 55 s.*login$' "$work/out"
grep -q '^5 allowed, 2 denied$' "$work/out"
for line in '    key       ip:203.0.113.9' '    limit     5 in 1m' '  HTTP/1.1 429 Too Many Requests' '  Retry-After: 54' \
    '  Content-Type: application/json' '  RateLimit-Policy: "login";q=5;w=60'; do
    grep -qxF -- "$line" "$work/out" || { echo "missing: $line"; cat "$work/out"; exit 1; }
done
grep -q 'Take a break.' "$work/out"
check --json --ip 203.0.113.9 --repeat 7 --every 1s POST /auth/login | json 'd["decision"] == "deny" and \
    d["rule"] == "login" and d["key"] == "ip:203.0.113.9" and d["limit"] == 5 and d["remaining"] == 0 and \
    d["reset_s"] == 58 and d["retry_after_s"] == 54 and d["allowed"] == 5 and d["denied"] == 2 and d["status"] == 429 and \
    [r["decision"] for r in d["requests"]] == ["allow"] * 5 + ["deny"] * 2 and len(d["rules"]) == 1 and \
    d["requests"][1]["at"] == "2026-01-02T03:04:06Z" and d["headers"]["Retry-After"] == "54" and not d["dry_run"] and \
    json.loads(d["body"])["message"] == "Take a break."'
check --json -i 203.0.113.9 -H 'Accept: application/problem+json' -n 6 POST /auth/login |
    json 'd["content_type"] == "application/problem+json"'
# The client: forwarded by a trusted proxy, named by the application, by a header, by both.
check --json --ip 10.1.1.1 -H 'X-Forwarded-For: 203.0.113.1' -H 'X-Forwarded-For: 10.2.2.2' POST /auth/login |
    json 'd["key"] == "ip:203.0.113.1"'
check --json -H 'x-user-id:  42 ' '/api/x?y=z#f' | json 'd["key"] == "user:42" and d["limit"] == 10'
check --json -A user_id=7 -H 'X-User-Id: 42' -H 'X-Plan: pro' /api/x | json 'd["key"] == "user:7" and d["limit"] == 100'
check --json -A user_id=7 /api/export | json 'd["remaining"] == 5 and d["rules"][0]["cost"] == 5'
check --json -A user_id=7 --cost 3 /api/export | json 'd["remaining"] == 7'
check --json -A user_id=7 --cost 11 /api/x | json 'd["decision"] == "deny" and d["reason"] == "never_fits" and \
    d["retry_after_s"] is None'
check --json -A user_id=7 --cost 0 /api/x | json 'd["remaining"] == 10'
check --json -A user_id=7 -n 3 /api/x | json 'd["decision"] == "allow" and d["shadow_denied"] and \
    [(r["decision"], r["shadow"]) for r in d["rules"]] == [("allow", False), ("deny", True)]'
check --json -A user_id=666 /api/x | json 'd["decision"] == "deny" and d["reason"] == "block_list"'
check --json --ip 198.51.100.1 -n 9 POST /auth/login | json 'd["reason"] == "allow_list" and d["denied"] == 0'
check --json /api/x | json 'd["decision"] == "allow" and d["reason"] == "missing_key"'
check /api/x | grep -q -- '--ip give what keys need'
check --json /nothing | json 'd["decision"] == "allow" and d["rule"] is None and d["reason"] == "no_rule" and d["rules"] == []'
check --json -n 3 /slow | json '[(r["decision"], r["delay_s"]) for r in d["requests"]] == \
    [("allow", 0), ("delay", 0.5), ("deny", 0)]'
check --json HTTP://u:p@WWW.example.com:8080/old/../old/1 | json 'd["status"] == 403 and d["reason"] == "ban" and \
    d["body"] == "Gone for good.\n" and d["limit"] == 0'
check --json -H 'Host: a.example.com' /old/1 | json 'd["decision"] == "deny"'
check --json /old/1 | json 'd["decision"] == "allow"'
"$weir" check --rules - --json --at 1767323045.25 /slow <shop.yaml | json 'd["at"] == "2026-01-02T03:04:05.25Z"'
"$weir" check --rules shop.yaml --json --at 2026-01-02T04:04:05+01:00 /slow | json 'd["at"] == "2026-01-02T03:04:05Z"'
# Repeated runs are independent of each other. The exit code is 0, or shows the decision.
check --exit-code /slow >"$work/out"
check -n 9 /slow >"$work/out"
set +e
check --exit-code -n 9 /slow >"$work/out"
[ $? -eq 1 ] || { echo "--exit-code"; exit 1; }
set -e
check -n 1000 --every 100ms /slow >"$work/out"
[ "$(grep -c '  +' "$work/out")" -lt 1000 ]
[ "$(check -n 1000 --all --every 100ms /slow | grep -c '  +')" -eq 1000 ]

# ---- check: descriptors ----
descriptors() { "$weir" check --rules many --at 2026-01-02T03:04:05Z --domain messages "$@" 2>"$work/err"; }
descriptors -n 6 --json kind=marketing,to=1 | json '[r["decision"] for r in d["requests"]] == ["allow"] * 5 + ["deny"] and \
    d["rules"][0]["descriptor"] == "kind=marketing,to=1"'
descriptors -n 6 --json kind=other | json 'd["denied"] == 0 and d["shadow_denied"]'
descriptors --json --hits 4 kind=marketing,to=1 | json 'd["remaining"] == 1'
descriptors --json remote_address=192.0.2.1 | json 'd["decision"] == "allow" and d["reason"] == "unlimited"'
descriptors --json x-plan=free remote_address=192.0.2.2 nobody=knows | json 'd["decision"] == "deny" and \
    [r["reason"] for r in d["rules"]] == ["ban", "limit", "no_rule"]'
descriptors --json 'kind=a\,b,to=x' | json 'd["rules"][0]["reason"] == "no_rule"'
descriptors x-plan=free | grep -q '^Envoy gets OVER_LIMIT'

"$weir" check --rules many --domain mesages --json kind=other 2>"$work/err" | json 'd["reason"] == "no_rule"'
reported "no limits of the domain 'mesages'"
"$weir" check --rules many/10-messages.yaml --json /x 2>"$work/err" | json 'd["reason"] == "no_rule"'
reported 'all rules are descriptors'

# ---- check: a real segment ----
cat >"$work/make.c" <<'EOC'
#include <weir/weir.h>
int main(int argc, char **argv)
{
    weir_segment_options how = {.path = argv[argc - 1], .size = 1 << 20, .flags = WEIR_OPEN_CREATE};
    weir_segment *segment;
    if (weir_segment_open(&how, &segment))
        return 1;
    weir_segment_close(segment);
    return 0;
}
EOC
sanitize=
case "$weir" in *-address/*) sanitize=-fsanitize=address,undefined ;; esac
# shellcheck disable=SC2046,SC2086 # words on purpose
gcc $sanitize -I../../include "$work/make.c" "$(dirname "$weir")/libweir.a" $(pkg-config --libs yaml-0.1 libpcre2-8) -pthread \
    -o "$work/make"
"$work/make" "$work/segment"
on_segment() { "$weir" check --rules shop.yaml --segment "$work/segment" --json -A user_id=1 "$@" /api/x; }
on_segment | json 'd["dry_run"] and d["remaining"] == 9'
on_segment -n 20 | json 'd["denied"] == 0 and d["remaining"] == 9'
on_segment --take -n 4 | json 'd["remaining"] == 6 and not d["dry_run"]'
on_segment | json 'd["remaining"] == 5'
"$weir" check --rules shop.yaml --segment "$work/segment" -n 2 -A user_id=1 /api/x | grep -q 'dry run'
on_segment --at "$(date -d '+1 day' +%s)" | json 'd["remaining"] == 9'
on_segment --at "$(date +%s)" | json 'd["remaining"] >= 5' # that second began up to a second ago
for past in 2026-01-02T03:04:05Z "$(date -d '-1 minute' +%s)"; do
    wrong 'in the past, and a segment has only the counters of now; leave out --at, or leave out --segment' \
        --segment "$work/segment" --at "$past" /
done
fails 1 "$weir" check --rules shop.yaml --segment "$work/none" /
reported 'no segment at this path'
fails 1 "$weir" check --rules shop.yaml --segment shop.yaml /
reported 'not a weir segment'

# ---- convert ----
converted() { "$weir" check --rules "$work/converted.yaml" --at 2026-01-02T03:04:05Z --json "$@"; }
"$weir" convert many/10-messages.yaml >"$work/converted.yaml" 2>"$work/err"
reported 'replaces has no counterpart'
"$weir" lint --strict "$work/converted.yaml" >"$work/out"
grep -q '# replaces has no counterpart' "$work/converted.yaml"
converted -A kind=marketing -A to=1 -n 7 / | json 'd["denied"] == 2 and d["rule"] == "messages/kind=marketing/to" and d["key"] == "1"'
converted -A kind=other -n 7 / | json 'd["denied"] == 0 and d["shadow_denied"]'
converted --ip 192.0.2.2 -n 11 / | json 'd["denied"] == 1'
converted --ip 192.0.2.1 -n 11 / | json 'd["denied"] == 0'
converted -H 'X-Plan: free' / | json 'd["decision"] == "deny" and d["reason"] == "ban"'
converted -H 'X-Plan: profi' -n 3 / | json 'd["denied"] == 1 and applied[0]["window_s"] == 7200'
cat >"$work/beside.yaml" <<'END'
domain: d
descriptors:
  - { key: path, value: /a/*/z, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: user-agent, value: ab*, rate_limit: { unit: minute, requests_per_unit: 1 }, share_threshold: true }
  - { key: user-agent, value: abc, rate_limit: { unit: minute, requests_per_unit: 3, algorithm: token_bucket, burst: 4 } }
  - { key: user-agent, rate_limit: { unit: minute, requests_per_unit: 5 } }
  - { key: generic_key, value: a, descriptors: [{ key: generic_key, value: 'it''s: "b"', rate_limit: { unit: year, requests_per_unit: 1 } }] }
  - { key: X Y, quota_mode: true, rate_limit: { unit: week, requests_per_unit: 1 } }
  - { key: bill, rate_limit: { unit: month, requests_per_unit: 1, timezone: Europe/Berlin } }
END
"$weir" convert "$work/beside.yaml" >"$work/converted.yaml" 2>"$work/err"
reported 'quota_mode has no counterpart'
"$weir" lint --strict "$work/converted.yaml" >"$work/out"
converted -n 9 /a/b/c/z | json 'd["allowed"] == 1'
converted -n 9 -H 'User-Agent: abd' / | json 'd["allowed"] == 1 and len(applied) == 1'
converted -n 9 -H 'User-Agent: abc' / | json 'd["allowed"] == 4 and len(applied) == 1'
converted -n 9 -H 'User-Agent: x' / | json 'd["allowed"] == 5 and len(applied) == 1'
converted -n 2 -A generic_key=a -A 'generic_key_2=it'"'"'s: "b"' / | json 'd["allowed"] == 1 and applied[0]["window_s"] == 365 * 86400'
converted -n 2 -A x_y=1 / | json 'd["allowed"] == 1'
converted -n 2 -A bill=1 / | json 'd["allowed"] == 1 and d["headers"]["X-RateLimit-Reset"] == "1769900400"'

"$weir" convert nginx.conf >"$work/converted.yaml" 2>"$work/err"
for text in "nginx.conf:20: warning: zone 'login' is used in several ways" 'delay=1 has no counterpart' '$who is computed' \
    "no limit_req_zone 'elsewhere'"; do reported "$text"; done
"$weir" lint "$work/converted.yaml" >"$work/out" 2>"$work/err"
converted --ip 192.0.2.1 -n 30 https://example.com/login | json 'd["allowed"] == 21 and d["status"] == 429 and len(applied) == 1'
converted --ip 192.0.2.1 -n 30 https://example.com/ | json 'd["allowed"] == 6 and \
    [r["delay_s"] for r in d["requests"]][:6] == [0, 0.1, 0.2, 0.3, 0.4, 0.5] and d["rule"] == "login"'
converted --ip 192.0.2.1 -n 30 https://example.org/ | json 'applied == []'
converted --ip 10.0.0.1 -H 'X-Forwarded-For: 192.0.2.9' https://example.com/ | json 'd["key"] == "192.0.2.9"'
converted -H 'X-API-Key: k' -n 9 https://example.com/api/x | json 'd["allowed"] == 4 and d["rule"] == "keys"'
converted -H 'X-API-Key: k' -n 9 https://example.com/api/free/x | json 'd["denied"] == 0 and d["shadow_denied"] and \
    [r["rule"] for r in applied] == ["keys-2"]'
converted --ip 192.0.2.1 https://example.com/api/x | json 'applied == [] and d["rules"][0]["rule"] == "keys"'
converted -A who=me -n 2 https://example.com/a.PNG | json 'd["allowed"] == 1 and d["rule"] == "computed"'
printf 'limit_req_zone $uri$arg_a zone=z:1m rate=1r/s;\nlimit_req zone=z;\n' >"$work/snippet.conf"
"$weir" convert "$work/snippet.conf" >"$work/converted.yaml"
converted -n 2 '/x?a=1' | json 'd["allowed"] == 1 and d["key"] == "/x:1"'
printf 'set_real_ip_from 10.0.0.0/8;\nlimit_req_zone $uri zone=z:1m rate=1r/s;\nlimit_req zone=z;\n' >"$work/real.conf"
"$weir" convert "$work/real.conf" >"$work/out" 2>"$work/err"
reported "real.conf:1: warning: the proxies send the client's address in X-Real-IP"
printf 'real_ip_header x-forwarded-for;\n' >>"$work/real.conf"
"$weir" convert "$work/real.conf" >"$work/out" 2>"$work/err"
if grep -q X-Real-IP "$work/err"; then cat "$work/err"; exit 1; fi
# A quote in a name stays in its text.
printf 'limit_req_zone $uri zone=z:1m rate=1r/s;\nserver { server_name .it\047s.example; limit_req zone=z; }\n' >"$work/quote.conf"
"$weir" convert "$work/quote.conf" | grep -qxF "      host: ['it''s.example', '*.it''s.example']"
# A line break of Unicode does not end a comment.
printf 'limit_req_zone $uri zone=z:1m rate=1r/s;\nlimit_req zone=z "\342\200\250rules: []";\n' >"$work/break.conf"
"$weir" convert "$work/break.conf" >"$work/converted.yaml"
"$weir" lint --strict "$work/converted.yaml" >"$work/out"
grep -q '^  # .*:2: limit_req zone=z ?rules: \[\]$' "$work/converted.yaml"
# As in nginx, omitting a part of the key does not bypass the limit, and a dry run does not deny.
converted -n 2 /x | json 'd["allowed"] == 1'
printf 'limit_req_zone $arg_a zone=z:1m rate=1r/s;\nlimit_req zone=z;\nlimit_req_status 503;\nlimit_req_dry_run on;\n' >"$work/snippet.conf"
"$weir" convert "$work/snippet.conf" >"$work/converted.yaml"
"$weir" lint --strict "$work/converted.yaml" >"$work/out"
converted -n 2 /x | json 'd["reason"] == "missing_key" or d["rules"][0]["reason"] == "missing_key"'
"$weir" convert many/10-messages.yaml nginx.conf 2>"$work/err" | "$weir" lint - >"$work/out" 2>"$work/err"
grep -q '10 rules' "$work/out"
fails 1 "$weir" convert shop.yaml
reported "weir's own rules already"
fails 1 "$weir" convert "$work/absent"
fails 1 "$weir" convert "$work/noise.yaml"
fails 1 "$weir" convert wide.yaml --from descriptors
fails 2 "$weir" convert --from ngnix nginx.conf
reported "did you mean 'nginx'?"
for text in 'limit_req zone=a' 'http { limit_req zone=a;' 'limit_req zone=a; }' 'limit_req "zone;' '{ limit_req a; }' 'a { limit_req }'; do
    printf '%s' "$text" >"$work/bad.conf"
    fails 1 "$weir" convert "$work/bad.conf"
    reported 'bad.conf:1: error: '
done
printf 'limit_req_zone $uri zone=z:1m rate=1r/h;\nlimit_req zone=z;\n' >"$work/bad.conf"
fails 1 "$weir" convert "$work/bad.conf"
reported 'neither r/s nor r/m'

# ---- examples/api.yaml behaves as its comments describe ----
plays() { "$weir" check --rules ../../examples/api.yaml --ip 203.0.113.9 "$@"; }
"$weir" lint --strict ../../examples/api.yaml | grep -q ': 5 rules, 1 of them in shadow; no warnings$'
plays -H 'X-API-Key: k-acme' --repeat 70 /api/items | grep -qx '70 allowed, 0 denied'
plays -H 'X-API-Key: k-other' --repeat 70 /api/items | grep -qx '60 allowed, 10 denied'
plays -H 'X-API-Key: k-other' --repeat 4 /api/export | grep -qx '3 allowed, 1 denied'
plays /api/items | grep -qF '(the request lacks an attribute of the key, free)'
plays --repeat 6 POST /login | grep -qx '5 allowed, 1 denied'
plays --repeat 200 /healthz | grep -qx '200 allowed, 0 denied'

# ---- plans by key ----
mkdir "$work/plans"
cat >"$work/plans/rules.yaml" <<'END'
identity: { api_key: header:X-API-Key, tier: { from: api_key, file: plans.csv, default: free } }
rules: [ { name: api, key: "${api_key}", limit: { free: 2, pro: 4, default: 1 }, window: 1m } ]
END
fails 1 "$weir" lint "$work/plans/rules.yaml"
reported "rules.yaml:1:69: error: $work/plans/plans.csv cannot be read: No such file or directory"
printf 'api_key,tier\nk-acme,pro\n' >"$work/plans/plans.csv"
(cd "$work/plans" && "$weir" lint --strict rules.yaml | grep -q ': 1 rule; no warnings')
by_key() { "$weir" check --rules "$work/plans/$1.yaml" -H "X-API-Key: $2" --repeat 5 / | grep ' denied$'; }
[ "$(by_key rules k-acme)" = '4 allowed, 1 denied' ]
[ "$(by_key rules k-other)" = '2 allowed, 3 denied' ]
{ printf 'gateway: { listen: 1, upstreams: ["http://127.0.0.1:9"] }\n' && cat "$work/plans/rules.yaml"; } >"$work/plans/weir.yaml"
[ "$(cd / && by_key weir k-acme)" = '4 allowed, 1 denied' ] # relative to weir.yaml
printf 'k-acme,pro\nk-acme,free\n' >"$work/plans/plans.csv"
for file in rules weir; do
    fails 1 "$weir" lint "$work/plans/$file.yaml"
    reported "$work/plans/plans.csv:2:1: error: this key is here a second time: it is already on line 1"
done

# ---- a weir.yaml instead of rules ----
mkdir "$work/host" "$work/host/rules.d"
cd "$work/host"
for command in "serve --check" why "top --once"; do
    # shellcheck disable=SC2086 # a command and its option
    fails 1 "$weir" $command
    reported "weir init writes a new one"
done
(umask 022 && "$weir" init) | grep -q 'weir lint'
[ "$(stat -c %a weir.yaml)" = 600 ]
chmod 664 weir.yaml
(umask 022 && "$weir" init --force) | grep -q 'weir lint'
[ "$(stat -c %a weir.yaml)" = 660 ]
"$weir" lint | grep -qx 'weir.yaml: 3 rules, 1 of them in shadow; no warnings'
"$weir" check --ip 203.0.113.9 --repeat 6 POST /login | grep -qx '5 allowed, 1 denied'
sed 's/limit: 5$/limit: five/' weir.yaml >bad.yaml
for command in lint "check / --rules"; do
    # shellcheck disable=SC2086 # words
    fails 1 "$weir" $command bad.yaml
    reported 'bad.yaml:41:12: error: limit is a number'
done
sed 's/listen:/lisen:/' weir.yaml >bad.yaml
fails 1 "$weir" lint bad.yaml
reported 'gateway has no field "lisen"'
cp "$OLDPWD/shop.yaml" rules.d/
printf '%s\n' 'gateway: { listen: 8080, upstreams: [http://127.0.0.1:9000] }' "segment: { path: $work/host/segment }" 'rules: rules.d' >weir.yaml
"$weir" lint | grep -q '/rules.d: 5 rules'
"$weir" lint --json weir.yaml | json 'd["ok"] and len(d["rules"]) == 5'
# Warnings that depend on the host: its segment, and what sets attributes.
cat >limited.yaml <<'END'
gateway: { listen: 8080, upstreams: [http://127.0.0.1:9000] }
rules:
  - { name: user, key: "${user_id}", limit: { pro: 1000, default: 10 }, window: 1h, algorithm: sliding_window_log }
END
"$weir" lint limited.yaml >out 2>err
grep -qF 'limited.yaml:3:26: warning: identity has no source of user_id: no request is limited by "user"; name one' err
grep -qF 'limited.yaml:3:5: warning: identity has no source of tier: every request has the default limit of "user"' err
grep -qF 'limited.yaml:3:5: warning: a segment of 64MiB holds 819 keys of "user" at their limit, of 4.6 kB each' err
grep -qE '^user .* 1h +sliding_window_log +too many$' out
grep -qx 'segment for a million keys of each: none is large enough, as a slab has at most 2304MiB; one of 64MiB holds 819 of each' out
(cat limited.yaml; echo 'segment: { size: 100GiB }') >huge.yaml
"$weir" lint huge.yaml 2>err | grep -q 'large enough, .*; one of 100GiB holds 471859 of each$' # not 1310720
# The store has the counters of strict rules, which a log is by default.
(cat limited.yaml; echo 'store: redis://127.0.0.1:1') >stored.yaml
"$weir" lint stored.yaml 2>err | grep -q '1 rule; 2 warnings$'
(cat limited.yaml; echo 'store: { url: redis://127.0.0.1:1, consistency: local }') >stored.yaml
"$weir" lint stored.yaml 2>err | grep -q '1 rule; 3 warnings$'
grep -qx 'limited.yaml: 1 rule; 3 warnings' out
fails 1 "$weir" lint --strict limited.yaml
(cat limited.yaml; echo 'identity: { user_id: header:X-User, tier: header:X-Plan }'; echo "segment: { size: 128MiB }") >fits.yaml
"$weir" lint --strict fits.yaml | grep -q 'one of 128MiB holds 1638 of each$'
(cat limited.yaml; echo 'service: { http: 127.0.0.1:8081 }') >both.yaml
"$weir" lint both.yaml >out 2>err
grep -qF 'identity has no source of user_id: unless a caller of the service passes it, no request is limited by "user"' err
# As a rule file they may be an application's, which passes user_id and tier.
tail -n 2 limited.yaml | "$weir" lint - 2>err | grep -q ': 1 rule; 1 warning$'
echo 'identity: { api_key: header:X-API-Key }' | cat - limited.yaml | grep -v gateway | "$weir" lint - >out 2>err
grep -qF 'identity has no source of user_id: unless the application, or weir_attribute in nginx, passes it, no request' err
"$weir" lint --json weir.yaml | json 'd["ok"] and len(d["rules"]) == 5 and {r["consistency"] for r in d["rules"]} == {"local"}'
# Over which hosts rules count: by the store, and by what it and the rules set.
"$weir" lint | tail -n 1 | grep -qx 'counts on each host: every rule, as there is no store'
cp weir.yaml with_store.yaml
echo 'store: { url: "redis://127.0.0.1:1", sync_interval: 1.5s }' >>with_store.yaml
"$weir" lint with_store.yaml | tail -n 2 >"$work/out"
printf '%s\n' 'counts over all hosts, exact: login' 'counts over all hosts, exchanged every 1500 ms: user-api, user-api (shadow), slow' |
    cmp - "$work/out"
sed -i 's/sync_interval: 1.5s/consistency: local/' with_store.yaml
"$weir" lint with_store.yaml | tail -n 1 | grep -qx 'counts on each host: login, user-api, user-api (shadow), slow'
sed -i 's/consistency: local/consistency: lokal/' with_store.yaml
fails 1 "$weir" lint with_store.yaml
reported 'consistency must be local, eventual, strict or leased, not "lokal"; did you mean '"'local'?"
# With a rules service: the rules of the file, unless a database has published rules.
echo "{ admin: 127.0.0.1:9091, state: $work/host/state, gateway: { listen: 8080, upstreams: [http://127.0.0.1:9000] }, rules: rules.d }" >served.yaml
"$weir" lint served.yaml | grep -q '/rules.d: 5 rules'
mkdir state
echo 'rules: [{ name: a, limit: 1, window: 1s }]' >state/published.yaml
"$weir" lint served.yaml | grep -q '/rules.d: 5 rules'
sed -i '1i # weir: published revision 1, 2, sha256 3' state/published.yaml
"$weir" lint served.yaml >"$work/out" 2>"$work/err"
grep -q '/state/published.yaml: 1 rule;' "$work/out"
reported 'state which: admin: { rules: database }, and remove rules here, or admin: { rules: files }'
sed 's/admin: 127.0.0.1:9091/admin: { listen: 127.0.0.1:9091, rules: files }/' served.yaml >stated.yaml
"$weir" lint stated.yaml | grep -q '/rules.d: 5 rules'
echo '{ rules: https://127.0.0.1:9/, state: nowhere, gateway: { listen: 8080, upstreams: [http://127.0.0.1:9000] } }' >far.yaml
fails 1 "$weir" lint far.yaml
reported 'nothing was published yet'
# The counters of a segment: there are none yet.
fails 1 "$weir" check --segment weir.yaml /
reported "$work/host/segment: no segment"
fails 1 "$weir" dump weir.yaml
reported "$work/host/segment: no segment"
