#!/usr/bin/env bash
# Rolls the training service back from reduced precision to FP32, and forward again; docs/rollback.md.
# shellcheck disable=SC2034  # Options are read by the parts.
set -euo pipefail
# HOME may be unset without a login, and lib.sh derives folders from it.
: "${HOME:=/root}"
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
PARTS=$HERE/rollback
# shellcheck source=deploy/lib.sh
source "$HERE/lib.sh"
for part in steps daemon environment_file verify post_mortem procedures reenable canary; do
  # shellcheck source=/dev/null
  source "$PARTS/$part.sh"
done

usage() {
  cat <<'USAGE'
usage: rollback.sh PROCEDURE [OPTION]...

Procedures:
  emergency        shut the gate, restart in FP32 (running jobs are checkpointed), verify, collect
  gradual          running jobs finish in reduced precision, new ones start in FP32; then the same
  canary ACTION    start, compare, promote or abort FP32 on a part of the service
  status           what is configured and what runs
  verify           is it FP32? Service, log, status, metrics, jobs, and a probe job
  re-enable        open the gate again, if the success criteria are met; exit code 3 if they are not

Where:
  --target KIND            systemd, kubernetes or compose (default: the one that is found)
  --http URL               HTTP of the daemon, as seen from beside it (default http://127.0.0.1:8080;
                           kubernetes: https)
  --server ADDRESS         gRPC of the daemon, likewise (default 127.0.0.1:50051; kubernetes:
                           unix:/tmp/genesis.sock); a token is taken from GENESIS_TOKEN_FILE
  --environment-file FILE  systemd, compose: default /etc/genesis/environment
  --log-file FILE          systemd: default /var/log/genesis/orchestrator.log
  --metrics-db FILE        default /var/lib/genesis/metrics.db
  --namespace NAME         kubernetes: default genesis
  --nodes "A B"            kubernetes, canary: the nodes of the canary
  --manifests FOLDER       kubernetes, canary: deploy/kubernetes of the sources
  --compose-file FILE      compose: default docker-compose.yml

How:
  --dry-run                print each step and change nothing
  --yes                    do not ask for the word
  --force                  emergency: kill instead of checkpoint; jobs go on from their last checkpoint
  --no-probe               verify without a probe job
  --wait-minutes N         gradual: time for running jobs to finish (default 20)
  --ready-timeout SECONDS  time for the service to come back (default 120)

For people:
  --reason TEXT            what went wrong; the incident text's IMPACT
  --severity P             P0, P1 or P2 (default P0 for emergency, P2 for gradual)
  --dashboard URL          for the incident text
  --output FOLDER          of the post-mortem (default /var/tmp/genesis-rollback-<time>)

Criteria of re-enable and canary compare:
  --prometheus URL         take the figures from there; else from genesisctl history
  --history FILE           CSV that genesisctl history --csv printed
  --stage S                staging, canary, 25, 50 or 100 (default 100)
  --days N                 days that have to be stable (default 7)
  --measure LABEL          only series with deployment=LABEL, stable or canary
  --hours N                canary compare: the hours looked back on (default 4)
  --now TIME               judge as of then, such as 2026-01-31T12:00:00Z

Exit codes:
  0  Done.
  1  A step or a check failed.
  2  Unusable option.
  3  re-enable: the criteria are not met.
USAGE
}

unusable() {
  printf 'rollback.sh: %s; see rollback.sh --help\n' "$*" >&2
  exit 2
}

defaults() {
  TARGET='' DRY_RUN='' YES='' FORCE='' NO_PROBE='' REASON='' SEVERITY='' DASHBOARD='' PROMETHEUS='' HISTORY=''
  DEPLOYMENT_LABEL='' NODES='' NOW='' STAGE=100 DAYS=7 HOURS=4 WAIT_MINUTES=20 READY_TIMEOUT=120 CHECKS_FAILED=0
  HTTP='' SERVER=${GENESIS_SERVER-}
  ENVIRONMENT_FILE=/etc/genesis/environment
  LOG_FILE=/var/log/genesis/orchestrator.log
  METRICS_DB=/var/lib/genesis/metrics.db
  NAMESPACE=genesis
  MANIFESTS=$HERE/kubernetes
  COMPOSE_FILE_NAME=docker-compose.yml
  OUTPUT=/var/tmp/genesis-rollback-$(date -u +%Y%m%dT%H%M%SZ)
}

