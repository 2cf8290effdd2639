#!/bin/sh
# Writes tests/yaml/*.yaml: the YAML of Redisson's own Config.toYAML(), for tests of what is read of it. Needs Redisson 4.7.0 beside
# the peer of the interop tests (make peers).
set -eu
top="$(dirname "$0")/.."
exec java -cp "$top/tests/interop/peer/target/4.7.0/lib/*" "$top/tests/yaml/WriteYaml.java" "$top/tests/yaml"
