#!/usr/bin/env bash
# Installs the missing programs that the tests and the demo need. Safe to run again: it does nothing when nothing is missing.
#
# Usage: tools/setup.sh [--check] [--need THING]... [--want THING]...
#
#   --need THING   exit with 1 if THING cannot be installed
#   --want THING   print a warning if THING cannot be installed, and go on
#   --check        install nothing; exit with 1 if a needed or wanted THING is missing
#
#   THING   rust      cargo (at least rust-version of Cargo.toml), rustfmt, clippy; checked only, never installed
#           cc        a C compiler, which cargo links with
#           redis     redis-server, or the program that REDIS_SERVER names
#           java      a JDK of version 17 or later, and Maven
#           valgrind  for `make bench-check`, which counts instructions
#           wine      for `make windows-tests`
#
# Without arguments: --need rust --need cc --need redis --want java.
#
# Installs with apt-get, as root or through sudo. On other systems it prints what is missing and how to install it.
# Debian's redis-server package starts a service on port 6379. If this script installs the package, it neither starts nor enables
# that service, because tests and demo start servers of their own.
# shellcheck disable=SC2329 # <thing>_ok, hint_<thing> and get_<thing> are called by name
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cargo=${CARGO:-cargo}
policy=/usr/sbin/policy-rc.d
policy_is_ours=no
lists_are_fresh=no

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }
say() { printf 'setup: %s\n' "$*"; }
has() { command -v "$1" >/dev/null 2>&1; }

usage() {
    sed -n '4,17s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
}

# --- what is there -----------------------------------------------------------------------------------------------

rust_wanted() { sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$root/Cargo.toml"; }

rust_ok() {
    local found
    has "$cargo" || return 1
    found=$("$cargo" --version 2>/dev/null | awk '{ print $2 }')
    [ -n "$found" ] || return 1
    # The older of the two versions must be the wanted one.
    [ "$(printf '%s\n%s\n' "$(rust_wanted)" "${found%%-*}" | sort -V | head -n 1)" = "$(rust_wanted)" ] || return 1
    "$cargo" fmt --version >/dev/null 2>&1 && "$cargo" clippy --version >/dev/null 2>&1
}

cc_ok() { has cc; }

redis_ok() { "${REDIS_SERVER:-redis-server}" --version >/dev/null 2>&1; }

# On macOS, `java` and `javac` exist without a JDK and only print an error, so check the version.
jdk_ok() {
    local major
    has java && has javac || return 1
    major=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
    [ -n "$major" ] && [ "$major" -ge 17 ] && java -version >/dev/null 2>&1
}

java_ok() { jdk_ok && has mvn; }

valgrind_ok() { valgrind --version >/dev/null 2>&1; }

wine_ok() { has wine; }

# --- what to say about what is not -------------------------------------------------------------------------------

hint_rust() {
    if ! has "$cargo" && [ -x "$HOME/.cargo/bin/cargo" ]; then
        say "cargo is in ~/.cargo/bin, which is not in PATH. Run: . ~/.cargo/env"
    elif ! has "$cargo"; then
        say "cargo is missing. Install Rust $(rust_wanted) or later from https://rustup.rs"
    else
        say "Rust $(rust_wanted) or later with rustfmt and clippy is missing (found: $("$cargo" --version 2>&1 | head -n 1))."
        say "  with rustup: rustup update stable && rustup component add rustfmt clippy"
    fi
}

hint() { # what it is, Debian, Fedora, Homebrew
    say "$1 is missing. To install it:"
    say "  Debian, Ubuntu:  apt-get install $2"
    say "  Fedora, RHEL:    dnf install $3"
    say "  macOS:           $4"
}

hint_cc() { hint "A C compiler (cc)" "gcc libc6-dev" "gcc" "xcode-select --install"; }
hint_redis() { hint "redis-server" "redis-server" "redis (or: valkey valkey-compat-redis)" "brew install redis"; }

hint_java() {
    jdk_ok || hint "A JDK of version 17 or later" "openjdk-17-jdk-headless (or: default-jdk-headless)" \
        "java-21-openjdk-devel" "brew install openjdk@21, and put its bin folder in PATH"
    has mvn || hint "Maven (mvn)" "maven" "maven" "brew install maven"
}

hint_valgrind() { hint "valgrind" "valgrind" "valgrind" "not for current versions of macOS"; }
hint_wine() { hint "wine" "wine wine64" "wine" "brew install --cask wine-stable"; }

# --- apt-get -----------------------------------------------------------------------------------------------------

can_install() {
    has apt-get || { say "This system has no apt-get: nothing is installed for you."; return 1; }
    [ "$(id -u)" -ne 0 ] || return 0
    has sudo || { say "Not root, and there is no sudo: nothing is installed for you."; return 1; }
    # Without a terminal, sudo cannot ask for a password.
    [ -t 0 ] || sudo -n true 2>/dev/null || { say "sudo asks for a password and there is no terminal: nothing is installed for you."; return 1; }
}

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
        apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

refresh_lists() {
    [ "$lists_are_fresh" = no ] || return 0
    say "apt-get update"
    apt_get update && lists_are_fresh=yes
}

in_lists() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep '^ *Candidate: [^(]' >/dev/null; }

