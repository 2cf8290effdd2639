#!/usr/bin/env bash
# Prints that `make test-all` has passed, and how long it took since it wrote target/test-all-started. With --update, writes the length
# into docs/testing.md too.
#
# Usage: tools/test-all-length.sh [--update]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
page=docs/testing.md
seconds=$(($(date +%s) - $(cat target/test-all-started)))
length="$((seconds / 60)) min $((seconds % 60)) s"
echo "make test-all: passed after $length"
if [ "${1:-}" = --update ]; then
    line="\`make test-all UPDATE=1\` writes its length here: $length on $(nproc) cores, $(LC_ALL=C date -u '+%-d %B %Y'), on $(git rev-parse --short HEAD)"
    grep -q '^`make test-all UPDATE=1` writes' "$page" || { echo "test-all-length: $page has no line of it" >&2; exit 1; }
    sed -i "s/^\`make test-all UPDATE=1\` writes .*/$line./" "$page"
fi
