#!/usr/bin/env bash
# Fails unless the crates that users install have one version, and need each other in it. With --print: prints that version.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
for manifest in crates/redisson-lock-test/Cargo.toml rlock/Cargo.toml; do
    grep -qx "version = \"$version\"" "$manifest" || { echo "$manifest: its version is not $version, that of Cargo.toml" >&2; exit 1; }
    grep -q "^redisson-lock = { version = \"=$version\"," "$manifest" || { echo "$manifest: it does not need redisson-lock \"=$version\"" >&2; exit 1; }
done
[ "${1:-}" != --print ] || echo "$version"
