#!/bin/sh
# tools/debian_root.sh RELEASE COMMAND...: runs a command in the tree, inside a minimal Debian of another release, as root.
# The root is made by debootstrap once a machine, in ~/.cache/weir-RELEASE; the tree is copied into it anew each time, without build/
# (its build folder inside the root is kept). Mounts and processes of the root are private to this run.
set -eu
[ $# -ge 2 ] || { echo "usage: tools/debian_root.sh RELEASE COMMAND..." >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || exec sudo "$0" "$@"
cd "$(dirname "$0")/.."
release=$1
shift
root=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/weir-$release/root
if [ ! -f "$root/.complete" ]; then
    rm -rf "$root"
    mkdir -p "$root"
    debootstrap --variant=minbase --include=ca-certificates,sudo "$release" "$root" >"${root%/root}/debootstrap.log" ||
        { tail -n 20 "${root%/root}/debootstrap.log" >&2; exit 1; }
    touch "$root/.complete"
fi
cp /etc/resolv.conf "$root/etc/resolv.conf"
mkdir -p "$root/weir"
find "$root/weir" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf - | tar -xf - -C "$root/weir"
# shellcheck disable=SC2016 # expanded by the inner shell
exec unshare --mount --pid --fork --kill-child --propagation private sh -eu -c '
    root=$1
    shift
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    exec chroot "$root" env -i HOME=/root PATH=/usr/lib/ccache:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
        sh -c "cd /weir && exec \"\$@\"" weir "$@"' root "$root" "$@"
