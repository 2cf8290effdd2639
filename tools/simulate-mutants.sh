#!/usr/bin/env bash
# Builds the simulator with one seeded bug after the other (tests/sim/mutants/*.patch), in a copy of the working tree under
# target/, and prints how many histories each bug needs until a rule breaks. Fails if a bug survives or a patch does not apply.
#
#   tools/simulate-mutants.sh [--check]
#
# With --check: only prints the patches that do not apply to the working tree.
#
# The sources without a bug are played first, and must pass. A bug in a script needs no build: the simulator reads the changed file
# when it starts (scripts_at_run_time.diff). The first 500 histories run before the single tests, because their number shows how
# hidden a bug is. The remaining histories follow. The library's unit tests run last, because each bug costs a build of them.
#
# Environment
#   MUTANT_HISTORIES  the most histories per bug (20000)
#   MUTANT_SECONDS    the most seconds per bug (600); the simulator itself reports a history that does not end
#   ONLY              part of the names of the bugs to run, a regular expression
set -uo pipefail
cd "$(dirname "$0")/.."

most=${MUTANT_HISTORIES:-20000}
seconds=${MUTANT_SECONDS:-600}
only=${ONLY:-.}
here=$PWD/target/mutants
source=$here/${1:+checked-}source
tree=$here/tree
table=$here/table
if [[ ${1-} == --check ]] && ! command -v patch >/dev/null; then
  echo "left out: without the program patch, whether each seeded bug applies"
  exit
fi
mkdir -p "$here"
[[ -n ${1-} ]] || : >"$table"

# Little optimization and many codegen units: each bug is built once and runs briefly.
profile=(--profile mutants --config 'profile.mutants.inherits="release"' --config 'profile.mutants.opt-level=1'
  --config 'profile.mutants.debug=false' --config 'profile.mutants.incremental=true'
  --config 'profile.mutants.codegen-units=64' --config 'profile.mutants.package."*".opt-level=3')

# A copy of the present sources, so that later edits do not matter.
rm -rf "$source" && mkdir -p "$source"
git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
  [[ -f $file ]] && printf '%s\0' "$file"
done | xargs -0 cp -p --parents -t "$source"

patch --quiet --directory "$source" --strip 1 --no-backup-if-mismatch \
  <"$source/tests/sim/mutants/scripts_at_run_time.diff" || exit 1

