#!/usr/bin/env bash
# Prints what a dependency on this crate costs a program: its crates, the processor time of a cold release build of README's first
# program, and the size of the stripped binary; beside it the same of fred and redis-rs. Builds have the versions of Cargo.lock and
# cargo's own profile. Fails if a binary of this crate is more than 0.1 MiB larger than the table of docs/benchmarks.md says;
# tools/check-dependencies.sh bounds the crates. WEIGHT_ROUNDS (2) builds each program as often: the least time counts, since other load
# adds to it.
#
# Usage: tools/weight.sh [--update] [ROW...]
#        tools/weight.sh --check
#
#   --update   write the table into docs/benchmarks.md, and its rows without TLS into README.md; both lose rows that are not named
#   --check    only compare README.md with docs/benchmarks.md: nothing is built
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD page=docs/benchmarks.md readme=README.md update=

# The lines between the markers of a file.
block() { sed -n '/^<!-- weight -->$/,/^<!-- end of weight -->$/{/^<!--/!p}' "$1"; }
# Puts the text of standard input there.
replace_block() {
    [ "$(grep -cE '^<!-- (end of )?weight -->$' "$1")" = 2 ] || { echo "weight: $1 has no place for the table" >&2; exit 1; }
    cat >"$folder/block"
    sed -i -e "/^<!-- weight -->$/r $folder/block" -e '/^<!-- weight -->$/,/^<!-- end of weight -->$/{/^<!--/!d}' "$1"
}
# The part of the page's table that README shows.
readme_table() {
    printf '%s\n' '| the program above, without TLS | crates | processor time of a cold release build | stripped binary |' \
        '| --- | ---: | ---: | ---: |'
    block "$page" | sed -n -e '/rustls/d' -e 's/^| this crate, /| /p' -e 's/^| this crate |/| default |/p'
}
if [ "${1:-}" = --check ]; then
    diff <(readme_table) <(block "$readme") ||
        { echo "weight: $readme has other figures (>) than $page (<): take those of the page" >&2; exit 1; }
    exit
fi
[ "${1:-}" != --update ] || { update=yes && shift; }
rows=("$@")
[ $# -gt 0 ] || rows=(lean lean-small lean-rustls default default-rustls fred redis)
cargo=${CARGO:-cargo}
unset RUSTFLAGS RUSTC_WORKSPACE_WRAPPER CARGO_TARGET_DIR
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The dependency of each row.
ours="redisson-lock = { path = \"$root\""
declare -A dependency=(
    [lean]="$ours, default-features = false, features = [\"serde\"] }"
    [lean-small]="$ours, default-features = false, features = [\"serde\"] }"
    [lean-rustls]="$ours, default-features = false, features = [\"rustls\", \"serde\"] }"
    [default]="$ours }"
    [default-rustls]="$ours, features = [\"rustls\"] }"
    [fred]='fred = { version = "10.1", default-features = false, features = ["i-keys", "i-scripts"] }'
    [redis]='redis = { version = "1", default-features = false, features = ["script", "tokio-comp"] }'
)
declare -A name=(
    [lean]='this crate, `--no-default-features --features serde`'
    [lean-small]='this crate, `--no-default-features --features serde`, in a profile with `opt-level = "s"` and `codegen-units = 1`'
    [lean-rustls]='this crate, `--no-default-features --features rustls,serde`'
    [default]='this crate'
    [default-rustls]='this crate, `--features rustls`'
    [fred]='fred alone: no waiting, no renewal, no repetition'
    [redis]='redis-rs alone: the same'
)
declare -A profile=([lean-small]=$'opt-level = "s"\ncodegen-units = 1')

# The most MiB that the program of a row may have: 0.1 more than its line says.
limit() { block "$page" | awk -F ' [|] ' -v name="| ${name[$1]}" '$1 == name && /this crate/ { printf "%.1f", $4 + 0.1 }'; }

# Writes the program of a row.
write_program() {
    mkdir -p "$folder/src"
    case $1 in
    fred | redis) cp "benches/weight/$1.rs" "$folder/src/main.rs" ;;
    *) awk '/^```rust/ { inside = 1; next } inside && /^```$/ { exit } inside' README.md >"$folder/src/main.rs" ;;
    esac
    cp Cargo.lock "$folder"
    printf '%s\n' '[package]' 'name = "program"' 'version = "0.0.0"' 'edition = "2024"' '[workspace]' '[dependencies]' \
        "${dependency[$1]}" 'tokio = { version = "1", features = ["macros", "rt-multi-thread"] }' \
        '[profile.release]' "${profile[$1]:-}" >"$folder/Cargo.toml"
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
    limit=$(limit "$row")
    [ "$update" ] || [ "$limit" ] || case $row in
    fred | redis) ;;
    *) echo "weight: $page has no line of $row: make weight UPDATE=1" >&2; failed=1 ;;
    esac
    awk "BEGIN { exit !($mebibytes <= ${limit:-$mebibytes}) }" || { echo "weight: $row: over $limit MiB" >&2; failed=1; }
done
printf '%s' "$table"
if [ "$update" ]; then
    printf '%s' "$table" | replace_block "$page"
    readme_table | replace_block "$readme"
    failed=0
fi
exit "$failed"
