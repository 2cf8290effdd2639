# Sourced by the build scripts beside it; not run by itself.

# build_with_maven <project dir> <jar name> <redisson version>
# Runs mvn package -Dredisson.version=..., unless target/<version>/.built is newer than every source. Prints nothing on success,
# and Maven's output with a hint on failure. Makes three attempts, because downloads fail now and then, and then one offline with the
# files in ~/.m2.
build_with_maven() (
    set -eu
    dir=$(cd "$1" && pwd)
    jar=$2
    version=$3
    case $version in
    '' | *[!0-9A-Za-z.-]*)
        echo "$0: not a Redisson version: '$version'" >&2
        exit 2
        ;;
    esac
    for tool in java mvn; do
        if ! command -v "$tool" >/dev/null 2>&1; then
            echo "$0: $tool not found. The Java side needs a JDK 17 or later and Maven 3.8 or later" >&2
            echo "$0: (on Debian: apt-get install openjdk-17-jdk-headless maven)." >&2
            exit 3
        fi
    done

    target=$dir/target/$version
    mkdir -p "$target"
    # Two builds of one version at the same time would overwrite each other's files.
    if command -v flock >/dev/null 2>&1; then
        exec 9>"$dir/target/.lock-$version"
        flock 9
    fi
    if [ -f "$target/.built" ] && [ -f "$target/$jar.jar" ] &&
        [ -f "$target/lib/redisson-$version.jar" ] &&
        [ -z "$(find "$dir/pom.xml" "$dir/src" -newer "$target/.built" -print)" ]; then
        exit 0
    fi

    echo "building $jar with Redisson $version" >&2
    log=$target/maven.log
    # The mark has the time at which the build began, so a source that is saved during the build is newer.
    rm -rf "$target/.built" "$target/lib" "$target/classes" "$target/$jar.jar"
    : >"$target/.building"
    for how in "" -U -U -o; do
        if mvn -q -B $how -f "$dir/pom.xml" "-Dredisson.version=$version" package >"$log" 2>&1 &&
            [ -f "$target/lib/redisson-$version.jar" ]; then
            mv "$target/.building" "$target/.built"
            exit 0
        fi
        # A compiler error does not go away with another attempt.
        if grep -q -e 'COMPILATION ERROR' -e 'Fatal error compiling' "$log"; then
            break
        fi
        [ "$how" = -o ] || sleep 2
    done
    cat "$log" >&2
    echo "$0: building $jar with Redisson $version failed; Maven's output is above, and in $log" >&2
    exit 1
)
