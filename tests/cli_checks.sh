# What tests of the command share; $work is a folder of theirs.
# shellcheck shell=sh disable=SC2154

# fails CODE COMMAND...: exits with CODE and says something on standard error, which stays in $work/err.
fails() {
    code=$1
    shift
    set +e
    "$@" >"$work/out" 2>"$work/err"
    got=$?
    set -e
    [ "$got" -eq "$code" ] || { echo "$*: exit $got, expected $code"; cat "$work/err"; exit 1; }
    [ -s "$work/err" ] || { echo "$*: failed without a word"; exit 1; }
}
# said TEXT: the last that failed said this.
said() { grep -qF -- "$1" "$work/err" || { echo "expected: $1"; cat "$work/err"; exit 1; }; }
