#!/usr/bin/env bash
# Compares the public API of the library and of the test kit with docs/public-api.txt, so that a change shows in review. With --update: writes the file.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
snapshot=docs/public-api.txt
# Omits blanket and auto trait implementations, which would be most of the list.
api() {
    for crate in redisson-lock redisson-lock-test; do
        cargo +nightly public-api -p "$crate" --all-features --simplified --simplified --simplified || return
    done
}
if [ "${1:-}" = --update ]; then
    api >"$snapshot"
else
    diff -u "$snapshot" <(api) || { echo "api: changed; if on purpose: make api UPDATE=1, and say so in CHANGELOG.md" >&2; exit 1; }
fi
