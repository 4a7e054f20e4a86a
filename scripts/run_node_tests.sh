#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   scripts/run_node_tests.sh FOLDER [TESSERA [MODEL]]
#
# The tests of FOLDER against a running server: tests/sdk is other people's clients, tests/browser
# the page at / in Chromium (CHROMIUM=PATH, if it is not the system's; SHOTS=FOLDER, absolute, keeps
# pictures of the page). Wants Node 18 or newer and npm, and the packages of the folder's
# package-lock.json, which it fetches once.
set -euo pipefail
root=$(realpath "$(dirname "$0")/..")
TESSERA=$(realpath "${2:-$root/build/release/bin/tessera}")
MODEL=$(realpath "${3:-$root/models/harbour-2.8m-q8_0.gguf}")
export TESSERA MODEL
cd "$1"

# The lock file's hash is kept beside what was installed from it.
stamp=node_modules/.lock-sha256
wanted=$(sha256sum package-lock.json)
if [[ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ]]; then
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
  echo "$wanted" >"$stamp"
fi
node --test --test-reporter=spec ./*.test.mjs
