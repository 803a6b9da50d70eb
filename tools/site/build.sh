#!/bin/sh
# Builds the site of the documents into build/site; `serve` shows it on loopback and follows changes. ./dev docs calls it.
# Dead links and anchors fail. What it needs is installed once a machine, by versions and hashes of requirements.txt.
set -eu
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/weir-docs
python=$cache/venv/bin/python
mkdir -p "$cache"
{
    flock 9
    if ! cmp -s tools/site/requirements.txt "$cache/installed" || ! "$python" -c 'import mkdocs, material' 2>/dev/null; then
        echo "installing mkdocs into $cache" >&2
        rm -rf "$cache/venv" "$cache/installed"
        python3 -m venv "$cache/venv"
        "$python" -m pip install --quiet --disable-pip-version-check --require-hashes -r tools/site/requirements.txt
        cp tools/site/requirements.txt "$cache/installed"
    fi
} 9>"$cache/lock"
export NO_MKDOCS_2_WARNING=1
if [ "${1:-}" = serve ]; then
    exec "$python" -m mkdocs serve --dev-addr "127.0.0.1:${WEIR_PORT:-8000}" --watch README.md --watch tools/site
elif [ $# -gt 0 ]; then
    echo "./dev docs, or ./dev docs serve" >&2
    exit 2
fi
# Not --quiet, which hides warnings from `strict`, too.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$python" -m mkdocs build >"$log" 2>&1 || { cat "$log" >&2 && exit 1; }
echo "build/site/index.html; ./dev docs serve shows it with its search"
