#!/bin/sh
# worker.sh ARGUMENT...: genesis-worker, started again for each next job as the unit genesis-worker@.service does.
# Kubernetes starts an ended container again too, but after a pause that it doubles up to five minutes.
set -u

PAUSE=2
UNUSABLE=2
stopping=no
worker=

stop() {
  stopping=yes
  if [ -n "$worker" ]; then kill -TERM "$worker" 2>/dev/null; fi
}
trap stop TERM INT

while [ "$stopping" = no ]; do
  genesis-worker "$@" &
  worker=$!
  # The signal may have come before there was a worker to pass it to.
  if [ "$stopping" = yes ]; then kill -TERM "$worker" 2>/dev/null; fi
  # A signal ends wait too, before the worker has checkpointed its job.
  while :; do
    wait "$worker"
    status=$?
    kill -0 "$worker" 2>/dev/null || break
  done
  worker=
  # An unusable flag does not mend itself; all else, such as a daemon that is away, may.
  if [ "$status" = "$UNUSABLE" ]; then exit "$UNUSABLE"; fi
  if [ "$stopping" = no ] && [ "$status" != 0 ]; then sleep "$PAUSE"; fi
done
