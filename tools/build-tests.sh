#!/usr/bin/env bash
# Builds the test programs of the given packages, and lists them in target/test-programs, a line each: name, path, working folder. The
# name is that of the cargo target, or `lib` for a library. Names of a package in crates/ begin with the package's, such as `testbed:it`.
#
# Usage: tools/build-tests.sh CARGO_ARGUMENT...
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
cd "$root"
mkdir -p "$target"
rm -f "$target/left-out" "$target/test-programs"
"${CARGO:-cargo}" test "$@" --no-run --message-format=json-render-diagnostics >"$target/test-messages"
# shellcheck disable=SC2016 # the expressions are sed's
sed -nE '/"test":true.*"executable":"/s|.*"manifest_path":"([^"]*)/Cargo.toml".*"kind":\["([^"]*)"\].*"name":"([^"]*)".*"executable":"([^"]*)".*|\2 \3 \4 \1|p' \
    "$target/test-messages" |
    while read -r kind name path folder; do
        [ "$kind" != lib ] || name=lib
        case $folder in */crates/models) ;; */crates/*) name=${folder##*/}:$name ;; esac
        printf '%s %s %s\n' "$name" "$path" "$folder"
    done >"$target/test-programs"
