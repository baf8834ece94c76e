#!/usr/bin/env bash
# Print the Chromium that browser tests drive, installing it with apt where that is possible; print nothing without one.
# The headless shell is preferred: it is the same engine without a browser's windows, and takes a quarter less.
set -euo pipefail

find_it() {
  for name in "$@"; do
    if command -v "$name"; then return 0; fi
  done
  return 1
}

install() {
  [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || return 0
  echo "installing $1 with apt-get ..." >&2
  { timeout 600 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 900 apt-get install -y -qq "$1"; } > /dev/null 2>&1 || true
}

whole=(chromium chromium-browser google-chrome)
if find_it chromium-headless-shell; then exit 0; fi
# Not every system has it: where there is a whole Chromium, only what apt already knows of is asked for.
if apt-cache show chromium-headless-shell > /dev/null 2>&1 || ! find_it "${whole[@]}" > /dev/null; then
  install chromium-headless-shell
fi
if find_it chromium-headless-shell "${whole[@]}"; then exit 0; fi
install chromium
find_it "${whole[@]}" || echo "SKIPPED: browser tests, because no Chromium was found (apt-get install chromium)" >&2
