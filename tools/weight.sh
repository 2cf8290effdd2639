#!/usr/bin/env bash
# Prints what a dependency on this crate costs a program: its crates, the processor time of a cold release build of README's first
# program, and the size of the stripped binary; beside it the same of fred and redis-rs. Builds have the versions of Cargo.lock and
# cargo's own profile. Fails if a binary is larger than the budget allows; tools/check-dependencies.sh bounds the crates. With --update,
# writes the table into docs/benchmarks.md too. WEIGHT_ROUNDS (2) builds each program as often: the least time counts, since other load
# adds to it.
#
# Usage: tools/weight.sh [--update] [ROW...]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD page=docs/benchmarks.md update=
[ "${1:-}" != --update ] || { update=yes && shift; }
rows=("$@")
[ $# -gt 0 ] || rows=(lean lean-rustls default default-rustls fred redis)
cargo=${CARGO:-cargo}
unset RUSTFLAGS RUSTC_WORKSPACE_WRAPPER CARGO_TARGET_DIR
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The dependency of each row, and the most MiB that its program may have.
ours="redisson-lock = { path = \"$root\""
declare -A dependency=(
    [lean]="$ours, default-features = false, features = [\"serde\"] }"
    [lean-rustls]="$ours, default-features = false, features = [\"rustls\", \"serde\"] }"
    [default]="$ours }"
    [default-rustls]="$ours, features = [\"rustls\"] }"
    [fred]='fred = { version = "10.1", default-features = false, features = ["i-keys", "i-scripts"] }'
    [redis]='redis = { version = "1", default-features = false, features = ["script", "tokio-comp"] }'
)
declare -A name=(
    [lean]='this crate, `--no-default-features --features serde`'
    [lean-rustls]='this crate, `--no-default-features --features rustls,serde`'
    [default]='this crate'
    [default-rustls]='this crate, `--features rustls`'
    [fred]='fred alone: no waiting, no renewal, no repetition'
    [redis]='redis-rs alone: the same'
)
declare -A most_mebibytes=([lean]=4.4)

# Writes the program of a row.
write_program() {
    mkdir -p "$folder/src"
    case $1 in
    fred | redis) cp "benches/weight/$1.rs" "$folder/src/main.rs" ;;
    *) awk '/^```rust/ { inside = 1; next } inside && /^```$/ { exit } inside' README.md >"$folder/src/main.rs" ;;
    esac
    cp Cargo.lock "$folder"
    printf '%s\n' '[package]' 'name = "program"' 'version = "0.0.0"' 'edition = "2024"' '[workspace]' '[dependencies]' \
        "${dependency[$1]}" 'tokio = { version = "1", features = ["macros", "rt-multi-thread"] }' >"$folder/Cargo.toml"
}

# The processor time, in seconds, of cargo and of all that it starts. It runs in the program's folder: .cargo/config.toml here is the
# simulator's.
build() {
    rm -rf "$folder/target"
    local TIMEFORMAT='%U %S'
    { time (cd "$folder" && "$cargo" build --quiet --release 2>&3); } 3>&2 2>&1 | awk '{ printf "%.0f\n", $1 + $2 }'
}

failed=0
table=$'| a program with | crates | processor time of a cold build | stripped binary |\n| --- | ---: | ---: | ---: |\n'
for row in "${rows[@]}"; do
    write_program "$row"
    seconds=$(for _ in $(seq "${WEIGHT_ROUNDS:-2}"); do build; done | sort -n | head -n 1)
    library=${dependency[$row]%% *}
    crates=$(cd "$folder" && "$cargo" tree -p "$library" -e normal --prefix none | sed 's/ (\*)$//' | sort -u | wc -l)
    strip "$folder/target/release/program"
    mebibytes=$(stat -c %s "$folder/target/release/program" | awk '{ printf "%.1f", $1 / 1048576 }')
    echo "weight: $row: $crates crates, $seconds s, $mebibytes MiB" >&2
    table+="| ${name[$row]} | $crates | $seconds s | $mebibytes MiB |"$'\n'
    awk "BEGIN { exit !($mebibytes <= ${most_mebibytes[$row]:-$mebibytes}) }" ||
        { echo "weight: $row: over ${most_mebibytes[$row]} MiB" >&2; failed=1; }
done
printf '%s' "$table"
if [ "$update" ]; then
    grep -q '^<!-- weight -->$' "$page" || { echo "weight: $page has no place for the table" >&2; exit 1; }
    printf '%s' "$table" >"$folder/table"
    sed -i -e "/^<!-- weight -->$/r $folder/table" -e '/^<!-- weight -->$/,/^<!-- end of weight -->$/{/^<!--/!d}' "$page"
fi
exit "$failed"
