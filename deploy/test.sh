#!/usr/bin/env bash
# All tests, from a bare machine: installs what is missing, builds, tests, names the slowest.
# usage: deploy/test.sh [arguments of ctest, e.g. -R http_server or -L fast]
set -euo pipefail
# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

slowest() {
  say ""
  say "Slowest tests:"
  awk '/ +(Passed|\*\*\*[A-Z][a-z]+) +[0-9.]+ sec/ {
         for (i = 1; i <= NF; i++) if ($i == "Test" && $(i + 1) ~ /^#/) name = $(i + 2)
         print $(NF - 1), "s ", name
       }' "$1" | sort -rn | awk 'NR <= 10'  # head would end sort by a broken pipe.
}

# What this machine forbids is neither passed nor failed: named with its reason.
not_run() {
  local log=$GENESIS_ROOT/build/release/Testing/Temporary/LastTest.log
  if ! grep -qs '^NOT RUN: ' "$log"; then return; fi
  say ""
  say "Not run here:"
  awk '/^[0-9]+\/[0-9]+ Testing: / { name = $3 }
       /^NOT RUN: / { sub(/^NOT RUN: /, ""); print "  " name " - " $0 }' "$log" | sort -u
}

main() {
  "$GENESIS_ROOT/deploy/setup.sh" --test
  configure with-tests
  build all
  cd "$GENESIS_ROOT"
  local log=$GENESIS_ROOT/build/release/ctest.log result=0
  ctest --preset release --no-tests=error --parallel "$(nproc)" "$@" | tee "$log" || result=$?
  slowest "$log"
  not_run
  exit "$result"
}

main "$@"
