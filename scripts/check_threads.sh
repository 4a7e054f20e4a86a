#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Clang's thread-safety analysis over every source that uses an annotated lock. The `analyze` preset
# does the same for all sources, with clang-tidy.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t headers < <(git grep -lE 'GUARDED_BY|REQUIRES\(' -- 'src/*.h' | sed 's#^src/##')
pattern=$(printf '|%s' "${headers[@]}")
mapfile -t sources < <(git grep -lE "#include \"(${pattern:1})\"" -- 'src/*.cc' | grep -v '_test\.cc$')
for source in "${sources[@]}"; do
  clang++-14 -std=c++20 -march=x86-64-v3 -Isrc -fsyntax-only -Wall -Wextra -Wthread-safety -Werror \
    $(pkg-config --cflags cpp-httplib libpcre2-8 libxxhash) -DTESSERA_VERSION='""' "$source"
done
echo "threads: ${#sources[@]} sources, every guarded member is used under its lock"
