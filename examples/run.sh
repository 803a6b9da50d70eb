#!/bin/sh
# The quick start: a small API, the gateway in front of it, and what to try. ./dev run builds and then starts this.
#   WEIR_PORT=8090    another port for the gateway; the API and the metrics then take the next two
set -u
cd "$(dirname "$0")/.."
weir=build/gcc/weir
file=examples/quickstart.yaml
port=${WEIR_PORT:-8080}
api_port=9000
metrics_port=9090
segment=/dev/shm/weir-quickstart
copy=
if [ -n "${WEIR_PORT:-}" ]; then
    case "$port" in '' | *[!0-9]*) echo "./dev run: WEIR_PORT must be a number, not '$port'" >&2 && exit 2 ;; esac
    api_port=$((port + 1))
    metrics_port=$((port + 2))
    segment=$segment-$port
    copy=$(mktemp -d)
    sed -e "s/:8080/:$port/" -e "s/:9000/:$api_port/" -e "s/:9090/:$metrics_port/" \
        -e "s|/dev/shm/weir-quickstart|$segment|" $file >"$copy/quickstart.yaml"
    file=$copy/quickstart.yaml
fi

# Checked first: another instance would reply instead of this one, and use the same segment.
python3 -c '
import socket, sys
for port in sys.argv[1:]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", int(port)))
            listener.listen()
        except (OSError, OverflowError) as error:
            sys.exit(f"./dev run: port {port}: {error}; WEIR_PORT=8090 ./dev run takes others")
' "$port" "$api_port" "$metrics_port" || { [ -z "$copy" ] || rm -rf "$copy"; exit 1; }

python3 examples/demo_api.py "$api_port" &
api=$!
until curl -so /dev/null "http://127.0.0.1:$api_port/"; do
    kill -0 $api 2>/dev/null || { echo "./dev run: WEIR_PORT=8090 ./dev run takes other ports" >&2 && exit 1; }
    sleep 0.1
done
{
    tries=0
    until curl -fso /dev/null "http://127.0.0.1:$metrics_port/weir/status"; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || exit 0
        sleep 0.1
    done
    cat <<TRY

Try in another terminal:
  curl -i 'http://127.0.0.1:$port/hello/[1-3]'                        # three requests at once: the third gets 429
  curl -i -H 'X-User-Id: ada' http://127.0.0.1:$port/api/items        # headers report what is left; without the user: 429 with the reason
  curl -s http://127.0.0.1:$metrics_port/metrics | grep weir_decisions      # what was decided
Ctrl-C stops everything.

TRY
} &
hint=$!
$weir serve "$file" &
gateway=$!
end() {
    kill $api $hint 2>/dev/null
    wait $api $hint 2>/dev/null
    [ -z "$copy" ] || rm -rf "$copy"
    rm -f "$segment"
}
trap end EXIT
trap : INT # the terminal signals the gateway, too
trap 'kill -TERM $gateway' TERM
code=0
while kill -0 $gateway 2>/dev/null; do
    wait $gateway
    code=$?
done
[ $code -eq 0 ] || [ -n "${WEIR_PORT:-}" ] || echo "./dev run: WEIR_PORT=8090 ./dev run takes other ports" >&2
exit $code
