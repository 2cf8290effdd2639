# Sourced by the scripts that fetch servers. Fetches Debian packages and unpacks them into a folder. Installs nothing, and leaves the
# system's package lists and sources unchanged.

keys=/usr/share/keyrings/debian-archive-keyring.gpg

# has_debian_packages: succeeds if this machine can fetch them.
has_debian_packages() {
    [ -r "$keys" ] && command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1
}

# begin_packages <folder> <source>...: sources are `<archive> <suites>`, such as `debian trixie`.
# The caller defines give_up, which gets the name of a failed step. <folder>/log has the cause.
begin_packages() {
    into=$1
    shift
    mkdir -p "$into/apt/state/lists/partial" "$into/apt/cache/archives/partial" "$into/debs"
    : >"$into/apt/status"
    for source; do
        # A mirror that is kept still has the testing suite past its validity: its date alone is not checked, its signature is.
        date=
        if [ "${source#* }" = testing ]; then date="Check-Valid-Until: no"; fi
        cat <<END
Types: deb
URIs: http://deb.debian.org/${source%% *}
Suites: ${source#* }
Components: main
Signed-By: $keys
$date

END
    done >"$into/apt/debian.sources"

    # Only the network settings of the system's configuration apply: its hooks, which clean the system's caches after an update, must
    # not run. With an empty status, apt ignores installed packages.
    {
        apt-config dump | grep -i '^Acquire::https\{0,1\}::' || true
        cat <<END
Dir::Etc::Main "/dev/null";
Dir::Etc::Parts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::Etc::SourceList "$into/apt/debian.sources";
Dir::Etc::SourceParts "/dev/null";
Dir::State "$into/apt/state";
Dir::State::status "$into/apt/status";
Dir::Cache "$into/apt/cache";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "20";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
END
    } >"$into/apt/apt.conf"
    packages apt-get -q update >"$into/log" 2>&1 || give_up "apt-get update"
}

# packages <program> <argument>...: runs an apt program on these sources.
packages() {
    APT_CONFIG=$into/apt/apt.conf "$@" </dev/null
}

# unpack <package>...: shows apt's output only if it fails.
unpack() {
    (cd "$into/debs" && packages apt-get -q download "$@") >"$into/log" 2>&1 || give_up "apt-get download $*"
    for deb in "$into"/debs/*.deb; do
        dpkg -x "$deb" "$into/root"
        rm "$deb"
    done
}

# end_packages <folder>: removes temporary files, and moves the rest into place.
end_packages() {
    rm -rf "$1" "$into/apt" "$into/debs" "$into/log"
    mv "$into" "$1"
}
