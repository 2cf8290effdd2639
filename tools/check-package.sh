#!/usr/bin/env bash
# Packages the library, the test kit and rlock as `cargo publish` would, unpacks them elsewhere and builds them there: the library with
# and without features and its documentation, the kit with its tests, its page and its example, rlock. Fails too when a file that a page
# links to is missing (tools/pages checks the list).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
version=$(tools/check-versions.sh --print)
# Together, because two of them need the third in a version that crates.io may not have. The check packages uncommitted changes too.
cargo package --quiet --no-verify --allow-dirty -p redisson-lock -p redisson-lock-test -p rlock
# Unpacks outside of the repository, so that its workspace and .cargo/config.toml do not apply.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for crate in redisson-lock redisson-lock-test rlock; do
    mkdir "$folder/$crate"
    tar -xzf "$target/package/$crate-$version.crate" -C "$folder/$crate" --strip-components 1
done
export CARGO_TARGET_DIR=$target/unpacked
built() { echo "package: $1-$version builds from $(find . -type f | wc -l) files"; }

cd "$folder/redisson-lock"
cargo check --quiet
cargo check --quiet --no-default-features --features serde
cargo check --quiet --all-features --example singleton_job
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --all-features
built redisson-lock

# Neither has the flags of this repository here. A lock file names a library that crates.io does not have yet.
for crate in redisson-lock-test rlock; do
    cd "$folder/$crate"
    rm -f Cargo.lock
    printf '\n[patch.crates-io]\nredisson-lock = { path = "../redisson-lock" }\n' >>Cargo.toml
done
cd "$folder/redisson-lock-test"
cargo test --quiet
built redisson-lock-test
cd "$folder/rlock"
cargo check --quiet
built rlock
