#!/bin/bash
# A lesson in a server of its own, its clock set by hand: one user's lease from 09:00:00 to 09:00:43, lost and opened again.
set -euo pipefail
data=$(mktemp -d)
"$REDIS_SERVER" --port 0 --unixsocket "$data/socket" --dir "$data" --save '' --logfile "$data/log" --loadmodule "$LEASE_MODULE" clock manual &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" || true; rm -rf "$data"' EXIT
until [ -S "$data/socket" ]; do
  kill -0 "$server" 2>/dev/null || { cat "$data/log" >&2; exit 1; }
  sleep 0.05
done

nine=1894006800000  # 2030-01-07T09:00:00Z
seen=0              # the newest event shown
failed=0

redis() { redis-cli -s "$data/socket" "$@"; }

at() {  # at SECONDS: time passes, which runs the reaper too
  redis LEASE.CLOCK SET $((nine + $1 * 1000)) >/dev/null
  printf '\n09:00:%02d\n' "$1"
  events
}

events() {  # one line for each event that is new
  local news
  news=$(redis XRANGE '{class}:events' "($seen" + | paste -sd ' ' | sed -E 's/ ([0-9]+-0 v )/\n\1/g')
  [ -n "$news" ] || return 0
  sed 's/^/  event  /' <<<"$news"
  seen=$(tail -n 1 <<<"$news" | cut -d ' ' -f 1)
}

try() {  # try EXPECTED COMMAND...: shows command, reply and new events; the reply has to contain what is expected
  local expected=$1 reply
  shift
  reply=$(redis --json "$@" 2>&1)
  echo "  > $*"
  echo "    $reply"
  [[ $reply == *"$expected"* ]] || { echo "    expected: $expected" >&2; failed=1; }
  events
}

at 0
try '"epoch":1,' LEASE.OPEN class u1 SESSION a TTL 30000
at 10
try "[\"renewed\",30000,$((nine + 40000))]" LEASE.RENEW class a 1 1
try "[\"duplicate\",30000,$((nine + 40000))]" LEASE.RENEW class a 1 1
at 41
try '[0,0]' LEASE.COUNT class
try '"reason":"expired"' LEASE.GET class a
at 42
try 'STALE expired' LEASE.RENEW class a 1 2
at 43
try '"epoch":2,' LEASE.OPEN class u1 SESSION b TTL 30000
try '"gone"' LEASE.LEAVE class a 1
try '0' LEASE.REAP class
try '"state":"active"' LEASE.GET class b
[ "$seen" = 3-0 ] || { echo "expected three events, the last is $seen" >&2; failed=1; }
exit "$failed"
