#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   tests/sdk/run.sh [TESSERA [MODEL]]
#
# Other people's clients against a running server. Wants Node 18 or newer and npm, and the packages
# of package-lock.json, which it fetches once.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
TESSERA=$(realpath "${1:-$here/../../build/release/bin/tessera}")
MODEL=$(realpath "${2:-$here/../../models/harbour-2.8m-q8_0.gguf}")
export TESSERA MODEL
cd "$here"

# The lock file's hash is kept beside what was installed from it.
stamp=node_modules/.lock-sha256
wanted=$(sha256sum package-lock.json)
if [[ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ]]; then
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
  echo "$wanted" >"$stamp"
fi
node --test --test-reporter=spec ./*.test.mjs
