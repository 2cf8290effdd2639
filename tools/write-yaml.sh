#!/bin/sh
# Writes tests/yaml/*.yaml with Redisson's Config.toYAML(), for the tests of the reader. Needs the Redisson 4.7.0 peer of the interop
# tests (make peers).
set -eu
top="$(dirname "$0")/.."
exec java -cp "$top/tests/interop/peer/target/4.7.0/lib/*" "$top/tests/yaml/WriteYaml.java" "$top/tests/yaml"
