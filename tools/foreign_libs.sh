#!/bin/sh
# foreign_libs.sh ARCHITECTURE FOLDER PACKAGE...: unpacks packages of another architecture into FOLDER, for cross builds.
# The machine's own package lists stay as they are: adding an architecture to them is left to the user.
set -eu
architecture=$1
folder=$2
shift 2
[ -f "$folder/.complete" ] && [ "$(cat "$folder/.complete")" = "$*" ] && exit 0
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
cd "$folder"
foreign_apt() {
    apt-get -qq -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" -o APT::Sandbox::User=root \
        -o "Dir::State::Lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache" "$@" >&2
}
# A repository that lacks the architecture fails its part of the update; only the packages count.
foreign_apt update || true
foreign_apt download "$@"
for package in ./*.deb; do
    dpkg-deb -x "$package" .
done
rm -rf apt ./*.deb
echo "$*" >.complete
