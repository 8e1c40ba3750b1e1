#!/usr/bin/env bash
# Runs the tests, from a bare machine: installs what is missing, builds, tests, lists the slowest.
# usage: deploy/test.sh [--all | arguments of ctest, e.g. -R http_server or -L unit]
#
# Without arguments: the tests with the labels unit and gate, and the nightly tests of folders that changed since
# the last full run. --all: every test; if all pass, the run is recorded in tests/last_full_run.txt.
set -euo pipefail
# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Prints "SECONDS NAME" of each test in a log of ctest.
test_seconds() {
  awk '/ +(Passed|\*\*\*[A-Z][a-z]+) +[0-9.]+ sec/ {
         for (i = 1; i <= NF; i++) if ($i == "Test" && $(i + 1) ~ /^#/) name = $(i + 2)
         print $(NF - 1), name
       }' "$1"
}

slowest() {
  say ""
  say "Slowest tests:"
  # Not head, which would end sort with a broken pipe.
  test_seconds "$1" | sort -rn | awk 'NR <= 10 { print $1, "s ", $2 }'
}

# Output of each test of the last run.
LAST_LOG=$GENESIS_ROOT/build/release/Testing/Temporary/LastTest.log

# Lists GoogleTests that took more than a second: the machine was busy, or they belong in tests/slow_tests.txt.
slow_units() {
  awk 'NR == FNR { known[$1]; next }
       /^\[       OK \] / && !($4 in known) { gsub(/[^0-9]/, "", $5); if ($5 + 0 > 1000) print "  " $5 / 1000 " s " $4 }' \
    "$GENESIS_ROOT/tests/slow_tests.txt" "$LAST_LOG" | listed "Unit tests of more than a second:"
}

# Lists tests that this machine cannot run, with the reason; they neither passed nor failed.
not_run() {
  awk '/^[0-9]+\/[0-9]+ Testing: / { name = $3 }
       /^\[  SKIPPED \] .* ms\)$/ { print "  " name " - " $4 }
       /^NOT RUN: / { sub(/^NOT RUN: /, ""); print "  " name " - " $0 }' "$LAST_LOG" | sort -u | listed "Not run here:"
}

# Prints its input below a title, if there is any.
listed() { awk -v title="$1" 'NR == 1 { print "\n" title } { print }'; }

# Prints the end of each failed test's output last, where a truncated log still has it.
failed() {
  awk -v shown=30 '
    /^[0-9]+\/[0-9]+ Testing: / { name = $3; lines = 0; inside = 1 }
    /^<end of output>/ { inside = 0 }
    /^\[ RUN      \]|^\[       OK \]/ { next }
    inside { line[lines++ % shown] = $0 }
    /^Test Failed/ {
      print "\nFailed: " name
      for (i = lines > shown ? lines - shown : 0; i < lines; ++i) print "  " line[i % shown]
    }' "$LAST_LOG"
}

# Folders, and a pattern of the nightly tests that a change of them adds to the gate.
NIGHTLY_OF_ROOM=(
  'trainer/compiled/ compiled'
  'trainer/distributed/ interop.test_rank|test_gang'
  'trainer/kernels/ linear_cross_entropy'
  'trainer/models/exported/ interop.test_exported|interop.test_layouts|interop.test_modules'
  'trainer/models/ interop.test_compiled'
  'trainer/optim/ interop.test_skipped_steps|interop.test_pure_formats'
  'trainer/precision/ interop.test_skipped_steps|interop.test_pure_formats'
  'python/src/genesis/exporting/ interop.test_(copies|export|held_out|layouts|modules)'
  'python/src/genesis/forward/ test_exporters'
  'python/src/genesis/ test_charts|test_python_client|test_world_model'
  'server/dashboard/ test_dashboard'
  'server/jobs/ test_kills|test_model'
  'server/launchers/ test_slurm|test_kubernetes|interop.test_launchers'
  'server/ledger/ test_kills|test_model|test_events'
  'server/rpc/ test_remote_workers|test_drain'
  'server/store/ test_kills|test_model|test_events'
  'server/sweeps/ test_optuna'
  'server/systemd/ test_systemd|test_units'
  'server/workers/ test_kills|test_gang|test_drain|test_pauses|test_remote_workers'
  'server/predictions/ test_predictions'
  'metrics/ test_alerts|test_dashboards'
  'client/include/ test_clients'
  'examples/agents.py test_agents'
  'examples/clients/ test_clients'
  'deploy/container/ test_container'
  'deploy/grafana/ test_dashboards'
  'deploy/kubernetes/ test_kubernetes'
  'deploy/package test_package|test_units'
  'deploy/prometheus/ test_alerts'
  'deploy/rollback test_rollback'
  'deploy/bundle test_bundle'
  'Dockerfile test_container'
)
FULL_RUN=tests/last_full_run.txt

