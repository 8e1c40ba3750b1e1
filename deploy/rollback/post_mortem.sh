# The post-mortem folder: the state of the daemon before and after, and all related data.
# shellcheck shell=bash

# collect FILE COMMAND...: saves its output; a failure adds a line to NOT_COLLECTED.
collect() {
  local file=$1
  shift
  mkdir -p "$(dirname "$file")"
  if ! "$@" >"$file" 2>"$file.error" </dev/null; then
    printf '%s: %s: %s\n' "${file#"$OUTPUT"/}" "$*" "$(tail -n 1 "$file.error")" >>"$OUTPUT/NOT_COLLECTED"
    if [ ! -s "$file" ]; then rm -f "$file"; fi
  fi
  rm -f "$file.error"
}

# Removes the values of tokens, keys and passwords.
redacted() { sed -E 's/^([^=#]*(TOKEN|SECRET|PASSWORD|KEY)[^=]*)=.*/\1=(removed)/' "$1"; }

# snapshot NAME: saves the daemon's current state; short, because an emergency waits for it.
snapshot() {
  if [ -n "$DRY_RUN" ]; then
    note "would keep status, statistics, metrics and jobs as they are now ($1)"
    return
  fi
  local folder=$OUTPUT/$1
  mkdir -p "$folder"
  date +%s >"$folder/time"
  collect "$folder/status.json" http_get /api/training/status
  collect "$folder/stats.json" http_get /api/training/stats
  collect "$folder/metrics.txt" http_get /metrics
  collect "$folder/jobs.json" ctl --output json jobs
  note "in $folder"
}

# Collects the data required by the rollback plan.
collect_all() {
  if [ -n "$DRY_RUN" ]; then
    note "would collect logs, metrics, history, settings and GPU telemetry"
    return
  fi
  local details=$OUTPUT/details
  mkdir -p "$details"
  target_collect "$details"
  collect "$details/metrics-export.json" http_get /api/metrics/export
  collect "$details/history.csv" ctl history --csv --since 24h
  # Not created if missing: root would own it, and the daemon could not write it.
  local path=${METRICS_DB//%/%25}
  path=${path//\?/%3f}
  path=${path//\#/%23}
  collect "$details/fp16-stats.csv" target_inside sqlite3 -csv -header "file:$path?mode=rw" \
    "SELECT * FROM fp16_stats WHERE timestamp > datetime('now', '-24 hours')"
  collect "$details/settings.txt" ctl config show
  collect "$details/precision.json" ctl --output json precision
  collect "$details/workers.txt" ctl workers
  collect "$details/checkpoints.json" ctl --output json checkpoints
  collect "$details/version.txt" target_inside genesisd --version
  collect "$details/machine.txt" machine_facts
  if target_inside sh -c 'command -v nvidia-smi' >/dev/null 2>&1 </dev/null; then
    collect "$details/nvidia-smi.txt" target_inside nvidia-smi -q
    collect "$details/gpu-stats.log" target_inside nvidia-smi dmon -s pucvmet -c 5
  fi
}

machine_facts() {
  uname -a
  cat /etc/os-release
  df -P
  free -b 2>/dev/null || cat /proc/meminfo
}

pack_post_mortem() {
  if [ -n "$DRY_RUN" ]; then return; fi
  tar -C "$(dirname "$OUTPUT")" -czf "$OUTPUT.tar.gz" "$(basename "$OUTPUT")"
  note "$OUTPUT.tar.gz, $(du -h "$OUTPUT.tar.gz" | cut -f 1)"
  if [ -e "$OUTPUT/NOT_COLLECTED" ]; then
    note "not collected (NOT_COLLECTED says why): $(cut -d : -f 1 "$OUTPUT/NOT_COLLECTED" | tr '\n' ' ')"
  fi
}
