#!/usr/bin/env bash
# Starts each profile of docker-compose.yml, runs `rlock doctor` against it, and removes it. Needs Docker with its compose plugin.
#
# Usage: tools/compose.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
docker compose version >/dev/null 2>&1 || { echo "compose: there is no docker compose" >&2; exit 1; }
"${CARGO:-cargo}" build --quiet -p rlock
rlock=${CARGO_TARGET_DIR:-target}/debug/rlock
trap "docker compose --profile '*' down --volumes" EXIT

# The head of the file names the profiles and their URLs; tools/pages compares it with the services.
profiles=$(sed -nE 's/^# +docker compose --profile ([a-z]+) +up -d --wait +(redis.*)$/\1 \2/p' docker-compose.yml)
[ -n "$profiles" ] || { echo "compose: docker-compose.yml names no profiles" >&2; exit 1; }
while read -r profile url; do
    echo "compose: $profile"
    docker compose --profile "$profile" up -d --wait </dev/null
    # 1: warnings, because the servers keep no data.
    "$rlock" doctor "$url" </dev/null || [ $? -eq 1 ] || { docker compose --profile "$profile" logs; exit 1; }
    docker compose --profile "$profile" down --volumes </dev/null
done <<<"$profiles"
