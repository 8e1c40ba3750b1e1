# The environment file of the service, /etc/genesis/environment: lines are only appended, as operators do.
# shellcheck shell=bash

# The last line of a variable wins, as in systemd and the container's entry point.
gate_of_environment_file() {
  sed -n 's/^[[:space:]]*ENABLE_FP16_TRAINING=//p' "$ENVIRONMENT_FILE" 2>/dev/null | tail -n 1 | tr -d "\"'"
}

append_to_environment() {
  mkdir -p "$(dirname "$ENVIRONMENT_FILE")"
  # Readable by a container's user.
  [ -e "$ENVIRONMENT_FILE" ] || install -m 0644 /dev/null "$ENVIRONMENT_FILE"
  # Without a newline at the end, the last line would absorb the new one.
  if [ -s "$ENVIRONMENT_FILE" ] && [ -n "$(tail -c 1 "$ENVIRONMENT_FILE")" ]; then say >>"$ENVIRONMENT_FILE"; fi
  say "$1" >>"$ENVIRONMENT_FILE"
  sync "$ENVIRONMENT_FILE"
}
