#!/usr/bin/env bash
# Counts the instructions of a few workloads (benches/instructions) with callgrind and compares them with the committed
# figures: fails when one has grown by more than 5 %. Only the client is counted, not the server.
#
# Usage: tools/bench-check.sh [--if-possible] [--update]
#
#   --if-possible   without valgrind, or on another kind of machine than that of the figures: print a warning, and exit with 0
#   --update        write the figures instead of comparing
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cargo=${CARGO:-cargo}
figures=$root/benches/instructions/figures.txt
limit=5

# Columns: the workload, the operations in one count, the number of runs, and the label. The least of several runs counts. A renewal
# runs once, because it waits for thirds of a lease.
workloads="pairs 100 3 lock + unlock
pairs-64 640 3 lock + unlock, 64 tasks
renewal 1 1 renewal of 1,000
wake-up 1 3 wake-up of 100 waiters
hand-off 1 3 hand-off to 100 waiters"

say() { printf 'bench-check: %s\n' "$*"; }

if_possible=no update=no
for word; do
    case $word in
        --if-possible) if_possible=yes ;;
        --update) update=yes ;;
        *) sed -n '5,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
done

cannot() {
    say "$*"
    [ "$if_possible" = yes ] || exit 1
    say "NOTHING WAS COUNTED: passed WITHOUT the guard against getting slower"
    exit 0
}

cd "$root"
valgrind --version >/dev/null 2>&1 || cannot "there is no valgrind"
here="$(rustc --version), $(rustc -vV | sed -n 's/^host: //p')"
there=$(sed -n 's/^taken with //p' "$figures" 2>/dev/null || true)
[ "$update" = yes ] || [ "${there##*, }" = "${here##*, }" ] ||
    cannot "the figures are of ${there##*, }, and this is ${here##*, }"

"$cargo" build --quiet --release -p instructions
program=${CARGO_TARGET_DIR:-$root/target}/release/instructions

dir=$(mktemp -d)
server=
# shellcheck disable=SC2329 # called by the trap
end() {
    [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true
    rm -rf "$dir"
}
trap end EXIT
# TCP, because at a unix socket a server that reads also wakes the client: once or twice for an answer, by the load of the machine, which
# changes a pair by 6 %. The unix socket tells when the server is there; one whose port is in use ends before.
for _ in $(seq 20); do
    port=$((10000 + RANDOM % 20000))
    "${REDIS_SERVER:-redis-server}" --port $port --bind 127.0.0.1 --unixsocket "$dir/redis.sock" --save '' --dir "$dir" \
        >"$dir/redis.log" 2>&1 &
    server=$!
    for _ in $(seq 200); do
        [ ! -S "$dir/redis.sock" ] || break 2
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
done
[ -S "$dir/redis.sock" ] || { cat "$dir/redis.log"; say "redis-server does not start"; exit 1; }

# Prints the least count of a workload. The first count is skipped: it covers the start of the program.
count() {
    local parts=$dir/$1 said
    said=$(valgrind --tool=callgrind --dump-before='instructions::mark*' --callgrind-out-file="$parts" \
        "$program" "redis://127.0.0.1:$port" "$1" 2>&1) || { printf '%s\n' "$said" >&2; return 1; }
    rm -f "$parts.1"
    sed -n 's/^totals: //p' "$parts".[0-9]* | sort -n | awk -v each="$2" '
        NR == 1 { least = $1 }
        END { if (NR < 4) exit 1; printf "%.0f\n", least / each }'
}

while read -r workload each runs name; do
    least=
    for _ in $(seq "$runs"); do
        counted=$(count "$workload" "$each") || { say "$workload could not be counted"; exit 1; } >&2
        [ -n "$least" ] && [ "$least" -le "$counted" ] || least=$counted
        rm -f "$dir/$workload".*
    done
    printf '%s %s %s\n' "$workload" "$least" "$name"
done <<<"$workloads" >"$dir/counted"

if [ "$update" = yes ]; then
    {
        echo "# Instructions, written by \`make bench-check UPDATE=1\`: workload, count."
        echo "taken with $here"
        awk '{ print $1, $2 }' "$dir/counted"
    } >"$figures"
    cat "$figures"
    exit
fi

awk -v limit=$limit '
    NR == FNR { committed[$1] = $2; next }
    FNR == 1 { printf "%-26s %12s %12s %8s\n", "instructions", "committed", "counted", "change" }
    {
        workload = $1; counted = $2; $1 = $2 = ""; sub(/^ +/, "")
        if (!(workload in committed)) { printf "%-26s %12s %12d\n", $0, "none", counted; bad = 1; next }
        change = (counted / committed[workload] - 1) * 100
        verdict = "ok"
        if (change > limit) { verdict = "TOO MANY"; bad = 1 }
        if (change < -limit) { verdict = "fewer: update the figures"; better = 1 }
        printf "%-26s %12d %12d %+7.1f%%  %s\n", $0, committed[workload], counted, change, verdict
    }
    END { exit bad ? 1 : 0 }' "$figures" "$dir/counted" && exit 0

say "more than $limit % above the figures of benches/instructions/figures.txt."
[ "$here" = "$there" ] ||
    say "THE COMPILER DIFFERS: the figures were taken with $there; this is $here."
say "If it is meant or unavoidable: make bench-check UPDATE=1, and say in the commit why."
exit 1
