#!/bin/sh
# A private PostgreSQL for a test, on a socket in its directory: postgres.sh start|stop|crash FOLDER. It has no other listener.
set -eu
folder=$2
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -n "$bin" ] || exit 77 # not installed

# It refuses to run as root.
as() {
    if [ "$(id -u)" -eq 0 ]; then
        setpriv --reuid=postgres --regid=postgres --clear-groups -- "$@"
    else
        "$@"
    fi
}

case $1 in
start)
    if [ ! -d "$folder/data" ]; then
        [ "$(id -u)" -ne 0 ] || chown postgres "$folder"
        as "$bin/initdb" -D "$folder/data" -U weir -A trust -E UTF8 --locale=C.UTF-8 >"$folder/log" 2>&1
        # Durable as in production; only the files of the log are small.
        printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$folder'" "min_wal_size = 32MB" \
            "max_wal_size = 64MB" "shared_buffers = 16MB" >>"$folder/data/postgresql.conf"
    fi
    as "$bin/pg_ctl" -D "$folder/data" -l "$folder/server.log" -w -t 120 start >/dev/null 2>&1
    ;;
stop) as "$bin/pg_ctl" -D "$folder/data" -w -t 120 -m fast stop >/dev/null 2>&1 ;;
crash) as "$bin/pg_ctl" -D "$folder/data" -w -t 120 -m immediate stop >/dev/null 2>&1 ;;
*) exit 2 ;;
esac
