#!/usr/bin/env bash
# Builds the benchmark's peers in other languages than Rust (benches/compare/PROTOCOL.md), each into ignored folders of its own.
# Safe to run again: it skips a peer that is built from unchanged sources.
#
# Usage: tools/build-bench-peers.sh [PEER]...       all, unless some are named
#
# Prints a line for each peer: built, or left out with the reason. A peer that cannot be built is no failure: the script exits with 0,
# and the peer's `run` reports that it is not built. The output of a failed build is in the peer's target/build.log.
# shellcheck disable=SC2329 # <peer>_tools and build_<peer> are called by name
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
peers=$root/benches/compare

say() { printf '%-16s %s\n' "$1" "$2"; }

# <peer>_tools prints the versions of a peer's tools, and fails if one is missing.
redisson_tools() { java -version && command -v mvn; }
redsync_tools() { go version; }
redis_py_tools() { python3 -c 'import ensurepip, sys, venv; print(sys.executable, sys.version); assert sys.version_info >= (3, 11)'; }
node_redlock_tools() { node --version && command -v npm && node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)'; }
redis_semaphore_tools() { node_redlock_tools; }

needs() {
    case $1 in
        redisson) echo "a JDK of version 17 or later, and Maven" ;;
        redsync) echo "Go 1.21 or later" ;;
        redis-py) echo "Python 3.11 or later with its venv" ;;
        *) echo "Node.js 20 or later, and npm" ;;
    esac
}

# Each build runs in the peer's folder, with its output in target/build.log.
build_redisson() { "$root/tools/build-bench-redisson.sh"; }
build_redsync() { go build -buildvcs=false -o target/bench .; }
build_redis_py() {
    rm -rf target/venv && python3 -m venv target/venv &&
        target/venv/bin/pip install --disable-pip-version-check -r requirements.txt
}
build_node_redlock() { npm ci --no-audit --no-fund; }
build_redis_semaphore() { build_node_redlock; }

# Three attempts, because downloads fail now and then.
attempts() {
    local attempt
    for attempt in 1 2 3; do
        if "$@" </dev/null; then return 0; fi
        [ "$attempt" -eq 3 ] || sleep $((attempt * 2))
    done
    return 1
}

# Prints a line that changes with the tools ($1) or the sources of the peer.
stamp() {
    local sources
    sources=$(find . \( -name target -o -name node_modules \) -prune -o -type f -print | LC_ALL=C sort)
    { printf '%s\n' "$1"; printf '%s\n' "$sources" | xargs cksum; } | cksum
}

build() (
    peer=$1
    name=${peer//-/_}
    cd "$peers/$peer"
    mkdir -p target
    # Two builds at the same time would overwrite each other's files.
    if command -v flock >/dev/null 2>&1; then
        exec 9>target/.lock
        flock 9
    fi
    if ! tools=$("${name}_tools" 2>&1); then
        rm -f target/.built
        say "$peer" "left out: it needs $(needs "$peer")"
        return
    fi
    stamp=$(stamp "$tools")
    if [ "$(cat target/.built 2>/dev/null)" = "$stamp" ]; then
        say "$peer" "built"
        return
    fi
    rm -f target/.built
    if attempts "build_$name" >target/build.log 2>&1; then
        printf '%s\n' "$stamp" >target/.built
        say "$peer" "built"
    else
        say "$peer" "left out: its build failed: $(grep -v '^ *$' target/build.log | tail -n 1)"
    fi
)

[ $# -gt 0 ] || set -- redisson redsync redis-py node-redlock redis-semaphore
for peer; do
    if [ -x "$peers/$peer/run" ] && declare -F "build_${peer//-/_}" >/dev/null; then
        build "$peer"
    else
        say "$peer" "left out: there is no such peer"
    fi
done
