# What is asked of a daemon, wherever it runs: target_inside runs a command beside it.
# shellcheck shell=bash

# http_get PATH: the page, or a failure.
http_get() {
  local options=(-fsS --max-time 10)
  if [ -n "${GENESIS_TLS_CA-}" ]; then options+=(--cacert "$GENESIS_TLS_CA"); fi
  if [ -n "${GENESIS_TOKEN_FILE-}" ]; then
    # Not as an argument, which every user of the machine may read.
    printf 'header = "Authorization: Bearer %s"\n' "$(<"$GENESIS_TOKEN_FILE")" |
      target_inside curl "${options[@]}" --config - "$HTTP$1"
    return
  fi
  target_inside curl "${options[@]}" "$HTTP$1" </dev/null
}

ctl() { target_inside genesisctl --server "$SERVER" "$@"; }

fact() { python3 "$PARTS/facts.py" "$1"; }

# metric NAME: the value of its first series; nothing when it is absent.
metric() {
  http_get /metrics | awk -v name="$1" '($1 == name || index($1, name "{") == 1) && !found { print $NF; found = 1 }'
}

# Ids of jobs that train in reduced precision now.
reduced_jobs() {
  ctl --output json jobs --state RUNNING --state STARTING </dev/null | fact reduced-jobs
}

wait_until_ready() {
  if [ -n "$DRY_RUN" ]; then return; fi
  local deadline=$((SECONDS + READY_TIMEOUT))
  until http_get /readyz >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] ||
      fail "the daemon is not ready $READY_TIMEOUT s after its restart. Look at $(target_log_hint)"
    sleep 0.1
  done
  note "ready: $HTTP/readyz answers 200"
}
