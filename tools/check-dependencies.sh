#!/usr/bin/env bash
# Checks that each crate of the library's builds has its line in tools/dependencies.txt, with the reason, and each line its crate: a new
# dependency, or one that another brings, is a decision. Crates that build scripts need count too. Checks the most crates of the builds that
# README names, and that a build of the whole workspace has no C library of TLS. Needs cargo alone.
#
# Usage: tools/check-dependencies.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
list=tools/dependencies.txt
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
fail() { echo "check-dependencies: $*" >&2; failed=1; }

tree() { "${CARGO:-cargo}" tree --quiet --locked --prefix none "$@" | sed -e '/^$/d' -e 's/ (\*)$//'; }
of_library() { tree -p redisson-lock --no-default-features --features "$@"; }
# The names of a build's crates, on all systems that the library is for.
crates() {
    of_library "$1" -e normal,build \
        --target x86_64-unknown-linux-gnu --target aarch64-apple-darwin --target x86_64-pc-windows-gnu |
        sed 's/ .*//' | grep -vx redisson-lock | LC_ALL=C sort -u
}
# As docs/benchmarks.md counts them: on this system, without build scripts, each version, with the library.
count() { of_library "$1" -e normal | sort -u | wc -l; }
listed() { awk -v part="[$1]" '/^\[/ { inside = $0 == part; next } inside && /^[a-z0-9_-]+: ./ { sub(/:.*/, ""); print }' "$list"; }
most() {
    local crates
    crates=$(count "$1")
    [ "$crates" -le "$2" ] || fail "the features $1 have $crates crates, and may have $2: do without one, or argue for more here"
}

# A part of the list: the crates that the features $2 have beyond all parts before.
check_part() {
    crates "$2" | LC_ALL=C comm -13 "$folder/all" - >"$folder/part"
    listed "$1" | LC_ALL=C sort >"$folder/listed"
    for crate in $(LC_ALL=C comm -23 "$folder/part" "$folder/listed"); do
        fail "$crate is new: 'cargo tree -i $crate' tells what brings it; if it must be, add it with the reason to [$1] in $list"
    done
    for crate in $(LC_ALL=C comm -13 "$folder/part" "$folder/listed"); do
        fail "$crate is gone from [$1]: remove its line from $list"
    done
    LC_ALL=C sort -u -o "$folder/all" "$folder/all" "$folder/part"
    parts+="${parts:+, }$(wc -l <"$folder/part") of $1"
}

: >"$folder/all"
parts=
check_part lean serde
check_part rustls rustls,serde
check_part fred default,rustls
# The other features, in the order of their parts.
for feature in $(sed -n 's/^\[\(.*\)\]$/\1/p' "$list" | grep -vxE 'lean|rustls|fred'); do
    check_part "$feature" "default,rustls,$feature"
done
features=$(sed -n '/^\[features\]$/,/^\[/s/^\([a-z-]*\) = .*/\1/p' Cargo.toml | paste -sd,)
for crate in $(crates "$features" | LC_ALL=C comm -13 "$folder/all" -); do
    fail "$crate is new, by a feature without a part in $list: add the part"
done

most serde 46
most rustls,serde 60
most default 101
for crate in aws-lc-sys openssl-sys; do
    [ -z "$(tree --workspace -i "$crate" 2>/dev/null || true)" ] ||
        fail "a build of the workspace has $crate: 'cargo tree --workspace -i $crate' tells what brings it; make it a feature that is off"
done

[ "$failed" = 0 ] || exit 1
keystore=$(($(count rustls,serde,keystore) - $(count rustls,serde)))
beside_fred=$(($(count default,keystore) - $(count default,rustls)))
echo "check-dependencies: crates by their parts: $parts; keystore adds $keystore to rustls, $beside_fred of them beside fred"