if [[ ${1-} == --check ]]; then
  failed=0
  for patch in "$source"/tests/sim/mutants/*.patch; do
    patch --quiet --dry-run --directory "$source" --strip 1 --forward --no-backup-if-mismatch <"$patch" >/dev/null || {
      echo "tests/sim/mutants/$(basename "$patch"): does not apply"
      failed=1
    }
  done
  exit $failed
fi

# Undoes the previous bug. An unchanged file keeps its time, so cargo does not build it again. A restored file gets the present time.
restore() {
  (cd "$source" && find . -type f -print) | while IFS= read -r file; do
    cmp -s "$source/$file" "$tree/$file" && continue
    mkdir -p "$(dirname "$tree/$file")"
    cp "$source/$file" "$tree/$file"
  done
}

# Prints the program of the tests $@.
build() {
  (cd "$tree" && "${CARGO:-cargo}" test --quiet --locked "${profile[@]}" "$@" --no-run \
    --target-dir "$here/build" --message-format json-render-diagnostics 2>"$here/build.log") |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1
}

# Plays the histories $2 to $3. The last line that begins with BROKEN names the broken rule.
play() {
  (cd "$tree" && SHRINK=skip FIRST_SEED=$2 HISTORIES=$(($3 - $2 + 1)) SEED='' timeout -k 5 "$seconds" "$1" --nocapture \
    histories_keep_the_rules) >"$here/play.log" 2>&1
}

# Runs the tests with an arranged case each.
test_singly() {
  (cd "$tree" && timeout -k 5 "$seconds" "$1" --skip histories_keep_the_rules --skip histories_on_models --skip a_seed_gives --skip differential::) \
    >"$here/play.log" 2>&1
}

# Runs the library's unit tests. No unit test runs a script.
test_units() {
  local units
  units=$(build --lib) && [[ -n $units ]] || return 0
  (cd "$tree" && timeout -k 5 "$seconds" "$units") >"$here/play.log" 2>&1
}

# Prints the first failed test of the last run, which ended with the exit status $1.
failed_test() {
  local name
  name=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$here/play.log" | head -1)
  echo "${name:-without a name: exit status $1}"
}

# Prints the result of the last run of histories, which ended with the exit status $2.
verdict() {
  local broken seed histories rule
  broken=$(grep -a '^BROKEN' "$here/play.log" | tail -1)
  if [[ -n $broken ]]; then
    IFS=$'\t' read -r _ seed histories rule <<<"$broken"
    row "$1" found "$seed" "$seed" "$rule"
  elif [[ $2 -eq 124 ]]; then
    row "$1" SURVIVED - '?' "$seconds s: $(head -1 "$patch")"
    failed=1
  else
    row "$1" found - - "no verdict (exit status $2)"
  fi
}

row() {
  printf '%-40s %-9s %7s %9s  %s\n' "$@" | tee -a "$table"
}

restore
failed=0
first=$((most < 500 ? most : 500))
export LUA_BEFORE='' LUA_AFTER=''
clean=$here/clean
program=$(build --test sim)
[[ -n $program ]] && cp "$program" "$clean" || { cat "$here/build.log"; exit 1; }
# Without a bug everything passes. Otherwise a failure would prove nothing.
play "$clean" 1 "$first" && test_singly "$clean" && [[ -n $(build --lib) ]] && test_units || {
  tail -n 40 "$here/build.log" "$here/play.log"
  echo "the simulator fails without any bug, or takes longer than MUTANT_SECONDS=$seconds"
  exit 1
}
row mutant result seed histories rule
for patch in "$source"/tests/sim/mutants/*.patch; do
  name=$(basename "$patch" .patch)
  [[ $name =~ $only ]] || continue
  if ! patch --quiet --directory "$tree" --strip 1 --forward --no-backup-if-mismatch <"$patch" >"$here/patch.log" 2>&1; then
    row "$name" 'NO PATCH' - - "$(head -1 "$here/patch.log")"
    failed=1
    restore
    continue
  fi
  LUA_BEFORE='' LUA_AFTER=''
  if script=$(sed -n 's|^+++ b/\(lua/.*\.lua\)$|\1|p' "$patch") && [[ -n $script ]]; then
    cp "$tree/$script" "$here/after.lua"
    LUA_BEFORE=$source/$script LUA_AFTER=$here/after.lua
    restore
    program=$clean
  else
    program=$(build --test sim)
    if [[ -n $program ]]; then
      # The build of another working tree may replace the program in the same folder.
      cp "$program" "$here/changed"
      program=$here/changed
    fi
  fi
  export LUA_BEFORE LUA_AFTER
  if [[ -z $program ]]; then
    row "$name" 'NO BUILD' - - "$(grep -m1 '^error' "$here/build.log")"
    failed=1
  elif play "$program" 1 "$first"; status=$?; [[ $status -ne 0 ]]; then
    verdict "$name" "$status"
  elif test_singly "$program"; status=$?; [[ $status -ne 0 ]]; then
    row "$name" found - - "test $(failed_test "$status")"
  elif [[ $most -gt $first ]] && { play "$program" "$((first + 1))" "$most"; status=$?; [[ $status -ne 0 ]]; }; then
    verdict "$name" "$status"
  elif [[ -z $script ]] && { test_units; status=$?; [[ $status -ne 0 ]]; }; then
    row "$name" found - - "unit test $(failed_test "$status")"
  else
    row "$name" SURVIVED - "$most" "$(head -1 "$patch")"
    failed=1
  fi
  restore
done
echo
awk 'NR > 1 { if ($2 == "found") found++; else left++ } END { printf "%d found, %d not\n", found, left }' "$table"
exit $failed
