# A host with genesis-trainer.service, whose environment is /etc/genesis/environment.
# shellcheck shell=bash disable=SC2034  # Read by the procedures.

# shellcheck source=deploy/rollback/canary_of_host.sh
source "$PARTS/canary_of_host.sh"

UNIT=genesis-trainer.service
STANDALONE=('genesis-worker@*.service' 'genesis-job@*.service')
DEFAULT_HTTP=http://127.0.0.1:8080
DEFAULT_SERVER=127.0.0.1:50051
REMOTE=''

target_name() { say "$UNIT, $ENVIRONMENT_FILE"; }

target_found() { [ -d /run/systemd/system ] && systemctl cat "$UNIT" >/dev/null 2>&1; }

target_check() {
  target_found || fail "--target systemd: there is no $UNIT here; install the package, or name another --target"
  [ -n "$DRY_RUN" ] || [ "$(id -u)" = 0 ] || fail "changing $UNIT needs root; run it with sudo"
}

target_inside() { "$@"; }

target_gate() { gate_of_environment_file; }

target_set_gate() {
  run append_to_environment "ENABLE_FP16_TRAINING=$1"
}

target_restart() {
  run systemctl restart "$UNIT"
  if [ -n "$(systemctl list-units --no-legend --state=active "${STANDALONE[@]}" 2>/dev/null)" ]; then
    run systemctl restart "${STANDALONE[@]}"
  fi
}

# Nothing is checkpointed; jobs resume from their last checkpoint.
target_kill() { run systemctl kill --signal=KILL "$UNIT"; }

target_running() { systemctl is-active "$UNIT"; }

target_log() { tail -n "$1" "$LOG_FILE"; }

target_log_hint() { say "$LOG_FILE and: journalctl -u $UNIT"; }

# Collects the data of this kind of target into the folder $1.
target_collect() {
  collect "$1/systemctl-status.txt" systemctl --no-pager --full status "$UNIT"
  collect "$1/systemctl-show.txt" systemctl --no-pager show "$UNIT"
  collect "$1/journal.txt" journalctl --no-pager --unit "$UNIT" --since "24 hours ago"
  collect "$1/environment.txt" redacted "$ENVIRONMENT_FILE"
  local file
  for file in "$(dirname "$LOG_FILE")"/*.log; do
    if [ -e "$file" ]; then collect "$1/logs/${file##*/}" cat "$file"; fi
  done
  if [ -e /var/log/syslog ]; then collect "$1/logs/syslog" cat /var/log/syslog; fi
}