# Prints the first given package that the package lists contain.
first_in_lists() {
    local package
    for package in "$@"; do
        if in_lists "$package"; then printf '%s\n' "$package"; return 0; fi
    done
    return 1
}

jdk_package() { first_in_lists openjdk-17-jdk-headless openjdk-21-jdk-headless openjdk-25-jdk-headless default-jdk-headless; }

# Three attempts; the lists are renewed before the second, because stale lists are the usual cause.
install_packages() {
    local attempt
    say "apt-get install $*"
    for attempt in 1 2 3; do
        if apt_get install -y --no-install-recommends "$@"; then return 0; fi
        say "apt-get install $* failed (attempt $attempt of 3)"
        [ "$attempt" -lt 3 ] || return 1
        lists_are_fresh=no
        refresh_lists || true
        sleep $((attempt * 3))
    done
}

# A policy-rc.d that exits with 101 keeps packages from starting services. An existing one stays unchanged.
forbid_services() {
    # shellcheck disable=SC2016 # expanded by the inner shell
    if as_root sh -c 'set -C; printf "#!/bin/sh\nexit 101\n" >"$1" && chmod 755 "$1"' sh "$policy" 2>/dev/null; then
        policy_is_ours=yes
    fi
}

allow_services() {
    [ "$policy_is_ours" = yes ] || return 0
    as_root rm -f "$policy" && policy_is_ours=no
}

trap allow_services EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

get_cc() { in_lists gcc || refresh_lists; install_packages gcc libc6-dev; }

get_redis() {
    local had_unit=no result=0
    ! systemctl cat redis-server.service >/dev/null 2>&1 || had_unit=yes
    in_lists redis-server || refresh_lists
    forbid_services
    install_packages redis-server || result=$?
    allow_services
    if [ "$had_unit" = no ] && [ -d /run/systemd/system ] && systemctl cat redis-server.service >/dev/null 2>&1; then
        as_root systemctl disable --now redis-server.service >/dev/null 2>&1 || true
        say "The system service redis-server is off; tests and demo start their own. To use it: systemctl enable --now redis-server"
    fi
    return "$result"
}

get_java() {
    local packages=()
    if ! jdk_ok; then
        jdk_package >/dev/null || refresh_lists
        packages+=("$(jdk_package || echo default-jdk-headless)")
    fi
    if ! has mvn; then
        in_lists maven || refresh_lists
        packages+=(maven)
    fi
    install_packages "${packages[@]}"
}

get_valgrind() { in_lists valgrind || refresh_lists; install_packages valgrind; }

get_wine() { in_lists wine64 || refresh_lists; install_packages wine wine64; }

# --- arguments ---------------------------------------------------------------------------------------------------

check_only=no
needed=
wanted=
while [ $# -gt 0 ]; do
    case $1 in
        --check) check_only=yes; shift ;;
        --need | --want)
            case ${2:-} in rust | cc | redis | java | valgrind | wine) ;; *) usage ;; esac
            if [ "$1" = --need ]; then needed+=" $2"; else wanted+=" $2"; fi
            shift 2 ;;
        *) usage ;;
    esac
done
if [ -z "$needed$wanted" ]; then
    needed="rust cc redis"
    wanted=java
fi

# --- do it -------------------------------------------------------------------------------------------------------

# Prints the missing things of the list.
missing() {
    local thing
    for thing in $1; do "${thing}_ok" || printf '%s\n' "$thing"; done
}

installable=$(missing "$needed $wanted" | grep -vx rust | sort -u || true)
if [ "$check_only" = no ] && [ -n "$installable" ] && can_install; then
    for thing in $installable; do
        "get_$thing" || say "could not install: $thing"
        hash -r
    done
fi

result=0
for thing in $(missing "$needed"); do
    "hint_$thing"
    result=1
done
for thing in $(missing "$wanted"); do
    "hint_$thing"
    if [ "$check_only" = yes ]; then result=1; else say "Going on without it: $thing is wanted, not required."; fi
done
[ "$result" -eq 0 ] || say "Not everything that is needed is there (see above)."
exit "$result"
