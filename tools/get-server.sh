#!/bin/sh
# Fetches a server of a given version for the tests, and prints its path. Other output goes to standard error.
# Safe to run again: it fetches a server once.
#
# Usage: tools/get-server.sh redis-6.0 | redis-7.0 | redis-8.0 | valkey-8.1
#
# The server is the package of the Debian release that has this version, unpacked into target/servers/<name> with its
# libraries and its C library. It runs on any machine with apt-get, dpkg and Debian's keys; nothing is installed.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/debian.sh"
name=${1:-}
package=redis-tools program=redis-check-rdb
case $name in
redis-6.0) suite=bullseye ;;
redis-7.0) suite=bookworm ;;
redis-8.0) suite=trixie ;;
valkey-8.1) suite=trixie package=valkey-tools program=valkey-check-rdb ;;
*)
    sed -n '5s/^# //p' "$0" >&2
    exit 2
    ;;
esac
home=$root/target/servers/$name
new=$home.new
server=$home/${name%-*}-server

say() { printf 'get-server: %s\n' "$*" >&2; }

stop() {
    for line; do say "$line"; done
    exit 1
}

give_up() {
    cat "$new/log" >&2
    stop "$1 failed, see above. Package source: http://deb.debian.org/debian, $suite."
}

# Succeeds if the program at $1 reports the wanted version.
is_wanted() {
    said=$("$1" --version 2>&1) || return 1
    case $said in *" v=${name#*-}."*) ;; *) return 1 ;; esac
}

found() {
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
has_debian_packages || stop "This machine cannot fetch Debian packages (apt-get, dpkg, $keys)."

rm -rf "$new"
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
say "fetching $name, Debian's package of $suite, into $home"
if [ "$suite" = trixie ]; then
    begin_packages "$new" "debian $suite"
else
    begin_packages "$new" "debian $suite" "debian-security $suite-security"
fi
# The libraries of the server, with their dependencies.
# shellcheck disable=SC2046 # one word for each package
unpack "$package" $(packages apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances "$package" | grep -E '^(lib|lua-|zlib)' | grep -vE ':|^lib(pam|debian|newt|slang|textwrap)' | sort -u)

# The libraries of another release need the loader of that release.
cat >"$new/${name%-*}-server" <<END
#!/bin/sh
root=\${0%/*}/root
loader=\$(find "\$root" -type f \\( -name 'ld-linux*.so*' -o -name 'ld-2.*.so' \\) | head -n 1)
libraries=
for folder in "\$root"/usr/lib/*-linux-gnu* "\$root"/lib/*-linux-gnu*; do
    libraries=\$folder\${libraries:+:\$libraries}
done
exec "\$loader" --library-path "\$libraries" "\$root/usr/bin/${name%-*}-server" "\$@"
END
# The program chooses its role by the name of its file.
ln -sf "$program" "$new/root/usr/bin/${name%-*}-server"
chmod 755 "$new/${name%-*}-server"
end_packages "$home"
is_wanted "$server" || stop "Debian's package does not start as $name. Asked for its version it says: $said"
found
