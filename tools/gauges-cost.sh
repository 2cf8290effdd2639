#!/usr/bin/env bash
# Measures the cost of the feature `metrics`: pairs of lock and unlock per second without it, and with it and a Prometheus
# exporter. Two builds run alternately for 0.3 s each, in GAUGE_ROUNDS rounds (40). The result is the median change of a round,
# because other work on the machine affects both halves of a round alike.
#
# Usage: tools/gauges-cost.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-$PWD/target}
rounds=${GAUGE_ROUNDS:-40}

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

for tasks in 1 64; do
    for round in $(seq "$rounds"); do
        order="without with"
        [ $((round % 2)) = 0 ] || order="with without"
        for build in $order; do
            "$dir/$build" "unix://$dir/redis.sock" "speed-$tasks" >>"$dir/$build-$tasks"
        done
    done
    paste "$dir/without-$tasks" "$dir/with-$tasks" | awk '{ print $2 / $1, $1, $2 }' | sort -n |
        awk -v tasks="$tasks" '
            { change[NR] = $1; without += $2; with += $3 }
            END { printf "%3d tasks: %7d pairs/s without gauges, %7d with; the median of the changes is %+.1f %%\n", tasks,
                without / NR, with / NR, (change[int((NR + 1) / 2)] - 1) * 100 }'
done
