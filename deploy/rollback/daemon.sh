# What is asked of a daemon, wherever it runs: target_inside runs a command beside it.
# shellcheck shell=bash

# http_get PATH: the page, or a failure.
http_get() {
  # Of a container: its own environment may name a proxy.
  local options=(-fsS --max-time 10 --noproxy "localhost,127.0.0.1,::1")
  if [ -n "${GENESIS_TLS_CA-}" ] && [ -z "$REMOTE" ]; then options+=(--cacert "$GENESIS_TLS_CA"); fi
  # Whose certificate it is does not matter where only the daemon's own machine is asked.
  if [[ $HTTP == https://127.0.0.1:* ]]; then options+=(--insecure); fi
  if [ -n "${GENESIS_TOKEN_FILE-}" ]; then
    # Not as an argument, which every user of the machine may read.
    printf 'header = "Authorization: Bearer %s"\n' "$(<"$GENESIS_TOKEN_FILE")" |
      target_inside curl "${options[@]}" --config - "$HTTP$1"
    return
  fi
  target_inside curl "${options[@]}" "$HTTP$1" </dev/null
}

# The token goes ahead on stdin, for no other program of that machine may read it, and its files are not ours.
ctl() {
  if [ -z "$REMOTE" ] || [ -z "${GENESIS_TOKEN_FILE-}" ]; then
    target_inside genesisctl --server "$SERVER" "$@"
    return
  fi
  # shellcheck disable=SC2016  # The shell over there expands it.
  { say "$(<"$GENESIS_TOKEN_FILE")" && cat; } |
    target_inside sh -c 'IFS= read -r GENESIS_TOKEN && export GENESIS_TOKEN && exec "$@"' sh \
      genesisctl --server "$SERVER" "$@"
}

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
