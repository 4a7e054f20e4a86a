#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian 12 packages that building and testing need. Does nothing when all are there;
# uses sudo when not root; without either it prints the one line to run and exits 1.
# With --checks also what .ci/run adds: the analyser, the formatter, the fuzzer's runtime, a browser.
set -euo pipefail

packages=(
  cmake g++ make ninja-build pkg-config python3
  libcli11-dev libcpp-httplib-dev libfmt-dev libgmock-dev libgtest-dev libpcre2-dev libspdlog-dev libssl-dev
  libxsmm-dev libxxhash-dev nlohmann-json3-dev
)
if [[ "${1:-}" == "--checks" ]]; then
  packages+=(clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev curl prometheus chromium
    fonts-dejavu-core)
  # Node of any origin will do.
  command -v npm >/dev/null 2>&1 || packages+=(nodejs npm)
fi

missing=()
for package in "${packages[@]}"; do
  if ! dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed'; then
    missing+=("$package")
  fi
done
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi

print_line() {
  echo "$1 Run as root:" >&2
  echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
}

if [[ $(id -u) -eq 0 ]]; then
  as_root=()
elif command -v sudo >/dev/null 2>&1; then
  as_root=(sudo)
else
  print_line "Packages are missing and this user is neither root nor has sudo."
fi
echo "Installing: ${missing[*]}"
"${as_root[@]}" apt-get update -q || print_line "apt-get update failed."
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -q --no-install-recommends "${missing[@]}" || print_line "apt-get install failed."
