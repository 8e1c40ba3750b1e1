# deployment/genesis-orchestrator in a namespace; every command uses kubectl.
# shellcheck shell=bash disable=SC2034  # Read by the procedures.

DEPLOYMENT=deployment/genesis-orchestrator
DEFAULT_HTTP=https://127.0.0.1:8080
DEFAULT_SERVER=unix:/tmp/genesis.sock
REMOTE=yes

target_name() { say "$DEPLOYMENT in namespace $NAMESPACE"; }

kube() { kubectl --namespace "$NAMESPACE" "$@"; }

target_found() { command -v kubectl >/dev/null && kube get "$DEPLOYMENT" >/dev/null 2>&1; }

target_check() {
  command -v kubectl >/dev/null || fail "--target kubernetes: there is no kubectl in PATH; install it"
  target_found || fail "--target kubernetes: kubectl finds no $DEPLOYMENT in namespace $NAMESPACE;" \
    "name another --namespace, or set KUBECONFIG"
}

target_inside() { kube exec -i "$DEPLOYMENT" -- "$@"; }

# Prints the gate of the pod: its own variable, otherwise that of the ConfigMap.
target_gate() {
  local own
  own=$(kube get "$DEPLOYMENT" -o "jsonpath={.spec.template.spec.containers[*].env[?(@.name=='ENABLE_FP16_TRAINING')].value}")
  if [ -z "$own" ]; then
    own=$(kube get configmap genesis-config -o 'jsonpath={.data.ENABLE_FP16_TRAINING}' 2>/dev/null) || true
  fi
  say "$own"
}

# Changes the ConfigMap too, so that a later apply of the manifests does not open the gate again.
target_set_gate() {
  run kubectl --namespace "$NAMESPACE" patch configmap genesis-config --type merge \
    --patch "{\"data\":{\"ENABLE_FP16_TRAINING\":\"$1\"}}"
}

# `set env` changes the pod's template and so starts a rollout; if it changes nothing, restarts explicitly.
target_restart() {
  local before
  before=$(kube get "$DEPLOYMENT" -o 'jsonpath={.metadata.generation}')
  run kubectl --namespace "$NAMESPACE" set env "$DEPLOYMENT" "ENABLE_FP16_TRAINING=$GATE"
  if [ "$before" = "$(kube get "$DEPLOYMENT" -o 'jsonpath={.metadata.generation}')" ]; then
    run kubectl --namespace "$NAMESPACE" rollout restart "$DEPLOYMENT"
  fi
  if kube get deployment/genesis-workers >/dev/null 2>&1; then
    run kubectl --namespace "$NAMESPACE" rollout restart deployment/genesis-workers
  fi
  run kubectl --namespace "$NAMESPACE" rollout status "$DEPLOYMENT" --timeout="${READY_TIMEOUT}s"
}

target_kill() {
  run kubectl --namespace "$NAMESPACE" delete pods -l app=genesis-training --force --grace-period=0
}

target_running() {
  kube get "$DEPLOYMENT" -o 'jsonpath={.status.readyReplicas}' | grep -x '[1-9][0-9]*' >/dev/null && say active
}

target_log() { kube logs "$DEPLOYMENT" --tail="$1"; }

target_log_hint() { say "kubectl --namespace $NAMESPACE logs $DEPLOYMENT"; }

target_collect() {
  collect "$1/pods.txt" kube get pods -o wide
  collect "$1/deployment.yaml" kube get "$DEPLOYMENT" -o yaml
  collect "$1/configmap.yaml" kube get configmap genesis-config -o yaml
  collect "$1/events.txt" kube get events --sort-by=.lastTimestamp
  collect "$1/logs/orchestrator.log" kube logs "$DEPLOYMENT" --tail=100000
  collect "$1/logs/previous.log" kube logs "$DEPLOYMENT" --previous --tail=100000
}

CANARY=genesis-orchestrator-canary

need_nodes() {
  [ -n "$NODES" ] || unusable "canary on kubernetes needs --nodes \"A B\": the tenth of the nodes that it runs on"
}

target_canary_start() {
  need_nodes
  [ -d "$MANIFESTS/overlays/canary" ] ||
    fail "$MANIFESTS/overlays/canary is missing; name the folder deploy/kubernetes of the sources with --manifests"
  # shellcheck disable=SC2086  # A list of names.
  run kubectl label nodes $NODES fp16=disabled --overwrite
  run kubectl apply -k "$MANIFESTS/overlays/canary"
}

target_canary_wait() {
  run kubectl --namespace "$NAMESPACE" rollout status "deployment/$CANARY" --timeout="${READY_TIMEOUT}s"
}

target_canary_verify() {
  DEPLOYMENT=deployment/$CANARY
  verify_fp32
}

target_canary_promote() {
  need_nodes
  GATE=false
  target_set_gate false
  target_restart
  target_canary_remove
}

# The stable daemons were not changed, except for the nodes that they avoid.
target_canary_abort() {
  need_nodes
  target_canary_remove
}

target_canary_remove() {
  run kubectl --namespace "$NAMESPACE" delete "deployment/$CANARY" "service/$CANARY" --ignore-not-found
  # shellcheck disable=SC2086  # A list of names.
  run kubectl label nodes $NODES fp16-
}
