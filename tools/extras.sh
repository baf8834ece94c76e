#!/usr/bin/env bash
# Bring what a few tests want beside the rest, with apt where that is possible: libzbar, a reader of QR codes, and PgBouncer.
# Tell what is missing; those tests are skipped then.
set -uo pipefail

has_zbar() { ldconfig -p 2>/dev/null | grep -q libzbar; }
has_pgbouncer() { PATH=$PATH:/usr/sbin command -v pgbouncer >/dev/null; }

wanted=()
has_zbar || wanted+=(libzbar0)
has_pgbouncer || wanted+=(pgbouncer)
if ((${#wanted[@]} == 0)); then exit 0; fi

# Debian starts the services that it installs; nobody asked for one here.
policy=/usr/sbin/policy-rc.d
apt() {
  DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=60 "$@" \
    </dev/null >/dev/null 2>&1
}

if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  echo "extras: trying apt-get install ${wanted[*]}" >&2
  if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
  fi
  apt update && apt install -y --no-install-recommends "${wanted[@]}"
fi
has_zbar || echo "SKIPPED: reading QR codes with zbar, because libzbar was not found (apt-get install libzbar0)" >&2
has_pgbouncer || echo "SKIPPED: tests behind PgBouncer, because it was not found (apt-get install pgbouncer)" >&2
exit 0
