#!/bin/sh
# Makes the passwords of compose.yaml, once: packaging/container/secrets/. Containers of several users read them, so they have
# mode 0644; the folder is closed to other users of this host.
set -eu
cd "$(dirname "$0")"
mkdir -p secrets
chmod 700 secrets # also if it was made by hand, or by docker compose up before this command
for name in redis_password grafana_password; do
    [ -s "secrets/$name" ] || head -c 24 /dev/urandom | base64 | tr '+/' '-_' >"secrets/$name"
    chmod 644 "secrets/$name"
done
