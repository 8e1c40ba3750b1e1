#!/bin/sh
# Starts the given command with the environment file that operators append to, so that
#   echo "ENABLE_FP16_TRAINING=false" >> /etc/genesis/environment; docker-compose restart
# rolls back, although a restarted container keeps its original environment. The last line of a name
# wins, as in systemd. Either source can close the gate: the file cannot open a gate that the
# container's environment closes.
set -eu

FILE=${GENESIS_ENVIRONMENT_FILE:-/etc/genesis/environment}

if [ -e "$FILE" ] && [ ! -r "$FILE" ]; then
  # An unreadable file may contain a rollback, so the gate is closed.
  echo "entrypoint.sh: $FILE cannot be read by user $(id -u): reduced precision stays off." \
    "Make it readable: chmod 0644 $FILE" >&2
  export ENABLE_FP16_TRAINING=false
elif [ -r "$FILE" ]; then
  gate=${ENABLE_FP16_TRAINING-unset}
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
      '' | '#'* | ';'*) continue ;;
      [A-Za-z_]*=*) ;;
      *)
        echo "entrypoint.sh: $FILE: \"$line\" is not NAME=VALUE; it is passed over" >&2
        continue
        ;;
    esac
    name=${line%%=*}
    value=${line#*=}
    # One pair of quotes around a value is removed.
    case $value in
      \"*\") value=${value#\"} value=${value%\"} ;;
      \'*\') value=${value#\'} value=${value%\'} ;;
    esac
    case $name in
      *[!A-Za-z0-9_]*)
        echo "entrypoint.sh: $FILE: \"$name\" is no name of a variable; it is passed over" >&2
        continue
        ;;
    esac
    export "$name=$value"
  done <"$FILE"
  if [ "$gate" != unset ] && [ "$gate" != true ]; then export "ENABLE_FP16_TRAINING=$gate"; fi
fi

exec "$@"
