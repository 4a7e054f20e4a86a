#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs each fuzzer for a few seconds from its committed corpus; the canary must crash, so that a
# fuzzer that finds nothing is known to be able to.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: fuzz_smoke.sh BUILD_DIR [SECONDS]}
seconds=${2:-20}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

run() { # NAME CORPUS
  mkdir -p "$scratch/$1"
  "$build/bin/$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="$scratch/" "$scratch/$1" "$2"
}

# The same harness with a false assertion in a reachable place: it must die of just that.
run_canary() { # NAME CORPUS
  "$build/bin/$1_canary" -max_total_time="$seconds" -verbosity=0 -artifact_prefix="$scratch/" \
    "$2" >"$scratch/canary.log" 2>&1 || true
  if ! grep -q 'check failed' "$scratch/canary.log"; then
    echo "$1_canary did not die of its false assertion: the fuzzer is not looking" >&2
    tail -5 "$scratch/canary.log" >&2
    exit 1
  fi
}

for binary in "$build"/bin/*_fuzz; do
  name=$(basename "$binary")
  corpus=$(find src -type d -name "${name}_corpus")
  run "$name" "$corpus"
  if [[ -x "${binary}_canary" ]]; then
    run_canary "$name" "$corpus"
  fi
done
echo "fuzzers: clean; the canaries died as they must"
