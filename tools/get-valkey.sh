#!/bin/sh
# Finds or fetches a Valkey server, version 8 or later, for the tests, and prints its path. Other output goes to standard error.
# Safe to run again: it fetches a server once.
#
# Usage: tools/get-valkey.sh
#
# Takes the first that exists:
#   1. the program that VALKEY_SERVER names; fails if it is no such Valkey
#   2. valkey-server in PATH
#   3. the server that an earlier run fetched into target/valkey
#   4. Debian's package, unpacked into target/valkey: for Debian 12 from its backports. Nothing is installed, and
#      neither the system's package lists nor its sources are touched.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
home=$root/target/valkey
new=$root/target/valkey.new
. "$root/tools/debian.sh"

say() { printf 'valkey: %s\n' "$*" >&2; }

stop() {
    for line; do say "$line"; done
    say "Name a valkey-server with VALKEY_SERVER=/path/to/it, or leave the run on Valkey out with VALKEY=skip."
    exit 1
}

# Prints the first line of the program's version.
version_of() {
    said=$("$1" --version 2>&1) || true
    printf '%s\n' "$said" | head -n 1
}

# Succeeds if the program runs and reports Valkey 8 or later.
is_valkey() {
    major=$(version_of "$1" | sed -n 's/^Valkey server v=\([0-9]*\)\..*/\1/p')
    [ -n "$major" ] && [ "$major" -ge 8 ]
}

found() {
    say "$(version_of "$1" | cut -d ' ' -f 1-3) at $1"
    printf '%s\n' "$1"
    exit 0
}

# --- what is there -----------------------------------------------------------------------------------------------

if [ -n "${VALKEY_SERVER:-}" ]; then
    is_valkey "$VALKEY_SERVER" || stop \
        "VALKEY_SERVER is $VALKEY_SERVER, which is no Valkey server of version 8 or later." \
        "Asked for its version it says: $(version_of "$VALKEY_SERVER")"
    # The servers are started in folders of their own.
    program=$(command -v "$VALKEY_SERVER")
    found "$(cd "$(dirname "$program")" && pwd)/$(basename "$program")"
fi
in_path=$(command -v valkey-server) || in_path=
if [ -n "$in_path" ] && is_valkey "$in_path"; then found "$in_path"; fi

mkdir -p "$root/target"
# Two runs at the same time would overwrite each other's files.
if command -v flock >/dev/null 2>&1; then
    exec 9>"$root/target/.lock-valkey"
    flock 9
fi
if is_valkey "$home/valkey-server"; then found "$home/valkey-server"; fi

# --- Debian's package --------------------------------------------------------------------------------------------

# shellcheck source=/dev/null
codename=$(. /etc/os-release 2>/dev/null && [ "${ID:-}" = debian ] && printf '%s' "${VERSION_CODENAME:-}") || codename=
[ -n "$codename" ] && has_debian_packages || stop \
    "There is no valkey-server of version 8 or later in PATH, and this is not a Debian, whose package could be used."

rm -rf "$new"
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

give_up() {
    cat "$new/log" >&2
    stop "$1 failed, see above. Package source: http://deb.debian.org/debian, $codename and $codename-backports."
}

say "fetching Debian's package into $home"
begin_packages "$new" "debian $codename $codename-backports"
unpack valkey-server valkey-tools
ln -s root/usr/bin/valkey-server "$new/valkey-server"

# A Debian with redis-server has the libraries. Otherwise this fetches them, without the C library, and replaces the program by a
# script that finds them.
if ! is_valkey "$new/valkey-server"; then
    # shellcheck disable=SC2046 # one word for each package
    unpack $(packages apt-cache depends --important valkey-tools | sed -n 's/^ *Depends: \(lib.*\)/\1/p' | grep -vx libc6)
    rm "$new/valkey-server"
    cat >"$new/valkey-server" <<'END'
#!/bin/sh
root=${0%/*}/root
for folder in "$root"/usr/lib/*-linux-gnu* "$root"/lib/*-linux-gnu*; do
    LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
export LD_LIBRARY_PATH
exec "$root/usr/bin/valkey-server" "$@"
END
    chmod 755 "$new/valkey-server"
fi
is_valkey "$new/valkey-server" || stop \
    "Debian's package does not start as a Valkey of version 8 or later." \
    "Asked for its version it says: $(version_of "$new/valkey-server")"

end_packages "$home"
found "$home/valkey-server"
