# FP32 on a part of the service, beside the rest: `compare` shows both, and operators decide.
# shellcheck shell=bash

canary() {
  case ${1-} in
    start | promote | abort) "canary_$1" ;;
    compare) canary_compare ;;
    *) unusable "canary action \"${1-}\"; accepted: start, compare, promote, abort" ;;
  esac
}

canary_start() {
  begin_procedure "Canary: FP32 on a part" 3
  confirm canary "This part of the service is restarted in FP32 with the label deployment=\"canary\"; running jobs are" \
    "checkpointed first."
  step "FP32 for the canary"
  target_canary_start
  step "It runs"
  target_canary_wait
  step "Verify FP32"
  target_canary_verify
  end_step
  finish
}

# Ends reduced precision on the rest too.
canary_promote() {
  begin_procedure "Canary: FP32 everywhere" 3
  confirm promote "The canary's FP32 becomes that of the whole service; what changes is restarted."
  step "FP32 for all"
  target_canary_promote
  step "Ready"
  wait_until_ready
  step "Verify FP32"
  verify_fp32
  end_step
  finish
}

canary_abort() {
  begin_procedure "Canary: as it was before" 2
  confirm abort "The canary ends; its part of the service is restarted as it was before."
  step "The gate as it was"
  target_canary_abort
  step "Ready"
  wait_until_ready
  end_step
  finish
}

canary_compare() {
  [ -n "$PROMETHEUS" ] || unusable "canary compare needs --prometheus URL, for it compares two services"
  python3 "$PARTS/compare.py" --prometheus "$PROMETHEUS" --hours "$HOURS" ${NOW:+--now "$NOW"}
}
