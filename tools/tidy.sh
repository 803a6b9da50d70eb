#!/bin/sh
# tools/tidy.sh SOURCE OPTIONS...: clang-tidy of one source, whose findings are errors. A source that had none is not
# looked at again on this machine until something changes that clang-tidy sees: its text with all it includes (comments and
# macros, too, as both have checks), the options, the checks, clang-tidy itself. It takes seconds; preprocessing does not.
set -eu
source=$1
shift
passed=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/weir-tidy
mkdir -p "$passed"
seen=$(mktemp)
trap 'rm -f "$seen"' EXIT
clang-tidy --version >"$seen"
cat .clang-tidy >>"$seen"
echo "$source $*" >>"$seen"
clang -E -C -dD "$@" "$source" >>"$seen"
key=$(sha256sum "$seen" | cut -d ' ' -f 1)
[ ! -e "$passed/$key" ] || exit 0
clang-tidy --quiet --warnings-as-errors='*' "$source" -- "$@"
: >"$passed/$key"
