#!/bin/sh
# Checks that the daemon of this container serves /healthz on the address that it reports.
set -eu

endpoints=${GENESIS_DATA_DIR:-/data}/run/endpoints
address=$(sed -n 's/^http: //p' "$endpoints")
port=${address##*:}
scheme=http
if [ -n "${GENESIS_TLS_CERTIFICATE_FILE-}" ]; then scheme=https; fi
# The certificate is for another name than 127.0.0.1, and no other process can listen here.
exec curl --fail --silent --show-error --insecure --noproxy '*' --max-time 4 --output /dev/null \
  "$scheme://127.0.0.1:$port/healthz"
