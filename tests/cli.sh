#!/bin/sh
# The weir command as a person would try it: $1 is the binary.
set -eu
weir=$1
. "$(dirname "$0")/cli_checks.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$weir" help | grep -q 'usage: weir'
"$weir" --help | grep -q dump
for command in $("$weir" help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    "$weir" help "$command" | grep -qE "^usage: weir ($command|COMMAND)|^weir [0-9]" || { echo "no help for $command"; exit 1; }
done
fails 2 "$weir" help nonsense
reported "no command 'nonsense'"
fails 2 "$weir" explain
reported "did you mean 'check'?"
fails 2 "$weir" ban 203.0.113.9
reported "did you mean 'key block'?"
fails 2 "$weir" reload
reported SIGHUP
"$weir" version | grep -qE '^weir [0-9]+\.[0-9]+\.[0-9]+$'
fails 2 "$weir"
fails 2 "$weir" nonsense
for command in version help 'check --help'; do
    # shellcheck disable=SC2086 # several words
    if "$weir" $command >/dev/full 2>"$work/err"; then echo "$command: a full disk is no error"; exit 1; fi
    reported 'standard output'
done
fails 1 "$weir" init --force /dev/full
reported 'No space left'
fails 2 "$weir" dump
fails 2 "$weir" dump --nonsense
fails 2 "$weir" demo --nonsense
fails 1 "$weir" dump "$work/absent"
grep -q 'no segment at this path: its folder is missing, or weir .* has not run' "$work/err"
echo 'not a segment' >"$work/text"
fails 1 "$weir" dump "$work/text"
grep -q WEIR_ENOTSEG "$work/err"
fails 1 "$weir" segment convert "$work/text"
fails 1 "$weir" segment convert "$work/absent"
"$weir" segment convert --quiet "$work/absent"

"$weir" demo >"$work/demo"
[ "$(grep -c allowed "$work/demo")" -eq 5 ]

# A segment with entries, made by a test program, looked at by the command.
cat >"$work/fill.c" <<'EOF'
#include <weir/weir.h>
int main(int argc, char **argv)
{
    weir_segment_options how = {.path = argv[argc - 1], .size = 1 << 20, .flags = WEIR_OPEN_CREATE};
    weir_params params = {.limit = 5, .window_ns = 3600 * WEIR_SECOND};
    weir_segment *segment;
    weir_limit limit;
    weir_decision d;
    if (weir_segment_open(&how, &segment) || weir_limit_init(&limit, &params))
        return 1;
    for (int i = 0; i < (argc > 2 ? 20000 : 100); i++)
        if (weir_take(segment, &limit, &i, sizeof i, 2, weir_clock(segment), &d))
            return 1;
    weir_segment_close(segment);
    return 0;
}
EOF
gcc -Iinclude "$work/fill.c" "$(dirname "$weir")/libweir.a" -o "$work/fill"
"$work/fill" "$work/segment"
"$weir" dump "$work/segment" >"$work/dump"
grep -qE '^live +100$' "$work/dump"
grep -qE '^sound +yes$' "$work/dump"
grep -q 'more with --all' "$work/dump"
"$weir" dump --json "$work/segment" | grep -q '"more":true'
"$weir" dump --help | grep -q usage
"$weir" dump --json --all "$work/segment" | python3 -c '
import json, sys
d = json.load(sys.stdin)
assert d["live"] == 100 and d["allowed"] == 100 and d["sound"] is True, d
assert d["more"] is False and len(d["entries"]) == 100 and all(e["used"] == 2 and e["live"] for e in d["entries"])
'

# The path is JSON text. What an existing file needs is not what a resize needs: the error is that of opening it.
"$work/fill" "$work/a\"b"
"$weir" segment resize --json 2MiB "$work/a\"b" | python3 -c '
import json, sys
d = json.load(sys.stdin)
assert d["path"] == sys.argv[1] and d["size_before"] == 1 << 20 and d["size"] == 2 << 20 and d["live"] == 100, d
' "$work/a\"b"
mkdir "$work/small"
if unshare -m mount -t tmpfs none "$work/small" 2>/dev/null; then
    fails 1 unshare -m sh -ec 'mount -t tmpfs -o size=768k none "$1/small"
        cp --sparse=always "$1/segment" "$1/small" && "$2" segment resize 2MiB "$1/small/segment"' - "$work" "$weir"
    reported WEIR_ENOSPC
    if grep 'keeps its' "$work/err"; then exit 1; fi
fi

# Truncated while it is printed, which takes until the pipe is read: an error is reported, without a crash.
"$work/fill" large "$work/large"
mkfifo "$work/pipe"
"$weir" dump --json --all "$work/large" >"$work/pipe" 2>"$work/err" &
shown=$!
exec 3<"$work/pipe"
dd bs=1 count=1 <&3 >"$work/out" 2>/dev/null
: >"$work/large"
cat <&3 >>"$work/out"
exec 3<&-
wait "$shown" && exit 1
[ $? -eq 1 ]
reported 'was truncated while it was read'
