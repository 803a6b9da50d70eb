#!/bin/sh
# Builds the Debian package and checks its contents, its dependencies, and that weir runs from it.
set -eu
cd "$(dirname "$0")/.."
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
fail() { echo "wrong: $*" && exit 1; }
make -s deb CC=gcc
version=$(build/gcc/weir version | cut -d' ' -f2)
package=build/weir_${version}_$(dpkg --print-architecture).deb
dpkg-deb -I "$package"
[ "$(dpkg-deb -f "$package" Package Version | tr '\n' ' ')" = "Package: weir Version: $version " ] || fail name
for needed in libc6 libyaml libpcre2 libhiredis libssl libsqlite3 libpq5 libjansson libcurl4 libmicrohttpd libprotobuf-c nginx-abi- \
    libnginx-mod-stream libseccomp2 adduser; do
    dpkg-deb -f "$package" Depends | tr ',' '\n' | grep -q "^ *$needed" || fail "Depends: no $needed"
done
[ "$(dpkg-deb -I "$package" conffiles)" = /etc/weir/weir.yaml ] || fail conffiles
# Everything is owned by root, only root may write, and no file is in a non-standard directory.
dpkg-deb -c "$package" >"$to/list"
# weir.yaml may contain secrets: only root may read it.
grep -q '^-rw------- root/root .* ./etc/weir/weir.yaml$' "$to/list" || fail "mode of weir.yaml"
! grep -v ' ./etc/weir/weir.yaml$' "$to/list" | grep -v '^[-dl]rw[x-]r-[x-]r-[x-] root/root \|^l.* root/root ' || fail "modes and owners"
! awk '{ print $6 }' "$to/list" | grep -vE '^\./($|etc/($|weir/)|usr/($|(bin|include|lib|share)/))' || fail "files elsewhere"

dpkg-deb -R "$package" "$to/all"
cd "$to/all"
for script in postinst prerm postrm; do
    [ -x "DEBIAN/$script" ] || fail "$script"
    sh -n "DEBIAN/$script"
done
md5sum --quiet -c DEBIAN/md5sums
for file in usr/bin/weir usr/include/weir/weir.h usr/lib/libweir.so.0 usr/lib/libweir-store.so.0 usr/lib/pkgconfig/weir.pc usr/lib/pkgconfig/weir-store.pc \
    usr/lib/nginx/modules/ngx_stream_weir_module.so usr/share/nginx/modules-available/mod-http-weir.conf \
    usr/share/nginx/modules-available/mod-stream-weir.conf \
    usr/share/man/man1/weir.1.gz usr/share/man/man5/weir.yaml.5.gz usr/share/man/man5/weir-rules.5.gz \
    usr/share/man/man5/weir-nginx.5.gz usr/share/man/man5/weir-errors.5.gz \
    usr/share/bash-completion/completions/weir usr/share/zsh/vendor-completions/_weir usr/share/fish/vendor_completions.d/weir.fish \
    usr/share/doc/weir/copyright usr/share/doc/weir/docs/reference/weir-yaml.md \
    usr/share/doc/weir/examples/api.yaml usr/share/doc/weir/packaging/grafana/weir.json; do
    [ -s "$file" ] || fail "no $file"
done
grep -q 'adduser --system .* weir$' DEBIAN/postinst || fail "no user for the agent"
grep -qx 'ExecStart=/usr/bin/weir serve /etc/weir/weir.yaml' usr/lib/systemd/system/weir.service || fail unit
grep -q '^prefix=/usr$' usr/lib/pkgconfig/weir.pc || fail weir.pc
[ "$(usr/bin/weir version)" = "weir $version" ] || fail "weir version"
usr/bin/weir lint etc/weir/weir.yaml
# The packaged module is found and loaded: nginx itself tests the configuration.
XDG_RUNTIME_DIR=$to usr/bin/weir serve --print-nginx etc/weir/weir.yaml | grep -q "$to/all/.*/ngx_http_weir_module.so" || fail module
XDG_RUNTIME_DIR=$to usr/bin/weir serve --check etc/weir/weir.yaml
