#!/usr/bin/env bash
# Rolls the training service back from reduced precision to FP32, and forward again; docs/rollback.md.
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
command -v python3 >/dev/null || { echo "${0##*/}: python3 is not found; install Python 3.9 or newer" >&2 && exit 1; }
exec python3 -B -X utf8 "$HERE/rollback" "${0##*/}" "$@"
