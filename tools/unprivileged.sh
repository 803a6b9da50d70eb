#!/bin/sh
# tools/unprivileged.sh [--net] HOME COMMAND...: runs a command as a user without privileges who may have user namespaces, as
# rootless podman needs it. Called by such a user it only sets HOME. Called by root it makes that user for this run alone, in
# mounts and processes of its own: 65536 subordinate ids, /run, and /dev/net/tun as distributions have it. Nothing of it is left on
# the machine but the files in HOME, which the command sees as /srv: podman covers /run. The tree's tracked files are in HOME/tree.
# --net: without a network but an empty loopback.
set -eu
net=
[ "${1:-}" != --net ] || { net=--net && shift; }
[ $# -ge 2 ] || { echo "usage: tools/unprivileged.sh [--net] HOME COMMAND..." >&2; exit 2; }
cd "$(dirname "$0")/.."
home=$1
shift
mkdir -p "$home"
[ -n "$net" ] || { rm -rf "$home/tree" && mkdir "$home/tree" &&
    git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf - | tar -xf - -C "$home/tree"; }
if [ "$(id -u)" -ne 0 ]; then
    cd "$home/tree"
    HOME=$home exec "$@"
fi
user=54321
chown "$user:$user" "$home"
chown -R "$user:$user" "$home/tree"
# shellcheck disable=SC2016,SC2086 # expanded by the inner shell; one word or none
exec unshare --mount --pid --fork --kill-child --mount-proc $net sh -eu -c '
    home=$1 user=$2 path=$3
    shift 3
    mount --make-rshared /
    mount -t tmpfs -o mode=755 run /run
    mkdir -p /run/etc /run/user /run/lock
    mount --bind "$home" /srv
    for file in passwd group subuid subgid; do
        cp /etc/$file /run/etc/$file 2>/dev/null || : >/run/etc/$file
        case $file in
        passwd) echo "unprivileged:x:$user:$user::/srv:/bin/sh" >>/run/etc/$file ;;
        group) echo "unprivileged:x:$user:" >>/run/etc/$file ;;
        *) echo "unprivileged:200000:65536" >/run/etc/$file ;;
        esac
        [ -e /etc/$file ] || : >/etc/$file
        mount --bind /run/etc/$file /etc/$file
    done
    if [ -e /dev/net/tun ]; then
        mknod -m 666 /run/etc/tun c 10 200
        mount --bind /run/etc/tun /dev/net/tun
    fi
    mkdir -m 700 /run/user/$user
    chown $user:$user /run/user/$user
    ip link set lo up
    cd /srv/tree
    exec setpriv --reuid=$user --regid=$user --clear-groups --inh-caps=-all env -i HOME=/srv \
        PATH="$path" LANG=C.UTF-8 XDG_RUNTIME_DIR=/run/user/$user "$@"' sh "$(cd "$home" && pwd)" $user /usr/sbin:/usr/bin:/sbin:/bin "$@"
