#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Shows that every patch in tests/mutants still applies: whether a test catches it is for
# scripts/run_mutants.sh, which takes too long to be run with every change.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
for patch in tests/mutants/*.patch; do
  git apply --check "$patch" || failed=1
done
if [[ $failed -ne 0 ]]; then
  echo "check_mutants: put the fault into the code as it is now, and its diff into the patch" >&2
  exit 1
fi
echo "mutants: $(ls tests/mutants/*.patch | wc -l) patches apply"
