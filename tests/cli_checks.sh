# Shared by the tests of the command; $work is their directory.
# shellcheck shell=sh disable=SC2154

# fails CODE COMMAND...: exits with CODE and writes to standard error, which is kept in $work/err.
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
# reported TEXT: standard error of the last failed command has this.
reported() { grep -qF -- "$1" "$work/err" || { echo "expected: $1"; cat "$work/err"; exit 1; }; }
