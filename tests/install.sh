#!/bin/sh
# Installs into a directory, then builds a program against it by pkg-config: with the shared library, and statically.
set -eu
cd "$(dirname "$0")/.."
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
make -s install PREFIX="$to/usr" CC=gcc
export PKG_CONFIG_PATH="$to/usr/lib/pkgconfig"
for header in weir check load store; do # each compiles by itself
    echo "#include <weir/$header.h>" | gcc -std=c99 -Wall -Wextra -Werror -I"$to/usr/include" -fsyntax-only -x c -
done
unit=$to/usr/lib/systemd/system/weir.service
[ ! -f "$to/usr/lib/weir/ngx_http_weir_module.so" ] || grep -qx "ExecStart=$to/usr/bin/weir serve /etc/weir/weir.yaml" "$unit"
# The service's exposure level, as systemd rates it, from 0.0 to 10.0: at most 3.0.
if [ -f "$unit" ]; then
    systemd-analyze security --offline=true --no-pager "$unit" >"$to/exposure"
    tail -n 1 "$to/exposure"
    awk '/Overall exposure level/ { seen = 1; for (i = 1; i <= NF; i++) if ($i ~ /^[0-9.]+$/) level = $i } END { exit !(seen && level <= 3.0) }' \
        "$to/exposure"
fi
for file in man/man1/weir.1 man/man5/weir.yaml.5 man/man5/weir-rules.5 man/man5/weir-nginx.5 man/man5/weir-errors.5 bash-completion/completions/weir \
    zsh/site-functions/_weir fish/vendor_completions.d/weir.fish doc/weir/docs/reference/weir-yaml.md; do
    [ -s "$to/usr/share/$file" ]
done
[ "$(pkg-config --modversion weir)" = "$(build/gcc/weir version | cut -d' ' -f2)" ]
# shellcheck disable=SC2046
gcc -std=c99 -Wall -Wextra -Werror examples/quickstart.c $(pkg-config --cflags --libs weir) -o "$to/shared"
LD_LIBRARY_PATH="$to/usr/lib" "$to/shared" | grep -q '3 of 5 passed'
# shellcheck disable=SC2046
gcc -std=c99 -Wall -Wextra -Werror examples/rules.c $(pkg-config --cflags --libs weir) -o "$to/rules"
LD_LIBRARY_PATH="$to/usr/lib" "$to/rules" examples/rules.yaml | grep -q '6: denied by login for ip:203.0.113.9'
gcc -std=c99 -Wall -Wextra -Werror -I"$to/usr/include" examples/quickstart.c "$to/usr/lib/libweir.a" -o "$to/static"
"$to/static" | grep -q '3 of 5 passed'
# A program without a store needs neither hiredis nor OpenSSL.
# shellcheck disable=SC2046
gcc -std=c99 -Wall -Wextra -Werror -I"$to/usr/include" examples/rules.c "$to/usr/lib/libweir.a" $(pkg-config --libs --static weir) \
    -o "$to/rules-static"
for program in shared rules static rules-static; do
    LD_LIBRARY_PATH="$to/usr/lib" ldd "$to/$program" >"$to/needed"
    if grep -E 'hiredis|libssl|libcrypto|libweir-store' "$to/needed"; then echo "$program needs more than libweir" >&2; exit 1; fi
done
# With one it needs the store library, and without that library weir_open names it.
cat >"$to/store.c" <<'END'
#include <stdio.h>
#include <weir/store.h>
int main(void)
{
    weir_options options = {.segment = {.size = 1 << 20}, .rules_text = "rules: []", .store = "redis://127.0.0.1:1"};
    weir *engine = NULL;
#ifdef USE
    int error = weir_store_use();
    if (!error)
        error = weir_open(&options, &engine);
#else
    int error = weir_open(&options, &engine);
#endif
    printf("%s\n", weir_strerror(error));
    weir_close(engine);
    return 0;
}
END
# shellcheck disable=SC2046
gcc -std=c99 -Wall -Wextra -Werror "$to/store.c" $(pkg-config --cflags --libs weir) -o "$to/without"
LD_LIBRARY_PATH="$to/usr/lib" "$to/without" | grep -q 'link libweir-store (pkg-config weir-store) and call weir_store_use'
# shellcheck disable=SC2046
gcc -std=c99 -Wall -Wextra -Werror -DUSE "$to/store.c" $(pkg-config --cflags --libs weir-store) -o "$to/with"
LD_LIBRARY_PATH="$to/usr/lib" "$to/with" | grep -qx success
readelf -d "$to/with" | grep -q 'NEEDED.*libweir-store.so.0'
# shellcheck disable=SC2046
gcc -std=c99 -Wall -Wextra -Werror -DUSE -I"$to/usr/include" "$to/store.c" "$to/usr/lib/libweir-store.a" "$to/usr/lib/libweir.a" \
    $(pkg-config --libs hiredis openssl yaml-0.1 libpcre2-8) -pthread -o "$to/with-static"
"$to/with-static" | grep -qx success
"$to/usr/bin/weir" version
