#!/usr/bin/env bash
# Packages the crate as `cargo publish` would, unpacks it elsewhere and builds it there: the library with and without features,
# its documentation and the example. Fails too when a file that a page links to is missing (tools/pages checks the list).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
# The check packages uncommitted changes too.
cargo package --quiet --no-verify --allow-dirty -p redisson-lock
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
# Unpacks outside of the repository, so that its workspace and .cargo/config.toml do not apply.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tar -xzf "$target/package/redisson-lock-$version.crate" -C "$folder"
cd "$folder/redisson-lock-$version"

export CARGO_TARGET_DIR=$target/unpacked
cargo check --quiet
cargo check --quiet --no-default-features --features serde
cargo check --quiet --all-features --example unit_test
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --all-features
echo "package: redisson-lock-$version builds from $(find . -type f | wc -l) files"
