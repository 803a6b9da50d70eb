#!/bin/sh
# tools/clients.sh go|java FOLDER: builds an example of examples/clients, with its Redis client from its registry, with the installed go
# or mvn: FOLDER/throttle, or FOLDER/jars.
set -eu
[ $# -eq 2 ] || { echo "usage: tools/clients.sh go|java FOLDER" >&2; exit 2; }
go_redis=v9.23.0 jedis=5.2.0
case $1 in
go) made=$2/throttle builder=go ;;
java) made=$2/jars builder=mvn ;;
*) echo "tools/clients.sh: no example in '$1'" >&2; exit 2 ;;
esac
# Older than its source, or than the versions above: built again.
newest=$0
[ "$1" = java ] || [ "$newest" -nt examples/clients/throttle.go ] || newest=examples/clients/throttle.go
[ ! "$made" -nt "$newest" ] || exit 0
command -v $builder >/dev/null || { echo "tools/clients.sh: $1 needs $builder" >&2; exit 1; }
mkdir -p "$2"
work=$(mktemp -d "$2/XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
if [ "$1" = go ]; then
    cp examples/clients/throttle.go "$work"
    (cd "$work" && go mod init throttle && go get "github.com/redis/go-redis/$(echo $go_redis | cut -d. -f1)@$go_redis" &&
        go build -o throttle .) >&2
    mv "$work/throttle" "$made"
else
    cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>weir</groupId> <artifactId>throttle</artifactId> <version>1</version> <packaging>pom</packaging>
  <dependencies>
    <dependency> <groupId>redis.clients</groupId> <artifactId>jedis</artifactId> <version>$jedis</version> </dependency>
  </dependencies>
</project>
POM
    mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DoutputDirectory=jars >&2
    rm -rf "$made"
    mv "$work/jars" "$made"
    touch "$made"
fi
