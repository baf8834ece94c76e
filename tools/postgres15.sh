#!/usr/bin/env bash
# Print the directory of PostgreSQL 15's server programs, for the tests that run on the oldest supported version.
# Where there is none and apt can get it, it is installed. Without it, the output is empty and those tests are skipped.
set -uo pipefail

say() { echo "postgres15: $*" >&2; }

is_15() {
  [[ -x $1/initdb && -x $1/pg_ctl && -x $1/postgres ]] && [[ $("$1/postgres" --version 2>/dev/null) == *" 15."* ]]
}

find_15() {
  local on_path directory
  on_path=$(pg_config --bindir 2>/dev/null)
  for directory in "${ONCEWARD_TEST_PG15_BIN:-}" /usr/lib/postgresql/15/bin /usr/pgsql-15/bin \
    /opt/homebrew/opt/postgresql@15/bin /usr/local/opt/postgresql@15/bin "$on_path"; do
    if [[ -n $directory ]] && is_15 "$directory"; then
      echo "$directory"
      return 0
    fi
  done
  return 1
}

apt() {
  DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=60 "$@" \
    </dev/null >/dev/null 2>&1
}

install_15() {
  local settings=/etc/postgresql-common/createcluster.conf kept done=1
  apt update || return 1
  apt-cache show postgresql-15 >/dev/null 2>&1 || return 1
  apt install -y --no-install-recommends postgresql-common || return 1
  # Debian's package would create a cluster and start it on port 5432. The setting is put back afterwards.
  kept=$(mktemp) && cp -p "$settings" "$kept" || return 1
  echo "create_main_cluster = false" >"$settings"
  apt install -y --no-install-recommends postgresql-15 && done=0
  cp -p "$kept" "$settings" && rm -f "$kept"
  return $done
}

if ! find_15; then
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    say "not installed, and not installable here: its tests are skipped"
  elif say "not installed: trying apt-get install postgresql-15" && install_15 && find_15; then
    say "installed"
  else
    say "apt-get could not install it: its tests are skipped"
  fi
fi
exit 0
