#!/usr/bin/env bash
# Checks that each crate of the library's builds has its line in tools/dependencies.txt, with the reason, and each line its crate: a new
# dependency, or one that another brings, is a decision. Needs cargo alone.
#
# Usage: tools/check-dependencies.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
list=tools/dependencies.txt
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The crates of a set of features, on all systems that the library is for.
crates() {
    "${CARGO:-cargo}" tree --quiet --locked -p redisson-lock --no-default-features --features "$1" -e normal --prefix none \
        --target x86_64-unknown-linux-gnu --target aarch64-apple-darwin --target x86_64-pc-windows-gnu |
        sed -e '/^$/d' -e 's/ .*//' | grep -vx redisson-lock | LC_ALL=C sort -u
}
listed() { awk -v part="[$1]" '/^\[/ { inside = $0 == part; next } inside && /^[a-z0-9_-]+: ./ { sub(/:.*/, ""); print }' "$list"; }

crates serde >"$folder/lean"
crates rustls,serde | LC_ALL=C comm -13 "$folder/lean" - >"$folder/rustls"
crates default,rustls | LC_ALL=C comm -13 <(LC_ALL=C sort "$folder/lean" "$folder/rustls") - >"$folder/fred"
failed=0
for part in lean rustls fred; do
    listed "$part" | LC_ALL=C sort >"$folder/listed"
    for crate in $(LC_ALL=C comm -23 "$folder/$part" "$folder/listed"); do
        echo "check-dependencies: $crate is new: 'cargo tree -i $crate' tells what brings it; if it must be, add it with the reason to [$part] in $list" >&2
        failed=1
    done
    for crate in $(LC_ALL=C comm -13 "$folder/$part" "$folder/listed"); do
        echo "check-dependencies: $crate is gone from [$part]: remove its line from $list" >&2
        failed=1
    done
done
[ "$failed" = 0 ] || exit 1
echo "check-dependencies: $(wc -l <"$folder/lean") crates, $(wc -l <"$folder/rustls") more with TLS, $(wc -l <"$folder/fred") more with fred"
