#!/usr/bin/env bash
# Prints the p50 of a semaphore's try_acquire and release beside that of a lock's pair. Both run alternately in one process, on a
# server of its own.
#
# Usage: tools/permits-cost.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
dir=$(mktemp -d)
server=
# shellcheck disable=SC2329 # called by the trap
end() {
    [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true
    rm -rf "$dir"
}
trap end EXIT

"${CARGO:-cargo}" build --quiet --release -p instructions
"${REDIS_SERVER:-redis-server}" --port 0 --unixsocket "$dir/redis.sock" --save '' --dir "$dir" >"$dir/redis.log" 2>&1 &
server=$!
for _ in $(seq 200); do
    [ ! -S "$dir/redis.sock" ] || break
    sleep 0.05
done
for _ in 1 2 3; do
    "${CARGO_TARGET_DIR:-$PWD/target}/release/instructions" "unix://$dir/redis.sock" permits
done
