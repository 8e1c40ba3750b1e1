# The environment file of the service, /etc/genesis/environment: lines are only ever added, as operators do by hand.
# shellcheck shell=bash

# The last line of a variable wins, as systemd and the container's entry point read it.
gate_of_environment_file() {
  sed -n 's/^[[:space:]]*ENABLE_FP16_TRAINING=//p' "$ENVIRONMENT_FILE" 2>/dev/null | tail -n 1 | tr -d "\"'"
}

append_to_environment() {
  mkdir -p "$(dirname "$ENVIRONMENT_FILE")"
  # Readable for a container's user.
  [ -e "$ENVIRONMENT_FILE" ] || install -m 0644 /dev/null "$ENVIRONMENT_FILE"
  # A last line without its end would swallow ours.
  if [ -s "$ENVIRONMENT_FILE" ] && [ -n "$(tail -c 1 "$ENVIRONMENT_FILE")" ]; then say >>"$ENVIRONMENT_FILE"; fi
  say "$1" >>"$ENVIRONMENT_FILE"
  sync "$ENVIRONMENT_FILE"
}
