#!/bin/bash
# Installs what building and testing need and is not there: `setup.sh system` by apt, `setup.sh python` into .venv.
set -euo pipefail
cd "$(dirname "$0")/.."

has_libclang() {  # bindgen reads the server's header with it
  [ -n "${LIBCLANG_PATH:-}" ] || compgen -G '/usr/lib/llvm-*/lib/libclang.so' >/dev/null
}

missing() {
  has_libclang || echo libclang-dev
  # A server of one's own choice takes the place of the package.
  [ "${REDIS_SERVER:-redis-server}" != redis-server ] || command -v redis-server >/dev/null || echo redis-server
  python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

install_system() {
  if ! command -v cargo >/dev/null; then
    echo "redis-lease needs Rust with cargo: install Rust with rustup, then run make again." >&2
    exit 1
  fi
  local packages
  mapfile -t packages < <(missing)
  [ ${#packages[@]} -gt 0 ] || return 0
  if ! command -v apt-get >/dev/null || ! as_root true 2>/dev/null; then
    echo "redis-lease needs ${packages[*]}: install them (Debian: apt-get install ${packages[*]}), then run make again." >&2
    exit 1
  fi
  echo "installing ${packages[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
}

install_python() {
  [ -x .venv/bin/python ] || python3 -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r python_tests/requirements.txt
  touch .venv/.installed
}

"install_$1"
