# Service genesis-orchestrator of a docker-compose project.
# shellcheck shell=bash disable=SC2034  # Read by the procedures.

SERVICE=genesis-orchestrator
DEFAULT_HTTP=http://127.0.0.1:8080
DEFAULT_SERVER=127.0.0.1:50051
REMOTE=yes

target_name() { say "service $SERVICE of $COMPOSE_FILE_NAME"; }

# docker-compose, or docker's plugin of the same name.
compose() {
  if command -v docker-compose >/dev/null; then
    docker-compose --file "$COMPOSE_FILE_NAME" "$@"
  else
    docker compose --file "$COMPOSE_FILE_NAME" "$@"
  fi
}

target_found() {
  [ -e "$COMPOSE_FILE_NAME" ] && compose config --services 2>/dev/null | grep -qx "$SERVICE"
}

target_check() {
  [ -e "$COMPOSE_FILE_NAME" ] ||
    fail "--target compose: there is no $COMPOSE_FILE_NAME; name it with --compose-file"
  target_found || fail "--target compose: $COMPOSE_FILE_NAME has no service $SERVICE, or docker-compose does not run"
}

target_inside() { compose exec -T "$SERVICE" "$@"; }

compose_environment() { say "$(dirname "$COMPOSE_FILE_NAME")/.env"; }

target_gate() {
  sed -n 's/^[[:space:]]*ENABLE_FP16_TRAINING=//p' "$(compose_environment)" 2>/dev/null | tail -n 1 | tr -d "\"'"
}

target_set_gate() {
  local file
  file=$(compose_environment)
  # One line: of two of a name not every version takes the last.
  run sed -i '/^[[:space:]]*ENABLE_FP16_TRAINING=/d' "$(touch_file "$file")"
  run append_line "$file" "ENABLE_FP16_TRAINING=$1"
}

touch_file() {
  if [ -z "$DRY_RUN" ]; then touch "$1"; fi
  say "$1"
}

append_line() {
  if [ -s "$1" ] && [ -n "$(tail -c 1 "$1")" ]; then say >>"$1"; fi
  say "$2" >>"$1"
}

# `restart` alone keeps the environment that the container was made with.
target_restart() { run compose up --detach --no-deps --force-recreate "$SERVICE"; }

target_kill() { run compose kill "$SERVICE"; }

target_running() { compose ps --status running --services | grep -qx "$SERVICE" && say active; }

target_log() { compose logs --no-log-prefix --tail "$1" "$SERVICE"; }

target_log_hint() { say "docker-compose --file $COMPOSE_FILE_NAME logs $SERVICE"; }

target_collect() {
  collect "$1/ps.txt" compose ps --all
  collect "$1/config.yaml" compose config
  collect "$1/logs/orchestrator.log" compose logs --no-log-prefix --tail 100000 "$SERVICE"
}
