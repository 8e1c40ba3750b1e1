#!/bin/sh
# worker.sh ARGUMENT...: runs genesis-worker again for each job, like the unit genesis-worker@.service. Kubernetes
# also restarts an ended container, but after a pause that it doubles up to five minutes.
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
  # The signal may have arrived before there was a worker to forward it to.
  if [ "$stopping" = yes ]; then kill -TERM "$worker" 2>/dev/null; fi
  # A signal also ends wait, before the worker has checkpointed its job, so wait again.
  while :; do
    wait "$worker"
    status=$?
    kill -0 "$worker" 2>/dev/null || break
  done
  worker=
  # An unusable flag does not fix itself. Any other error, such as an unreachable daemon, may.
  if [ "$status" = "$UNUSABLE" ]; then exit "$UNUSABLE"; fi
  if [ "$stopping" = no ] && [ "$status" != 0 ]; then sleep "$PAUSE"; fi
done
