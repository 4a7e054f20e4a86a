#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Puts known faults back, one at a time, and shows that a test catches each.
#
#   scripts/run_mutants.sh              all of tests/mutants/*.patch
#   scripts/run_mutants.sh 003 slab     those whose name contains one of the words
#
# A mutant is a patch under lines that say what it is:
#
#   # test: ledger_test                 the test binary that must fail; may have arguments
#   # class: a pinned entry is evicted  the fault, in words
#   diff --git ...
#
# The tracked files as they are now, committed or not, are checked out in build/mutants/tree, a
# worktree with a build folder of its own that stays, so a mutant costs the files it touches, a link
# and its test. Each binary must pass before its first mutant. Exits 1 when a mutant survives, does
# not apply or does not build.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
tree=$root/build/mutants/tree
log=$root/build/mutants/log
test_seconds=120
mkdir -p build/mutants

declare -a patches=()
for patch in tests/mutants/*.patch; do
  [[ $# -eq 0 ]] && patches+=("$patch")
  for word in "$@"; do
    if [[ $(basename "$patch") == *"$word"* ]]; then
      patches+=("$patch")
      break
    fi
  done
done
if [[ ${#patches[@]} -eq 0 ]]; then
  echo "run_mutants: no patch in tests/mutants is named like: $*" >&2
  exit 1
fi

git update-index -q --refresh || true  # or stash fails where only a time has changed
snapshot=$(git stash create)
snapshot=${snapshot:-$(git rev-parse HEAD)}
if ! git -C "$tree" rev-parse --git-dir >/dev/null 2>&1 ||
  [[ $(git -C "$tree" rev-parse --show-toplevel) != "$tree" ]]; then
  git worktree prune
  git worktree add --quiet --detach --force "$tree" "$snapshot"
fi
restore() { git -C "$tree" checkout --quiet --force --detach "$snapshot"; }
trap restore EXIT
restore

if [[ ! -f $tree/build/release/build.ninja ]]; then
  launcher=$(command -v ccache || true)
  (cd "$tree" && cmake --preset release -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
    ${launcher:+-DCMAKE_CXX_COMPILER_LAUNCHER="$launcher"}) >"$log" 2>&1 ||
    { cat "$log"; exit 1; }
fi

field() { sed -n "s/^# $2: *//p" "$1" | head -1; }
build() { cmake --build "$tree/build/release" -j "$(nproc)" --target "$1" >"$log" 2>&1; }
run() {  # a binary and its arguments
  (cd "$tree/build/release/bin" && exec timeout "$test_seconds" ./"$@") >"$log" 2>&1
}
row() { printf '%-38s %-18s %-10s %4s s  %s\n' "$@"; }

declare -A clean=()
failures=0
row mutant test result time "what failed, or the fault that nothing saw"
for patch in "${patches[@]}"; do
  name=$(basename "$patch" .patch)
  class=$(field "$patch" class)
  read -r -a command <<<"$(field "$patch" test)"
  if [[ ${#command[@]} -eq 0 || -z $class ]]; then
    row "$name" - malformed 0 "wants '# test:' and '# class:' lines"
    failures=$((failures + 1))
    continue
  fi
  binary=${command[0]}
  if [[ -z ${clean[${command[*]}]:-} ]]; then
    restore
    if ! build "$binary" || ! run "${command[@]}"; then
      tail -40 "$log"
      echo "run_mutants: ${command[*]} does not pass without a mutant" >&2
      exit 1
    fi
    clean[${command[*]}]=1
  fi
  restore
  start=$SECONDS
  status=0
  if ! git -C "$tree" apply "$root/$patch" 2>"$log"; then
    result="stale" why=$(head -1 "$log")
  elif ! build "$binary"; then
    result="no build" why=$(grep -m1 -E 'error|FAILED' "$log" || true)
  else
    run "${command[@]}" 2>/dev/null || status=$?  # the shell would tell of each abort
    result="caught" why=$(grep -m1 -oP '(?<=^\[  FAILED  \] )[^ ,]+|check failed.*' "$log" || true)
    [[ $status -eq 124 ]] && why="did not end in $test_seconds s"
    [[ $status -eq 0 ]] && result="SURVIVED" why=$class
  fi
  [[ $result == caught ]] || failures=$((failures + 1))
  row "$name" "$binary" "$result" $((SECONDS - start)) "$why"
done

echo "mutants: ${#patches[@]}, $((${#patches[@]} - failures)) caught"
[[ $failures -eq 0 ]]
