#!/bin/bash
# Runs the Python tests with AddressSanitizer and LeakSanitizer, on the compiler and the runtime that stable Rust brings along:
# the module is instrumented, and all memory of the server comes from the sanitizer's allocator. Arguments are pytest's.
set -euo pipefail
cd "$(dirname "$0")/.."

home=$(realpath -m "${CARGO_TARGET_DIR:-target}/sanitize")
reports=$home/reports
host=$(rustc -vV | sed -n 's/^host: //p')
module=$home/$host/release/libredis_lease.so
archive=$(rustc --print target-libdir)/librustc-stable_rt.asan.a
server=$(realpath -s "$(command -v "$REDIS_SERVER")")

skip() { echo "make sanitize: skipped, $*" >&2; exit 0; }

# What a server is started with. Frame pointers are for the reports, whose stacks are walked by them.
# Sizes no allocator has are refused as malloc refuses them: the server asks for what a payload claims.
export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address -Cforce-frame-pointers=yes"
export ASAN_OPTIONS=allocator_may_return_null=1:${ASAN_OPTIONS:-}

# The runtime as a library of its own, since nothing sanitized is linked into the server. Its section for programs goes.
build_runtime() {
  cp "$archive" "$home/runtime.a"
  ar t "$home/runtime.a" | grep preinit | xargs ar d "$home/runtime.a"
  cc -O2 -Wall -Werror -fPIC -shared -o "$home/runtime.so" scripts/sanitize/server.c \
    -Wl,--whole-archive "$home/runtime.a" -Wl,--no-whole-archive -lpthread -ldl -lrt -lm
}

wrap_server() {
  cat >"$home/server" <<SCRIPT
#!/bin/bash
export LD_PRELOAD=$home/runtime.so\${LD_PRELOAD:+:\$LD_PRELOAD}
exec $server "\$@"
SCRIPT
  chmod +x "$home/server"
}

run() {  # run MODULE [ARGUMENT]: what a server tells that ends by itself, or after ten seconds
  timeout 10 "$home/server" --port 0 --unixsocket "$home/socket" --save '' --loadmodule "$@" 2>&1 || true
}

# A fault that nobody sees would make the whole run worthless.
prove() {
  local fault faults=(overflow use-after-free leak)
  rustc --edition 2021 -O --crate-type cdylib $RUSTFLAGS -o "$home/faults.so" scripts/sanitize/faults.rs
  # Of a loader that came along with a server, the blocks for thread-locals look as if nobody had them.
  if run "$module" | grep -q LeakSanitizer; then
    echo "leaks are not looked for: a server in which nothing happens has some"
    ASAN_OPTIONS+=:detect_leaks=0
    faults=(overflow use-after-free)
  fi
  for fault in "${faults[@]}"; do
    run "$home/faults.so" "$fault" | grep -m 1 -E "ERROR: (Address|Leak)Sanitizer.*$fault" ||
      skip "a planted $fault in $server is not seen: its allocator cannot be replaced"
  done
}

[ -e "$archive" ] || skip "Rust brings no AddressSanitizer for $host"
rm -rf "$reports"
mkdir -p "$reports"
build_runtime
wrap_server
"$home/server" --version
CARGO_TARGET_DIR=$home cargo rustc --release --lib --crate-type cdylib --target "$host"
prove

status=0
REDIS_SERVER=$home/server LEASE_MODULE=$module LEASE_REPORTS=$reports PYTHONPATH=python_tests \
  .venv/bin/python -m pytest -p sanitized python_tests -n auto "$@" || status=$?
found=$(grep -rlI 'ERROR: ' "$reports" || true)
killed=$(find "$reports" -name killed -exec cat {} + | wc -l)
echo "reported: ${found:-nothing}; servers that did not end by themselves, in which nobody looked for leaks: $killed"
[ -z "$found" ] || status=1
exit "$status"
