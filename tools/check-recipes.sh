#!/usr/bin/env bash
# Checks the syntax of every recipe of the Makefile without running it: `make -n` of each target exits with 0, and Bash can read each of its
# command lines. A comma in an argument of $(if ..) ends that argument, and make alone does not notice the quote that it cuts off.
#
# Usage: tools/check-recipes.sh
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# A folder without target/: `make -n` must not need what an earlier run has left.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$root/Makefile" "$folder"
cd "$folder"
unset MAKEFLAGS MFLAGS MAKELEVEL

failed=0
mapfile -t targets < <(sed -nE 's/^([a-z-]+):( .*|$)/\1/p' Makefile | sort -u)
for target in "${targets[@]}"; do
    for settings in "" INTEROP=skip VALKEY=skip "INTEROP=skip VALKEY=skip" "UPDATE=1 PREEMPTIONS=5"; do
        # Variables as words. Bash reads the lines of `make -n` as one text, and with -nc each line by itself: two quotes that are cut off
        # would end each other in the text.
        # shellcheck disable=SC2086
        if ! make -n "$target" $settings >lines 2>messages || ! bash -n lines 2>>messages ||
            ! make -s SHELL="$BASH" .SHELLFLAGS=-nc "$target" $settings >>messages 2>&1; then
            echo "check-recipes: make $target $settings:" >&2
            cat messages >&2
            failed=1
        fi
    done
done
[ "$failed" = 0 ] || exit 1
echo "check-recipes: ${#targets[@]} targets: each command line can be read"
