#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fails when a C++ file is not as clang-format 14 writes it, or a source lacks the licence line.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t sources < <(git ls-files '*.h' '*.cc')
clang-format-14 --dry-run -Werror "${sources[@]}"
unlicensed=$(git ls-files '*.h' '*.cc' '*.py' '*.sh' '*.mjs' | xargs grep -L 'SPDX-License-Identifier: Apache-2.0' || true)
if [[ -n "$unlicensed" ]]; then
  echo "no SPDX line in:" $unlicensed >&2
  exit 1
fi
echo "format: ${#sources[@]} files as clang-format 14 writes them"
