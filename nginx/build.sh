#!/bin/bash
# Builds ngx_http_weir_module.so and ngx_stream_weir_module.so for the distribution's nginx, from the sources of its
# nginx-dev package. Two files: one that needs stream cannot be loaded where stream is not.
#
#   nginx/build.sh OUT LIBRARIES RESP RLS API   OUT: a folder; LIBRARIES: "libweir-store.a libweir.a"; RESP, RLS, API: libweir-resp.a and so on
#   WEIR_CFLAGS, WEIR_LDFLAGS                 more flags, e.g. for a sanitizer
set -euo pipefail
PATH=$PATH:/usr/sbin # nginx is there, and an ordinary user's PATH lacks it
[ $# -eq 5 ] || { echo "usage: nginx/build.sh OUT LIBRARIES RESP RLS API" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
sources=${NGINX_SOURCES:-/usr/share/nginx/src}
[ -f "$sources/conf_flags" ] || { echo "nginx/build.sh: no nginx sources in $sources; install nginx-dev" >&2; exit 1; }
command -v nginx >/dev/null || { echo "nginx/build.sh: no nginx in $PATH; install nginx" >&2; exit 1; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
# shellcheck disable=SC2086
WEIR_LIBRARY=$(realpath $2 | tr '\n' ' ')
WEIR_RESP_LIBRARY=$(realpath "$3")
WEIR_RLS_LIBRARY=$(realpath "$4")
WEIR_API_LIBRARY=$(realpath "$5")
WEIR_INCLUDE=$(realpath "$here/../include")
WEIR_LIBS=$(pkg-config --libs yaml-0.1 libpcre2-8 hiredis openssl)
WEIR_RLS_LIBS=$(pkg-config --libs libprotobuf-c jansson)
WEIR_API_LIBS=$(pkg-config --libs jansson libcrypto)
WEIR_NGINX=$here
WEIR_SHARED="$here/ngx_weir_engine.c $here/ngx_weir_store.c $here/ngx_weir_store_channel.c $here/ngx_weir_store_stats.c"
export WEIR_LIBRARY WEIR_RESP_LIBRARY WEIR_RLS_LIBRARY WEIR_API_LIBRARY WEIR_INCLUDE WEIR_LIBS WEIR_RLS_LIBS WEIR_API_LIBS WEIR_NGINX WEIR_SHARED

tree=$out/tree
# configure runs again only if the sources, the list of files or the flags change.
stamp=$(printf '%s\n' "$sources" "$WEIR_LIBRARY" "$WEIR_RESP_LIBRARY" "$WEIR_RLS_LIBRARY" "$WEIR_API_LIBRARY" "$WEIR_SHARED" "${WEIR_CFLAGS:-}" \
    "${WEIR_LDFLAGS:-}" "${CC:-}" && cat "$here/http/config" "$here/stream/config" "$sources/conf_flags" && nginx -v 2>&1)
if [ ! -f "$out/stamp" ] || [ "$stamp" != "$(cat "$out/stamp")" ]; then
    rm -rf "$tree"
    cp -rL "$sources" "$tree"
    (
        cd "$tree"
        # shellcheck disable=SC1091
        . ./conf_flags
        ./configure "${NGX_CONF_FLAGS[@]}" --with-stream=dynamic ${CC:+--with-cc="$CC"} \
            --with-cc-opt="-g -O2 -fPIC -fno-strict-overflow ${WEIR_CFLAGS:-}" \
            --with-ld-opt="-Wl,-z,relro -Wl,-z,now ${WEIR_LDFLAGS:-}" --add-dynamic-module="$here/http" \
            --add-dynamic-module="$here/stream"
    ) >"$out/configure.log" 2>&1 || { tail -n 20 "$out/configure.log" >&2; exit 1; }
    printf '%s\n' "$stamp" >"$out/stamp"
fi
make -s -C "$tree" -f objs/Makefile objs/ngx_http_weir_module.so objs/ngx_stream_weir_module.so
for module in ngx_http_weir_module.so ngx_stream_weir_module.so; do
    cmp -s "$tree/objs/$module" "$out/$module" && continue # unchanged: keeps its time stamp
    cp "$tree/objs/$module" "$out/$module.new"
    mv "$out/$module.new" "$out/$module"
done
