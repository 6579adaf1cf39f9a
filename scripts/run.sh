#!/bin/bash
# Runs a server with the module until it is interrupted: run.sh PORT. Its data live in a temporary folder and go with it.
set -euo pipefail
port=$1
data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT

# KEd: keyspace and keyevent notifications of class module, where leases are announced.
"$REDIS_SERVER" --bind 127.0.0.1 --port "$port" --dir "$data" --save '' --appendonly no --notify-keyspace-events KEd \
  --loadmodule "$LEASE_MODULE" &
server=$!
trap 'kill -TERM "$server" 2>/dev/null' INT TERM

until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
  kill -0 "$server" 2>/dev/null || wait "$server"
  sleep 0.05
done
cat <<TEXT

The server listens on port $port. In another terminal, open a lease, renew it, and read what happened to it:

  redis-cli -p $port LEASE.OPEN hall ann SESSION tab1 TTL 10000
  redis-cli -p $port LEASE.RENEW hall tab1 1 1
  redis-cli -p $port XRANGE '{hall}:events' - +

Ten seconds without a RENEW, and the last line shows the removal too. Ctrl-C stops the server.

TEXT
# The first wait ends with the interrupt, the second with the server.
wait "$server" || wait "$server" || true
