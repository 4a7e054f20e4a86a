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

run gguf_fuzz src/compute/gguf/gguf_fuzz_corpus
run tokenizer_fuzz src/compute/tokenizer/tokenizer_fuzz_corpus

if "$build/bin/gguf_fuzz_canary" -max_total_time="$seconds" -verbosity=0 \
  -artifact_prefix="$scratch/" src/compute/gguf/gguf_fuzz_corpus >"$scratch/canary.log" 2>&1; then
  echo "the canary did not crash: the fuzzer is not looking" >&2
  exit 1
fi
echo "fuzzers: clean; the canary crashed as it must"
