# The procedures of docs/rollback.md.
# shellcheck shell=bash disable=SC2034  # GATE is read by the targets.

emergency() {
  begin_procedure "Emergency rollback" 7
  local running="checkpointed first"
  if [ -n "$FORCE" ]; then running="KILLED and go on from their last checkpoint"; fi
  confirm rollback "Every job goes to FP32: the gate is shut and the service restarted. Running jobs are $running."
  step "What the daemon says now"
  snapshot before
  step "Gate shut for this and every later start"
  GATE=false
  target_set_gate false
  step "Restart in FP32"
  if [ -n "$FORCE" ]; then target_kill; fi
  target_restart
  wait_until_ready
  step "Verify FP32"
  verify_fp32
  RECOVERED=$(elapsed "$PROCEDURE_BEGIN")
  note "in FP32 $RECOVERED after the beginning"
  conclude "$SEVERITY"
}

# Running jobs finish unchanged, new ones start in FP32; then a restart, when no job is disturbed.
gradual() {
  begin_procedure "Gradual rollback" 8
  confirm rollback "New attempts start in FP32 from now on; running jobs finish as they are, up to" \
    "$WAIT_MINUTES minutes; then the service is restarted with the gate shut."
  step "What the daemon says now"
  snapshot before
  step "New attempts in FP32"
  run ctl precision disable --running new-attempts --reason "gradual rollback: $REASON"
  GATE=false
  target_set_gate false
  step "Wait for the jobs that train in reduced precision"
  wait_for_reduced_jobs
  step "Restart in FP32"
  target_restart
  wait_until_ready
  # The environment closes the gate now, so the policy is no longer needed.
  run ctl precision allow --reason "gradual rollback is done: ENABLE_FP16_TRAINING=false holds the gate shut"
  step "Verify FP32"
  verify_fp32
  RECOVERED=$(elapsed "$PROCEDURE_BEGIN")
  conclude "$SEVERITY"
}

wait_for_reduced_jobs() {
  if [ -n "$DRY_RUN" ]; then
    note "would wait at most $WAIT_MINUTES minutes"
    return
  fi
  local jobs last='' deadline=$((SECONDS + WAIT_MINUTES * 60))
  while jobs=$(reduced_jobs | tr '\n' ' ') && [ -n "${jobs// /}" ]; do
    if [ "$jobs" != "$last" ]; then note "$(wc -w <<<"$jobs") left: $jobs"; fi
    last=$jobs
    if [ "$SECONDS" -ge "$deadline" ]; then
      note "$WAIT_MINUTES minutes are over; these are checkpointed at the restart and go on in FP32: $jobs"
      return
    fi
    sleep 1
  done
  note "none is left"
}

# The last three steps of both procedures.
conclude() {
  step "Logs, metrics, history"
  snapshot after
  collect_all
  step "Incident text"
  write_incident "$1"
  step "Pack"
  pack_post_mortem
  end_step
  finish
}

write_incident() {
  if [ -n "$DRY_RUN" ]; then
    note "would write $OUTPUT/incident.txt"
    return
  fi
  printf '%s' "$STEP_TIMES" >"$OUTPUT/steps.tsv"
  python3 "$PARTS/incident.py" --folder "$OUTPUT" --procedure "$PROCEDURE" --severity "$1" --target "$(target_name)" \
    --recovered "$RECOVERED" --reason "$REASON" --checks-failed "$CHECKS_FAILED" ${FORCE:+--forced} \
    ${DASHBOARD:+--dashboard "$DASHBOARD"} >"$OUTPUT/incident.txt"
  note "$OUTPUT/incident.txt"
}

finish() {
  if [ -n "$DRY_RUN" ]; then
    say "Nothing was changed."
  elif [ "${CHECKS_FAILED:-0}" -gt 0 ]; then
    fail "$CHECKS_FAILED checks FAILED; the service is not known to run in FP32. Look at $(target_log_hint)"
  else
    say "Done in $(elapsed "$PROCEDURE_BEGIN")."
  fi
}

status() {
  say "target       $TARGET: $(target_name)"
  say "service      $(target_running 2>&1 || true)"
  say "gate         ENABLE_FP16_TRAINING=$(target_gate || true) at the next start"
  say "running with $(http_get /api/training/status | fact fp16-reason || say 'no answer')"
  say "jobs in reduced precision: $(reduced_jobs | tr '\n' ' ' || true)"
  ctl stats </dev/null
}

verify() {
  begin_procedure "Verification" 1
  step "FP32 in service, log, status, metrics, jobs and a probe"
  verify_fp32
  end_step
  finish
}
