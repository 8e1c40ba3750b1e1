# Service genesis-orchestrator of a docker-compose project.
# shellcheck shell=bash disable=SC2034  # Read by the procedures.

# shellcheck source=deploy/rollback/canary_of_host.sh
source "$PARTS/canary_of_host.sh"

SERVICE=genesis-orchestrator
DEFAULT_HTTP=http://127.0.0.1:8080
DEFAULT_SERVER=127.0.0.1:50051
REMOTE=yes

target_name() { say "service $SERVICE of $COMPOSE_FILE_NAME, $ENVIRONMENT_FILE"; }

# docker-compose, or docker's plugin of the same name.
compose() {
  if command -v docker-compose >/dev/null; then
    docker-compose --file "$COMPOSE_FILE_NAME" "$@"
  else
    docker compose --file "$COMPOSE_FILE_NAME" "$@"
  fi
}

target_found() {
  # Not grep -q, which ends before compose has written everything, which counts as a failure of
  # compose.
  [ -e "$COMPOSE_FILE_NAME" ] && compose config --services 2>/dev/null | grep -x "$SERVICE" >/dev/null
}

target_check() {
  [ -e "$COMPOSE_FILE_NAME" ] ||
    fail "--target compose: there is no $COMPOSE_FILE_NAME; name it with --compose-file"
  target_found || fail "--target compose: $COMPOSE_FILE_NAME has no service $SERVICE, or docker-compose does not run"
}

target_inside() { compose exec -T "$SERVICE" "$@"; }

# The containers read the file at each start.
target_gate() { gate_of_environment_file; }

target_set_gate() { run append_to_environment "ENABLE_FP16_TRAINING=$1"; }

target_restart() {
  # shellcheck disable=SC2046  # A list of names.
  run compose restart $(daemons)
}

# Prints the services that are daemons.
daemons() { compose config --services | grep -xE 'genesis-(orchestrator|workers)' | sort; }

target_kill() {
  # shellcheck disable=SC2046  # A list of names.
  run compose kill $(daemons)
}

target_running() { compose ps --status running --services | grep -x "$SERVICE" >/dev/null && say active; }

target_log() { compose logs --no-log-prefix --tail "$1" "$SERVICE"; }

target_log_hint() { say "docker-compose --file $COMPOSE_FILE_NAME logs $SERVICE"; }

target_collect() {
  collect "$1/environment.txt" redacted "$ENVIRONMENT_FILE"
  collect "$1/ps.txt" compose ps --all
  collect "$1/config.yaml" compose config
  collect "$1/logs/orchestrator.log" compose logs --no-log-prefix --tail 100000 "$SERVICE"
}
