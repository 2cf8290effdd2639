#!/bin/sh
# Checks that the library with its tests, the test kit and rlock compile for Windows (x86_64-pc-windows-gnu), with warnings denied.
#
# Usage: tools/windows.sh [--if-possible]
#        tools/windows.sh --test [FILTER]
#
#   --if-possible   without a way to Rust's standard library for Windows or to a C compiler: print a warning, and exit with 0
#   --test          run the unit tests and the simulator under wine; FILTER is a part of their names
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

if_possible=no tests=no
case ${1:-} in
'') ;;
--if-possible) if_possible=yes ;;
--test) tests=yes && shift ;;
*)
    sed -n '4,8s/^# \{0,1\}//p' "$0" >&2
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
    for tool in gcc ar as dlltool; do
        program=x86_64-w64-mingw32-$tool
        [ "$tool" != gcc ] || program=$program-win32
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

# A DLL that Rust's standard library takes random bytes from, and that wine 8 lacks.
make_bcryptprimitives() {
    mkdir -p "$home"
    cat >"$home/bcryptprimitives.c" <<END
#include <windows.h>
#include <ntsecapi.h>
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length) { return RtlGenRandom(data, length); }
END
    x86_64-w64-mingw32-gcc -shared -o "$home/bcryptprimitives.dll" "$home/bcryptprimitives.c" -ladvapi32
}

# Programs of Windows run under wine, in a Windows of their own. `timeout` bounds each of them.
set_up_wine() {
    "$root/tools/setup.sh" --need wine
    make_bcryptprimitives
    export WINEPREFIX="$home/wine" WINEDEBUG=-all WINEPATH
    WINEPATH=$(printf 'Z:%s' "$home" | tr / '\\')
    trap 'wineserver -k || true' EXIT
    export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=x86_64-w64-mingw32-gcc
    export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER="timeout ${WINE_SECONDS:-1800} wine"
}

check() {
    say "check $*"
    "$cargo" clippy --quiet --target "$target" "$@" -- -D warnings
}

cd "$root"
rustup target add "$target" 2>/dev/null || cannot "rustup cannot install the standard library for $target"
if ! command -v x86_64-w64-mingw32-dlltool >/dev/null 2>&1; then
    [ -x "$home/bin/x86_64-w64-mingw32-dlltool" ] || get_compiler
    PATH=$home/bin:$PATH
fi

if [ "$tests" = yes ]; then
    set_up_wine
    "$cargo" test --no-fail-fast --target "$target" -p redisson-lock --all-features --lib --test sim -- "$@"
    exit
fi
check -p redisson-lock
check -p redisson-lock --no-default-features --features serde
check -p redisson-lock --all-features
check -p redisson-lock-test
check -p rlock
# The test programs that need no server: the test bed needs Unix.
check -p redisson-lock --all-features --profile test --lib --test sim --test gauges --test memory
say "compiles for $target"
