# Checks that the service really runs in FP32. Each check is a line; CHECKS_FAILED counts failed
# ones.
# shellcheck shell=bash

check() {
  local text=$1 expected=$2 found=$3
  # shellcheck disable=SC2053  # A pattern.
  if [[ $found == $expected ]]; then
    note "ok      $text: $found"
  else
    note "FAILED  $text: ${found:-nothing}, expected $expected"
    CHECKS_FAILED=$((CHECKS_FAILED + 1))
  fi
}

verify_fp32() {
  CHECKS_FAILED=0
  if [ -n "$DRY_RUN" ]; then
    note "would check: service, log, status, metrics, running jobs, a probe job"
    return
  fi
  check "service" active "$(target_running 2>&1 || true)"
  check "log" '*FP16 training disabled - using FP32*' "$(newest_log_line)"
  check "log" '*fp16_enabled: False*' "$(target_log 2000 2>&1 | grep 'fp16_enabled: ' | tail -n 1 || true)"
  check "/api/training/status fp16_enabled_runtime" false "$(http_get /api/training/status | fact fp16-enabled || true)"
  check "/metrics genesis_reduced_precision_enabled" 0 "$(metric genesis_reduced_precision_enabled || true)"
  check "jobs in reduced precision" none "$(jobs_or_none || true)"
  if [ -z "$NO_PROBE" ]; then probe; fi
}

# Prints the newest line of the log about the precision.
newest_log_line() {
  target_log 2000 2>&1 | grep -E 'FP16 training (disabled|enabled)|fp16_enabled: True' | tail -n 1 || true
}

# An adopted job leaves reduced precision at its next step, shortly after ready.
jobs_or_none() {
  local jobs deadline=$((SECONDS + 10))
  while jobs=$(reduced_jobs) && [ -n "$jobs" ] && [ "$SECONDS" -lt "$deadline" ]; do sleep 0.2; done
  say "${jobs:-none}" | tr '\n' ' ' | sed 's/ $//'
}

# Runs a small job to its end. Its priority takes a slot from a running job, which is checkpointed and queued
# again.
probe() {
  local id job
  id=probe-$(date +%s)-$$
  if ! ctl train --file - --job-id "$id" --watch <"$PARTS/probe.yaml" >/dev/null 2>&1; then
    note "the probe job $id did not succeed; genesisctl job $id says why"
  fi
  job=$(ctl --output json job "$id" </dev/null) || job='{}'
  check "probe job $id" "SUCCEEDED in FP32" "$(fact state <<<"$job") in $(fact mode <<<"$job")"
  forget_probe "$id" || note "the probe job $id could not be removed"
}

forget_probe() {
  local checkpoint
  for checkpoint in $(ctl --output json checkpoints "$1" </dev/null | fact checkpoints); do
    ctl checkpoint-delete "$checkpoint" </dev/null >/dev/null || return
  done
  ctl delete "$1" </dev/null >/dev/null
}
