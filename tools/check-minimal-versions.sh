#!/usr/bin/env bash
# Builds the library with the oldest versions of its direct dependencies that Cargo.toml allows. Works on a copy: the lock file stays.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r Cargo.toml src lua docs README.md "$copy"
cd "$copy"
# Users build the library alone, without development dependencies and the rest of the workspace.
sed -i -e '/^\[.*dev-dependencies\]/,/^$/d' -e '/^\[\[bench\]\]/,/^$/d' -e '/^\[\[test\]\]/,/^$/d' -e '/^\[\[example\]\]/,/^$/d' -e '/^members = /d' Cargo.toml
cargo +nightly generate-lockfile --quiet -Z direct-minimal-versions
CARGO_TARGET_DIR=$target/minimal cargo check --quiet --all-features
echo "minimal-versions: builds"
