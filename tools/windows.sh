#!/bin/sh
# Checks that the library, the test kit and rlock compile for Windows (x86_64-pc-windows-gnu), with warnings denied.
#
# Usage: tools/windows.sh [--if-possible]
#
#   --if-possible   without a way to Rust's standard library for Windows or to a C compiler: print a warning, and exit with 0
#
# rustup installs that standard library: Debian has it only up to Rust 1.63, older than rust-version. ring and Lua need a C compiler:
# x86_64-w64-mingw32-gcc of PATH or, on Debian, its package, unpacked into target/windows without installing anything.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/debian.sh"
cargo=${CARGO:-cargo}
target=x86_64-pc-windows-gnu
home=$root/target/windows
new=$home.new

say() { printf 'windows: %s\n' "$*"; }

case ${1:-} in
'') if_possible=no ;;
--if-possible) if_possible=yes ;;
*)
    sed -n '4,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac

cannot() {
    say "$*"
    [ "$if_possible" = yes ] || exit 1
    say "NOTHING WAS CHECKED for Windows"
    exit 0
}

give_up() {
    cat "$new/log" >&2
    rm -rf "$new"
    cannot "$1 failed, see above"
}

# Unpacks Debian's compiler. The loader of this machine runs it, so the suite is an old one.
get_compiler() {
    has_debian_packages || cannot "there is no x86_64-w64-mingw32-gcc: install mingw-w64"
    say "fetching Debian's mingw-w64 into $home"
    rm -rf "$home" "$new"
    begin_packages "$new" "debian bookworm"
    unpack gcc-mingw-w64-base gcc-mingw-w64-x86-64-win32 gcc-mingw-w64-x86-64-win32-runtime binutils-mingw-w64-x86-64 \
        mingw-w64-common mingw-w64-x86-64-dev libgmp10 libisl23 libmpc3 libmpfr6 libzstd1 zlib1g
    mkdir "$new/bin"
    for tool in gcc ar; do
        program=x86_64-w64-mingw32-$tool
        [ "$tool" = ar ] || program=$program-win32
        cat >"$new/bin/x86_64-w64-mingw32-$tool" <<END
#!/bin/sh
root=\$(dirname "\$0")/../root
export LD_LIBRARY_PATH="\$root/usr/lib/x86_64-linux-gnu:\$root/lib/x86_64-linux-gnu"
exec "\$root/usr/bin/$program" "\$@"
END
        chmod 755 "$new/bin/x86_64-w64-mingw32-$tool"
    done
    end_packages "$home"
}

cd "$root"
rustup target add "$target" 2>/dev/null || cannot "rustup cannot install the standard library for $target"
if ! command -v x86_64-w64-mingw32-gcc >/dev/null 2>&1; then
    [ -x "$home/bin/x86_64-w64-mingw32-gcc" ] || get_compiler
    PATH=$home/bin:$PATH
fi

check() {
    say "check $*"
    "$cargo" clippy --quiet --target "$target" "$@" -- -D warnings
}
check -p redisson-lock
check -p redisson-lock --no-default-features --features serde
check -p redisson-lock --all-features
check -p redisson-lock-test
check -p rlock
say "compiles for $target"
