#!/usr/bin/env bash
# What the feature `metrics` costs: pairs of lock and unlock per second without it and with it, shown by a Prometheus
# exporter. Two builds take turns for a second each, GAUGE_ROUNDS times (15), and the medians are compared.
#
# Usage: tools/gauges-cost.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-$PWD/target}
rounds=${GAUGE_ROUNDS:-15}

dir=$(mktemp -d)
server=
# shellcheck disable=SC2329 # called by the trap
end() {
    [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true
    rm -rf "$dir"
}
trap end EXIT

"$cargo" build --quiet --release -p instructions --features metrics
cp "$target/release/instructions" "$dir/with"
"$cargo" build --quiet --release -p instructions
cp "$target/release/instructions" "$dir/without"

"${REDIS_SERVER:-redis-server}" --port 0 --unixsocket "$dir/redis.sock" --save '' --dir "$dir" >"$dir/redis.log" 2>&1 &
server=$!
for _ in $(seq 200); do
    [ ! -S "$dir/redis.sock" ] || break
    sleep 0.05
done

median() { sort -n "$1" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

for tasks in 1 64; do
    for _ in $(seq "$rounds"); do
        for build in without with; do
            "$dir/$build" "unix://$dir/redis.sock" "speed-$tasks" >>"$dir/$build-$tasks"
        done
    done
    awk -v tasks="$tasks" -v without="$(median "$dir/without-$tasks")" -v with="$(median "$dir/with-$tasks")" \
        'BEGIN { printf "%3d tasks: %7d pairs/s without gauges, %7d with: %+.1f %%\n", tasks, without, with, (with / without - 1) * 100 }'
done