# Prints a pattern of the nightly tests whose folders have not changed.
tests_left_out() {
  local base changed='' room names wanted='^$'
  base=$(awk '$1 == "commit" { print $2 }' "$GENESIS_ROOT/$FULL_RUN" 2>/dev/null || true)
  # A file in which only lines of comments differ has not changed.
  if [ -n "$base" ]; then
    changed=$(git -C "$GENESIS_ROOT" diff --no-renames --numstat -I '^[[:space:]]*(//|#)' "$base" 2>/dev/null | cut -f 3 || true)
  fi
  for room in "${NIGHTLY_OF_ROOM[@]}"; do
    if grep -q "^${room% *}" <<<"$changed"; then wanted+="|${room#* }"; fi
  done
  # ctest also lists the fixtures (make_...) that these tests need.
  names=$(ctest --preset release -N -L nightly | awk '/Test +#/ { print $NF }' | grep -v '^make_' | grep -Ev "$wanted" || true)
  printf '^(%s)$' "$(paste -sd '|' <<<"$names")"
}

# Prints the processor minutes per label, from ctest's summary.
minutes_per_label() {
  awk '/^Label Time Summary/ { inside = 1; next }
       inside && / sec\*proc / {
         for (i = 1; i <= NF; i++)
           if ($i == "=") printf "%-16s %6.1f min, %s tests\n", $1, $(i + 1) / 60, substr($(i + 3), 2)
       }' "$1"
}

record_full_run() {
  if [ -n "$(git -C "$GENESIS_ROOT" status --porcelain 2>/dev/null)" ]; then
    say "Not recorded in $FULL_RUN: the working tree has changes."
    return
  fi
  {
    printf 'commit   %s\n' "$(git -C "$GENESIS_ROOT" rev-parse --short HEAD)"
    printf 'date     %s\n' "$(date -u +%F)"
    printf 'machine  %s, %s cores\n' "$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)" "$(nproc)"
    minutes_per_label "$1"
  } >"$GENESIS_ROOT/$FULL_RUN"
  say "Recorded in $FULL_RUN."
}

main() {
  local selected=("$@") all=no
  "$GENESIS_ROOT/deploy/setup.sh" --test
  configure with-tests
  build all
  cd "$GENESIS_ROOT"
  if [ "${1-}" = --all ]; then
    all=yes
    selected=()
  elif [ $# = 0 ]; then
    selected=(-E "$(tests_left_out)")
  fi
  # ctest starts the longest tests first. Their costs in earlier runs outlive the build folder.
  local costs=build/release/Testing/Temporary/CTestCostData.txt kept=$GENESIS_CACHE/ctest_costs.txt
  if [ ! -e "$costs" ] && [ -e "$kept" ]; then
    mkdir -p "${costs%/*}"
    cp "$kept" "$costs"
  fi
  local log=$GENESIS_ROOT/build/release/ctest.log result=0
  # Runs more tests at once than there are processors, because many wait for daemons and machines.
  ctest --preset release --no-tests=error --parallel "$(($(nproc) * 3 / 2))" "${selected[@]}" | tee "$log" || result=$?
  if [ -e "$costs" ]; then cp "$costs" "$kept"; fi
  slowest "$log"
  say ""
  say "Minutes of a processor by label:"
  minutes_per_label "$log"
  slow_units
  not_run
  if [ "$result" -ne 0 ]; then failed; fi
  if [ "$result" = 0 ] && [ "$all" = yes ]; then record_full_run "$log"; fi
  exit "$result"
}

main "$@"
