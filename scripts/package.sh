#!/bin/bash
# Makes a tarball of the built module with its symbols, checksums, licences and documents: package.sh FOLDER. The same commit
# gives the same bytes: nothing in it tells of the machine, the user or the hour.
set -euo pipefail
output=$(realpath -m "$1")
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
name=redis-lease-$version-$(uname -m)-linux

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
files=$work/$name
mkdir "$files"

# What the server loads is small; what a debugger wants to know of it lies beside it under the name that it looks for.
module=$files/libredis_lease.so
objcopy --only-keep-debug "$LEASE_MODULE" "$module.debug"
objcopy --strip-unneeded "$LEASE_MODULE" "$module"
(cd "$files" && objcopy --add-gnu-debuglink=libredis_lease.so.debug libredis_lease.so)
for path in "$HOME" "$PWD"; do
  if grep -qF -- "$path/" "$module" "$module.debug"; then
    echo "the module names $path, a folder of this machine: build it by make build" >&2
    exit 1
  fi
done

git ls-files README.md ARCHITECTURE.md CHANGELOG.md LICENSE docs examples scripts/watch.py | xargs cp --parents --target-directory "$files"
python3 scripts/licences.py >"$files/NOTICE"
(cd "$files" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
chmod -R u=rwX,go=rX "$files"

mkdir -p "$output"
# The hour of the last change stands for that of every file.
tar --create --directory "$work" --sort=name --mtime="@$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner --format=gnu "$name" |
  gzip -9 --no-name >"$output/$name.tar.gz"
ls -l "$output/$name.tar.gz"
# A server on a system with an older C library cannot load it.
echo "needs $(objdump -T "$module" | grep -oE 'GLIBC_[0-9.]+' | sort -V | tail -n 1) or later"
