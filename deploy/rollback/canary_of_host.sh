# A canary of a service with one host, by systemd or Compose: the host is one part of a fleet. Its previous state is a
# comment in the environment file.
# shellcheck shell=bash disable=SC2034  # Read by the procedures.

CANARY_MARK='# rollback.sh canary: ENABLE_FP16_TRAINING was '

target_canary_start() {
  run append_to_environment "$CANARY_MARK$(target_gate)"
  run append_to_environment ENABLE_FP16_TRAINING=false
  run append_to_environment GENESIS_DEPLOYMENT=canary
  GATE=false
  target_restart
}

target_canary_wait() { wait_until_ready; }

target_canary_verify() { verify_fp32; }

target_canary_promote() {
  run append_to_environment ENABLE_FP16_TRAINING=false
  run append_to_environment GENESIS_DEPLOYMENT=stable
  GATE=false
  target_restart
}

target_canary_abort() {
  local before
  before=$(sed -n "s/^$CANARY_MARK//p" "$ENVIRONMENT_FILE" 2>/dev/null | tail -n 1)
  grep -qs "^$CANARY_MARK" "$ENVIRONMENT_FILE" ||
    fail "$ENVIRONMENT_FILE has no trace of a canary that was started here; nothing was changed"
  GATE=${before:-false}
  run append_to_environment "ENABLE_FP16_TRAINING=$GATE"
  run append_to_environment GENESIS_DEPLOYMENT=stable
  target_restart
}
