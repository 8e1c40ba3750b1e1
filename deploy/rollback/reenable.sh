# Opens the gate again if the criteria allow it; and the canary, which tries either way on a part.
# shellcheck shell=bash disable=SC2034  # GATE is read by the targets.

# Checks the criteria of the plan. If one is not met: exit code 3 and nothing is changed.
criteria() {
  local source=()
  if [ -n "$PROMETHEUS" ]; then
    source=(--prometheus "$PROMETHEUS")
  elif [ -n "$HISTORY" ]; then
    source=(--history "$HISTORY")
  else
    HISTORY=$(mktemp)
    trap 'rm -f "$HISTORY"' EXIT
    ctl history --csv --since "$((DAYS + 1))d" </dev/null >"$HISTORY" ||
      fail "genesisctl history did not answer, so there are no figures; give --prometheus URL or --history FILE"
    source=(--history "$HISTORY")
  fi
  python3 "$PARTS/criteria.py" "${source[@]}" --days "$DAYS" --stage "$STAGE" ${DEPLOYMENT_LABEL:+--deployment "$DEPLOYMENT_LABEL"} \
    ${NOW:+--now "$NOW"} | sed 's/^/            /'
}

re_enable() {
  begin_procedure "Re-enabling, stage $STAGE" 4
  step "Success criteria of the last $DAYS days"
  if ! criteria; then
    end_step
    say "Refused: nothing was changed. docs/rollback.md says what each criterion means." >&2
    exit 3
  fi
  confirm enable "The criteria are met. The gate is opened and the service restarted; running jobs are checkpointed first."
  step "Gate opened"
  GATE=true
  target_set_gate true
  step "Restart"
  target_restart
  wait_until_ready
  step "Verify"
  verify_enabled
  end_step
  finish
}

verify_enabled() {
  CHECKS_FAILED=0
  if [ -n "$DRY_RUN" ]; then return; fi
  check "service" active "$(target_running 2>&1 || true)"
  check "/api/training/status fp16_allowed" true "$(http_get /api/training/status | fact fp16-allowed || true)"
  check "/metrics genesis_reduced_precision_enabled" 1 "$(metric genesis_reduced_precision_enabled || true)"
  if [ "$CHECKS_FAILED" -gt 0 ]; then note "because: $(http_get /api/training/status | fact fp16-reason || true)"; fi
}
