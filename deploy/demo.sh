#!/usr/bin/env bash
# From a bare machine to a trained model: installs, builds, starts the daemon, trains on recorded
# Pendulum trajectories and prints the results.
set -euo pipefail
# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'USAGE'
usage: deploy/demo.sh [--data-dir DIR] [--grpc-port N] [--http-port N] [--keep]

  --data-dir DIR   jobs, checkpoints, log and datasets of the daemon (default ./genesis-data)
  --grpc-port N    default 50051
  --http-port N    default 8080
  --keep           leave the daemon running at the end, also when nobody is at a terminal

At a terminal the daemon stays up until Ctrl-C, so that you can look around; else it is stopped.
ENABLE_FP16_TRAINING=true lets the job run in reduced precision; it is passed on to the daemon.
USAGE
}

port_is_free() {
  ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

need_port() {
  local what=$1 port=$2 option=$3
  if ! [[ $port =~ ^[0-9]{1,5}$ ]] || [ "$port" -lt 1 ] || [ "$port" -gt 65535 ]; then
    fail "$option $port: expected a port, 1 to 65535"
  fi
  port_is_free "$port" || fail "port $port on 127.0.0.1, for $what, is taken by another program." \
    "Stop it (\`ss -ltnp\` names it), or choose another port: deploy/demo.sh $option $((port + 1))"
}

start_daemon() {
  mkdir -p "$DATA_DIR/datasets"
  cp "$GENESIS_ROOT"/examples/trajectories/*.npz "$DATA_DIR/datasets/"
  "$BIN/genesisd" --data-dir "$DATA_DIR" --grpc-listen "$GRPC" --http-listen "$HTTP" \
    >"$DATA_DIR/demo.log" 2>&1 &
  DAEMON=$!
}

# SIGTERM is a clean drain: running jobs write a checkpoint first.
stop_daemon() {
  if [ -z "${DAEMON-}" ]; then return; fi
  say "Stopping the daemon (process $DAEMON)."
  kill -TERM "$DAEMON" 2>/dev/null || true
  wait "$DAEMON" || say "genesisd ended with exit code $?; its log: $DATA_DIR/demo.log"
  DAEMON=
}

wait_until_ready() {
  local deadline=$((SECONDS + 120))
  until curl -fsS --max-time 2 "http://$HTTP/readyz" >/dev/null 2>&1; do
    if ! kill -0 "$DAEMON" 2>/dev/null; then
      DAEMON=
      tail -n 20 "$DATA_DIR/demo.log" >&2
      fail "genesisd ended while it started; the end of its log is above"
    fi
    if [ "$SECONDS" -ge "$deadline" ]; then
      curl -sS --max-time 2 "http://$HTTP/readyz" >&2 || true
      fail "genesisd is not ready after 120 s; its reasons are above, its log is $DATA_DIR/demo.log"
    fi
    sleep 0.2
  done
}

train() {
  "$BIN/genesisctl" --server "$GRPC" train -f "$GENESIS_ROOT/examples/pendulum.yaml" --watch
}

newest_job() {
  curl -fsS "http://$HTTP/api/training/status" |
    /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["recent_jobs"][0]["id"])'
}

report() {
  say ""
  "$BIN/genesisctl" --server "$GRPC" --output json job "$(newest_job)" |
    /usr/bin/python3 "$GENESIS_ROOT/deploy/demo_report.py"
  say "In the log:"
  grep -rhE --include='*.log' 'fp16_enabled|FP16 training' "$DATA_DIR" | sort -u | tail -n 3 | sed 's/^/  /' || true
  cat <<LOOK

Look around:
  curl http://$HTTP/api/training/status
  curl http://$HTTP/api/training/stats
  curl http://$HTTP/metrics
LOOK
}

parse() {
  DATA_DIR=$PWD/genesis-data
  local grpc_port=50051 http_port=8080
  KEEP=no
  while [ $# -gt 0 ]; do
    case $1 in
      --data-dir | --grpc-port | --http-port)
        [ $# -ge 2 ] || fail "$1 needs a value"
        case $1 in
          --data-dir) DATA_DIR=$(realpath -m -- "$2") ;;
          --grpc-port) grpc_port=$2 ;;
          --http-port) http_port=$2 ;;
        esac
        shift
        ;;
      --keep) KEEP=yes ;;
      *) help_or_unknown "$1" ;;
    esac
    shift
  done
  need_port gRPC "$grpc_port" --grpc-port
  need_port HTTP "$http_port" --http-port
  [ "$grpc_port" != "$http_port" ] || fail "gRPC and HTTP cannot share port $grpc_port"
  GRPC=127.0.0.1:$grpc_port
  HTTP=127.0.0.1:$http_port
}

main() {
  BIN=$GENESIS_ROOT/build/release/bin
  parse "$@"
  "$GENESIS_ROOT/deploy/setup.sh"
  configure as-before
  build genesisd genesis-worker genesisctl
  trap stop_daemon EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  start_daemon
  wait_until_ready
  train
  report
  if [ "$KEEP" = yes ]; then
    say ""
    say "The daemon runs on as process $DAEMON; stop it with: kill $DAEMON"
    trap - EXIT
  elif [ -t 0 ]; then
    say ""
    say "The daemon runs until you press Ctrl-C."
    trap 'exit 0' INT
    wait "$DAEMON" || true
  fi
}

main "$@"
