#!/bin/sh
# tools/peer.sh NAME FOLDER: builds a server that weir is compared with to FOLDER/NAME, unless it exists; from its registry, with the
# installed go or cargo. ratelimit: envoyproxy/ratelimit (a minute); throttlecrab: throttlecrab-server (some minutes).
set -eu
[ $# -eq 2 ] || { echo "usage: tools/peer.sh ratelimit|throttlecrab FOLDER" >&2; exit 2; }
ratelimit=v1.4.1-0.20260122083618-3fb702589d36
throttlecrab=0.4.40
case $1 in
ratelimit) version=$ratelimit builder=go ;;
throttlecrab) version=$throttlecrab builder=cargo ;;
*) echo "tools/peer.sh: no peer '$1'" >&2; exit 2 ;;
esac
[ ! -x "$2/$1-$version" ] || { ln -sf "$1-$version" "$2/$1" && exit 0; }
command -v $builder >/dev/null || { echo "tools/peer.sh: $1 needs $builder" >&2; exit 1; }
mkdir -p "$2"
work=$(mktemp -d "$2/XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
case $1 in
ratelimit)
    GOBIN=$(realpath "$work") go install "github.com/envoyproxy/ratelimit/src/service_cmd@$version" >&2
    program=$work/service_cmd
    ;;
throttlecrab)
    # Intermediate files are kept until it is done: an interrupted build continues from there the next time.
    CARGO_TARGET_DIR=$2/throttlecrab-parts cargo install -q --locked --root "$work" --version "=$version" throttlecrab-server >&2
    program=$work/bin/throttlecrab-server
    rm -rf "$2/throttlecrab-parts"
    ;;
esac
mv "$program" "$2/$1-$version"
ln -sf "$1-$version" "$2/$1"
