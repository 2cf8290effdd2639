#!/bin/sh
# Builds the Redisson row of the benchmark, for the given Redisson version (default: 4.7.0), into
# benches/compare/redisson/target/<version>/. Does nothing if the build is up to date.
set -eu
. "$(dirname "$0")/maven.sh"
build_with_maven "$(dirname "$0")/../benches/compare/redisson" bench "${1:-4.7.0}"
