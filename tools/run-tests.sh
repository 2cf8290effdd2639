#!/usr/bin/env bash
# Runs a part of a test program, and records the tests that it leaves out: a test that does not run never counts as passed.
#
# Usage: tools/run-tests.sh [--note TEXT] [--threads N] PROGRAM WHERE [FILTER | --skip FILTER | --nocapture]...
#        tools/run-tests.sh --left-out
#
#   PROGRAM   a test program of `target/test-programs` (`make programs` writes it): it, interop, testbed:it, ...
#   WHERE     the servers of the tests, as text for the messages
#   FILTER    libtest's: a part of a test's name; without one, all tests that no --skip names
#   --note    the tier that runs the tests that this run leaves out, or the reason
#
# With --left-out: prints the tests that all runs since `make programs` have left out.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
programs=$target/test-programs
notes=$target/left-out

if [ "${1:-}" = --left-out ]; then
    if [ -s "$notes" ]; then cat "$notes"; else echo "left out: nothing"; fi
    exit
fi

threads=${TEST_THREADS:-8} note=
while [ $# -gt 0 ]; do
    case $1 in
    --threads) threads=$2 && shift 2 ;;
    --note) note=$2 && shift 2 ;;
    *) break ;;
    esac
done
program=$1 where=$2
shift 2

line=$(grep "^$program " "$programs") || { echo "run-tests: no program $program: run 'make programs'" >&2; exit 1; }
read -r _ path folder <<<"$line"
cd "$folder"

# Clusters have several databases from Valkey 9 on.
if [ "$program" = it ]; then
    version=$("${REDIS_SERVER:-redis-server}" --version 2>&1) || true
    if ! [[ $version =~ ^"Valkey server v="([0-9]+) ]] || [ "${BASH_REMATCH[1]}" -lt 9 ]; then
        set -- "$@" --skip cluster_databases::
        note="${note:+$note; }cluster_databases needs Valkey 9: make servers runs it"
    fi
fi

names() { "$path" "$@" --list --format terse | sed -n 's/: test$//p' | sort; }

all=$(names)
chosen=$(names "$@")
run=$(grep -c . <<<"$chosen" || true) of=$(grep -c . <<<"$all" || true)
[ "$run" -gt 0 ] || { echo "run-tests: no test of $program matches: $*" >&2; exit 1; }

# Names the left-out modules, at most three levels deep. A module that is left out as a whole appears once, without its parts.
groups() {
    awk -F'::' '
        NR == FNR { left[$0]; next }
        {
            deepest = NF > 3 ? 3 : (NF > 1 ? NF - 1 : 1)
            name = ""
            for (i = 1; i <= deepest; i++) {
                name = i == 1 ? $1 : name "::" $i
                if (!(name in total)) order[++count] = name
                total[name]++
                if ($0 in left) out[name]++
                if (i == deepest) is_last[name]
            }
        }
        END {
            for (i = 1; i <= count; i++) {
                name = order[i]
                parent = name
                sub(/::[^:]*$/, "", parent)
                if (parent != name && parent in told) { told[name]; continue }
                if (!(name in out)) continue
                if (out[name] == total[name]) { told[name]; printf "%s%s (%d)", sep, name, out[name] }
                else if (name in is_last) printf "%s%s (%d of %d)", sep, name, out[name], total[name]
                else continue
                sep = ", "
            }
            print ""
        }' <(comm -23 <(echo "$all") <(echo "$chosen")) <(echo "$all")
}

echo "run-tests: $run of $of tests of $program, $where, $threads at a time"
if [ "$run" -lt "$of" ]; then
    printf 'left out of %s, %s: %d of %d%s: %s\n' "$program" "$where" $((of - run)) "$of" "${note:+ ($note)}" "$(groups)" >>"$notes"
fi
start=$SECONDS
"$path" --test-threads="$threads" "$@"
echo "run-tests: $program, $where: $((SECONDS - start)) s"