# take_value OPTION VALUE
take_value() {
  case $1 in
    --target) TARGET=$2 ;;
    --http) HTTP=${2%/} ;;
    --server) SERVER=$2 ;;
    --environment-file) ENVIRONMENT_FILE=$2 ;;
    --log-file) LOG_FILE=$2 ;;
    --metrics-db) METRICS_DB=$2 ;;
    --namespace) NAMESPACE=$2 ;;
    --nodes) NODES=$2 ;;
    --compose-file) COMPOSE_FILE_NAME=$2 ;;
    --wait-minutes) WAIT_MINUTES=$(whole "$1" "$2") ;;
    --ready-timeout) READY_TIMEOUT=$(whole "$1" "$2") ;;
    --reason) REASON=$2 ;;
    --severity) SEVERITY=$(one_of "$1" "$2" P0 P1 P2) ;;
    --dashboard) DASHBOARD=$2 ;;
    --output) OUTPUT=$2 ;;
    --prometheus) PROMETHEUS=$2 ;;
    --history) HISTORY=$2 ;;
    --stage) STAGE=$(one_of "$1" "$2" staging canary 25 50 100) ;;
    --days) DAYS=$(whole "$1" "$2") ;;
    --measure) DEPLOYMENT_LABEL=$(one_of "$1" "$2" stable canary) ;;
    --manifests) MANIFESTS=${2%/} ;;
    --hours) HOURS=$(whole "$1" "$2") ;;
    --now) NOW=$2 ;;
    *) unusable "$1 is no option" ;;
  esac
}

whole() {
  [[ $2 =~ ^[0-9]{1,6}$ ]] || unusable "$1 is \"$2\"; accepted: a whole number"
  say "$2"
}

one_of() {
  local option=$1 value=$2 each
  shift 2
  for each in "$@"; do
    if [ "$value" = "$each" ]; then
      say "$value"
      return
    fi
  done
  unusable "$option is \"$value\"; accepted: $*"
}

parse() {
  WORDS=()
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) usage && exit 0 ;;
      --dry-run) DRY_RUN=yes ;;
      --yes) YES=yes ;;
      --force) FORCE=yes ;;
      --no-probe) NO_PROBE=yes ;;
      --*=*) take_value "${1%%=*}" "${1#*=}" ;;
      --*)
        [ $# -ge 2 ] || unusable "$1 needs a value"
        take_value "$1" "$2"
        shift
        ;;
      *) WORDS+=("$1") ;;
    esac
    shift
  done
  PROCEDURE=${WORDS[0]-}
}

choose_target() {
  local each
  if [ -z "$TARGET" ]; then
    for each in systemd compose kubernetes; do
      # shellcheck source=/dev/null
      if (source "$PARTS/target_$each.sh" && target_found); then TARGET=$each && break; fi
    done
    [ -n "$TARGET" ] || fail "no service was found: neither genesis-trainer.service, nor genesis-orchestrator in" \
      "$COMPOSE_FILE_NAME, nor deployment/genesis-orchestrator in namespace $NAMESPACE. Name one with --target"
  fi
  TARGET=$(one_of --target "$TARGET" systemd kubernetes compose) || exit 2
  # shellcheck source=/dev/null
  source "$PARTS/target_$TARGET.sh"
  HTTP=${HTTP:-$DEFAULT_HTTP}
  SERVER=${SERVER:-$DEFAULT_SERVER}
  target_check
}

main() {
  defaults
  parse "$@"
  case $PROCEDURE in
    emergency | gradual | canary | status | verify | re-enable) ;;
    '') usage >&2 && exit 2 ;;
    *) unusable "\"$PROCEDURE\" is no procedure; accepted: emergency, gradual, canary, status, verify, re-enable" ;;
  esac
  if [ "$PROCEDURE" != canary ] && [ ${#WORDS[@]} -gt 1 ]; then unusable "\"${WORDS[1]}\" is one word too many"; fi
  choose_target
  case $PROCEDURE in
    emergency) : "${SEVERITY:=P0}" ;;
    *) : "${SEVERITY:=P2}" ;;
  esac
  : "${REASON:=FP16 training is causing failures in production}"
  if [ -z "$DRY_RUN" ] && [[ $PROCEDURE == emergency || $PROCEDURE == gradual ]]; then
    mkdir -p "$OUTPUT"
    chmod 0700 "$OUTPUT"
  fi
  "${PROCEDURE//-/_}" "${WORDS[@]:1}"
}

main "$@"
