# Requests to a daemon, wherever it runs: target_inside runs a command beside it.
# shellcheck shell=bash

# http_get PATH: prints the page, or fails.
http_get() {
  # A container's own environment may name a proxy.
  local options=(-fsS --max-time 10 --noproxy "localhost,127.0.0.1,::1")
  if [ -n "${GENESIS_TLS_CA-}" ] && [ -z "$REMOTE" ]; then options+=(--cacert "$GENESIS_TLS_CA"); fi
  # The certificate's name does not matter if only the daemon's own machine is called.
  if [[ $HTTP == https://127.0.0.1:* ]]; then options+=(--insecure); fi
  if [ -n "${GENESIS_TOKEN_FILE-}" ]; then
    # Not passed as an argument, which every user of the machine can read.
    printf 'header = "Authorization: Bearer %s"\n' "$(<"$GENESIS_TOKEN_FILE")" |
      target_inside curl "${options[@]}" --config - "$HTTP$1"
    return
  fi
  target_inside curl "${options[@]}" "$HTTP$1" </dev/null
}

# The token is sent first on stdin, because no other program of that machine may read it.
ctl() {
  if [ -z "$REMOTE" ] || [ -z "${GENESIS_TOKEN_FILE-}" ]; then
    target_inside genesisctl --server "$SERVER" "$@"
    return
  fi
  # shellcheck disable=SC2016  # The remote shell expands it.
  { say "$(<"$GENESIS_TOKEN_FILE")" && cat; } |
    target_inside sh -c 'IFS= read -r GENESIS_TOKEN && export GENESIS_TOKEN && exec "$@"' sh \
      genesisctl --server "$SERVER" "$@"
}

fact() { python3 "$PARTS/facts.py" "$1"; }

# metric NAME: prints the value of its first series; nothing if it is absent.
metric() {
  http_get /metrics | awk -v name="$1" '($1 == name || index($1, name "{") == 1) && !found { print $NF; found = 1 }'
}

# Prints the ids of jobs that currently train in reduced precision.
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
