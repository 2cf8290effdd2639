#!/bin/sh
# Builds the Java peer of the interop tests, for each given Redisson version (default: 4.7.0 3.27.0), into
# tests/interop/peer/target/<version>/. Skips a version whose build is up to date.
set -eu
. "$(dirname "$0")/maven.sh"
[ $# -gt 0 ] || set -- 4.7.0 3.27.0
for version in "$@"; do
    build_with_maven "$(dirname "$0")/../tests/interop/peer" peer "$version"
done
