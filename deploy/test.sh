#!/usr/bin/env bash
# Runs all tests, from a bare machine: installs what is missing, builds, tests, lists the slowest.
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

# Lists tests that this machine cannot run, with the reason; they neither passed nor failed.
not_run() {
  local log=$GENESIS_ROOT/build/release/Testing/Temporary/LastTest.log
  if ! grep -qs '^NOT RUN: ' "$log"; then return; fi
  say ""
  say "Not run here:"
  awk '/^[0-9]+\/[0-9]+ Testing: / { name = $3 }
       /^NOT RUN: / { sub(/^NOT RUN: /, ""); print "  " name " - " $0 }' "$log" | sort -u
}

# Prints the end of each failed test's output last, where a truncated log still has it.
failed() {
  local log=$GENESIS_ROOT/build/release/Testing/Temporary/LastTest.log
  awk -v shown=30 '
    /^[0-9]+\/[0-9]+ Testing: / { name = $3; lines = 0; inside = 1 }
    /^<end of output>/ { inside = 0 }
    inside { line[lines++ % shown] = $0 }
    /^Test Failed/ {
      print "\nFailed: " name
      for (i = lines > shown ? lines - shown : 0; i < lines; ++i) print "  " line[i % shown]
    }' "$log"
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
  if [ "$result" -ne 0 ]; then failed; fi
  exit "$result"
}

main "$@"
