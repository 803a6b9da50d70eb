#!/bin/sh
# tools/format.sh [--check]: formats the C sources, or reports the files that are not formatted.
# Each clang-format release lays out some lines differently, so the release is pinned: the machine's own if it is that one, else the wheel of PyPI.
set -eu
cd "$(dirname "$0")/.."
release=14
format=
for name in "clang-format-$release" clang-format; do
    if command -v "$name" >/dev/null && "$name" --version | grep -q "version $release\."; then
        format=$name
        break
    fi
done
if [ -z "$format" ]; then
    format=build/tools/clang_format/data/bin/clang-format
    [ -x "$format" ] || /usr/bin/python3 -m pip install -q --no-deps --target build/tools "clang-format==$release.*" >&2
fi
case "${1:-}" in
--check) mode="--dry-run -Werror" ;;
"") mode=-i ;;
*) echo "usage: tools/format.sh [--check]" >&2 && exit 2 ;;
esac
# shellcheck disable=SC2086 # two words
find include src nginx tests fuzz bench examples -name '*.[ch]' -print0 | xargs -0 "$format" $mode
