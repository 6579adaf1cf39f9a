#!/bin/bash
# Fuzzes for a bounded time: `fuzz.sh core SECONDS` the core's decoders and decisions, each target for its share and from
# its kept corpus. What libFuzzer finds stands in fuzz/artifacts; `fuzz.sh keep` adds what was learned to the kept corpus,
# a few inputs that reach every edge of the code. TARGETS= names some of the targets, SANITIZER=address adds that one.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

TARGETS=(${TARGETS:-effects snapshot commands})
# A folder of its own: these flags would make cargo build everything else anew.
TARGET_DIR=${CARGO_TARGET_DIR:-../target}/fuzz${SANITIZER:+-$SANITIZER}
LEARNED=$TARGET_DIR/corpus
HOST=$(rustc -vV | sed -n 's/^host: //p')

# What cargo-fuzz passes for libFuzzer without a sanitizer: all of it is known to a stable compiler, which knows sanitizers
# only when told to take unstable flags. `--target` keeps it from build scripts.
build() {
  RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing ${SANITIZER:+-Zsanitizer=$SANITIZER}" \
    RUSTC_BOOTSTRAP=${SANITIZER:+1} CARGO_TARGET_DIR=$TARGET_DIR cargo build --release --bins --target "$HOST"
}

run() {
  "$TARGET_DIR/$HOST/release/$1" -artifact_prefix="artifacts/$1-" -timeout=10 -rss_limit_mb=2048 -len_control=20 "${@:2}"
}

core() {
  command -v c++ >/dev/null || { echo "fuzzing needs a C++ compiler for libFuzzer (Debian: apt-get install g++)" >&2; exit 1; }
  build
  mkdir -p artifacts
  local target
  for target in "${TARGETS[@]}"; do
    mkdir -p "$LEARNED/$target" "corpus/$target"
    echo "== $target"
    run "$target" -max_total_time=$(($1 / ${#TARGETS[@]})) -print_final_stats=1 "$LEARNED/$target" "corpus/$target" 2>&1 |
      grep -Ev '^(#[0-9]+[[:space:]]+(NEW|REDUCE|pulse|RELOAD)|#####|")'
  done
}

keep() {
  local target kept
  for target in "${TARGETS[@]}"; do
    kept=$(mktemp -d)
    run "$target" -set_cover_merge=1 -use_counters=0 -use_cmp=0 -max_len=1024 "$kept" "corpus/$target" "$LEARNED/$target" 2>&1 | tail -n 1
    rm -rf "corpus/$target"
    mv "$kept" "corpus/$target"
  done
}

"$@"
