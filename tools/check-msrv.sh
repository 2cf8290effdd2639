#!/usr/bin/env bash
# Builds the library, with and without features, and the test kit with the Rust that Cargo.toml names as the oldest one.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
rustup toolchain install "$version" --profile minimal >/dev/null 2>&1 ||
    { echo "msrv: rustup cannot install Rust $version" >&2; exit 1; }
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/msrv
cargo "+$version" check --quiet -p redisson-lock
cargo "+$version" check --quiet -p redisson-lock --no-default-features --features serde
cargo "+$version" check --quiet -p redisson-lock --all-features
cargo "+$version" check --quiet -p redisson-lock-test
echo "msrv: builds with Rust $version"
