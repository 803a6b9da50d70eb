#!/bin/sh
# Makes OUT/weir_VERSION_ARCHITECTURE.deb: packaging/debian/build.sh ROOT OUT
# ROOT has what `make install DESTDIR=ROOT PREFIX=/usr` put there, with the modules for nginx; it becomes the package.
# DEBFULLNAME and DEBEMAIL say who maintains it. `make deb` is the way to call this.
set -eu
PATH=$PATH:/usr/sbin # nginx is there
[ $# -eq 2 ] || { echo "usage: packaging/debian/build.sh ROOT OUT" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
top=$here/../..
root=$(cd "$1" && pwd)
out=$(cd "$2" && pwd)
for tool in dpkg-deb dpkg-shlibdeps nginx; do
    command -v $tool >/dev/null || { echo "make deb: no $tool; install dpkg-dev and nginx, or call ./dev deb" >&2; exit 1; }
done
[ -f "$root/usr/lib/weir/ngx_http_weir_module.so" ] || { echo "make deb: no module for nginx in $root" >&2; exit 1; }
umask 022
version=$("$root/usr/bin/weir" version | cut -d' ' -f2)
architecture=$(dpkg --print-architecture)

# A module is good for one nginx only; the distribution's packages say for which by this name.
abi=$(dpkg-query -W -f '${Provides}\n' nginx | tr -d ' ' | tr ',' '\n' | grep '^nginx-abi-') ||
    { echo "make deb: the package nginx does not say which modules fit it (nginx-abi-…)" >&2; exit 1; }

# Modules go where all of the distribution's are. Loading them is left to who runs that nginx: weir serve has its own.
modules=$(nginx -V 2>&1 | sed -n 's/.*--modules-path=\([^ ]*\).*/\1/p')
install -d "$root$modules" "$root/usr/share/nginx/modules-available"
for kind in http stream; do
    mv "$root/usr/lib/weir/ngx_${kind}_weir_module.so" "$root$modules/"
    echo "load_module modules/ngx_${kind}_weir_module.so;" >"$root/usr/share/nginx/modules-available/mod-$kind-weir.conf"
done
rmdir "$root/usr/lib/weir"

install -d "$root/etc/weir"
"$root/usr/bin/weir" init "$root/etc/weir/weir.yaml" >/dev/null
docs=$root/usr/share/doc/weir
cp -r "$top/examples" "$docs/"
install -d "$docs/packaging"
cp -r "$top/packaging/grafana" "$top/packaging/prometheus" "$docs/packaging/"
mv "$docs/LICENSE" "$docs/copyright"
gzip -9n "$root"/usr/share/man/man?/*
libraries="$root/usr/lib/libweir.so.$version $root/usr/lib/libweir-store.so.$version $root$modules/ngx_http_weir_module.so $root$modules/ngx_stream_weir_module.so"
# shellcheck disable=SC2086 # a list
strip --strip-unneeded "$root/usr/bin/weir" $libraries
strip --strip-debug "$root/usr/lib/libweir.a" "$root/usr/lib/libweir-store.a"
chmod 644 "$root/usr/lib/libweir.so.$version" "$root/usr/lib/libweir-store.so.$version"

control=$root/DEBIAN
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
install -d "$control" "$scratch/debian"
printf 'Source: weir\n\nPackage: weir\nArchitecture: any\n' >"$scratch/debian/control" # it asks for one
echo "libweir 0 weir" >"$scratch/debian/shlibs.local" # libweir-store needs it: of the same package
# shellcheck disable=SC2086
depends=$(cd "$scratch" && dpkg-shlibdeps -l"$root/usr/lib" -xweir -O "$root/usr/bin/weir" $libraries 2>said) ||
    { cat "$scratch/said" >&2; exit 1; }
cat >"$control/control" <<EOF
Package: weir
Version: $version
Architecture: $architecture
Maintainer: ${DEBFULLNAME:-the weir authors} <${DEBEMAIL:-weir@localhost}>
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: ${depends#shlibs:Depends=}, $abi, libnginx-mod-stream, adduser
Section: httpd
Priority: optional
Description: rate limiter: gateway, service and library
 weir decides for every request whether it may pass now, by rules in YAML.
 It is a gateway (nginx with weir inside), a service for other gateways
 (Envoy's rate-limit protocol, HTTP, the Redis protocol) and a C library,
 which share their counters.
EOF
echo /etc/weir/weir.yaml >"$control/conffiles"
printf 'libweir 0 weir (>= %s)\nlibweir-store 0 weir (>= %s)\n' "$version" "$version" >"$control/shlibs" # for packages of programs that use the library
echo "activate-noawait ldconfig" >"$control/triggers"
install -m 755 "$here/postinst" "$here/prerm" "$here/postrm" "$control/"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f ! -path './etc/*' -print | sort | cut -c3- | xargs md5sum >DEBIAN/md5sums)
dpkg-deb --root-owner-group --build "$root" "$out/weir_${version}_$architecture.deb"
