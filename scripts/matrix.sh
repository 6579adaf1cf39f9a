#!/bin/bash
# Runs the Python tests on every server and prints a table; fails if a test failed anywhere or nothing ran.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/servers.sh
logs=${CARGO_TARGET_DIR:-target}/matrix
mkdir -p "$logs"
table="" ran=0 status=0

count() {  # count LOG WORD...: what pytest's last line tells
  local log=$1 total=0 word number
  shift
  for word in "$@"; do
    number=$(tail -n 1 "$log" | grep -oE "[0-9]+ $word" | grep -oE '[0-9]+' || true)
    total=$((total + ${number:-0}))
  done
  echo "$total"
}

row() { table+=$(printf '%-12s %7s %7s %8s  %s' "$@")$'\n'; }

run_on() {  # run_on NAME EXECUTABLE
  local name=$1 log=$logs/$1.log
  echo "== $name: $("$2" --version)"
  REDIS_SERVER=$2 .venv/bin/python -m pytest python_tests -q -n auto >"$log" 2>&1 || { status=1; tail -n 40 "$log"; }
  row "$name" "$(count "$log" passed)" "$(count "$log" failed errors? )" "$(count "$log" skipped)" "$(tail -n 1 "$log")"
  # pytest sums skips up by place and reason.
  while read -r reason; do row "" "" "" "" "$reason"; done < <(sed -n 's/^SKIPPED //p' "$log")
  ran=$((ran + 1))
}

if executable=$(command -v redis-server); then
  run_on "redis-$("$executable" --version | grep -oE 'v=[0-9]+\.[0-9]+' | cut -c 3-)" "$executable"
fi
for folder in .servers/*-*; do
  if [ -x "$folder/server" ]; then
    run_on "$(basename "$folder")" "$PWD/$folder/server"
  else
    row "$(basename "$folder")" - - - "not to be had: $(cat "$folder/reason")"
  fi
done

echo
row_header=$(printf '%-12s %7s %7s %8s' server passed failed skipped)
printf '%s\n%s' "$row_header" "$table"
[ "$ran" -gt 0 ] || { echo "no server could be had" >&2; exit 1; }
exit "$status"
