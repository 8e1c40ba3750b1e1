#!/usr/bin/env bash
# Builds the wheel of the Python client, genesis-trainer; deploy/setup.sh --test installs its build
# tools.
set -euo pipefail
# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'USAGE'
usage: deploy/wheel.sh [--output build/release/package] [--install DIR]

  genesis_trainer-<version>-py3-none-any.whl   Python 3.9 and later; docs/python_client.md

  --output DIR    Default: build/release/package
  --install DIR   also puts what is in the wheel, nothing else, into a folder for PYTHONPATH
USAGE
}

main() {
  local output=$GENESIS_ROOT/build/release/package install='' work
  local python=$GENESIS_TORCH_VENV/bin/python
  while [ $# -gt 0 ]; do
    case $1 in
      --output | --install)
        [ $# -ge 2 ] || fail "$1 needs a value; see deploy/wheel.sh --help"
        if [ "$1" = --output ]; then output=$2; else install=$2; fi
        shift
        ;;
      *) help_or_unknown "$1" ;;
    esac
    shift
  done
  [ -x "$python" ] || fail "$python is missing; run deploy/setup.sh --test"
  command -v protoc >/dev/null || fail "protoc is missing; run deploy/setup.sh"
  mkdir -p "$output"
  work=$(mktemp -d)
  # shellcheck disable=SC2064  # Expanded now, because it is local.
  trap "rm -rf '$work'" EXIT
  # Works on a copy, because setuptools writes beside the sources and would pick up leftovers there.
  cp -R "$GENESIS_ROOT/python" "$GENESIS_ROOT/proto" "$work/"
  rm -rf "$work"/python/build "$work"/python/src/*.egg-info
  quietly "$work/log" "$python" -m pip --disable-pip-version-check wheel --no-deps --no-build-isolation \
    --wheel-dir "$work/wheel" "$work/python"
  rm -f "$output"/genesis_trainer-*.whl
  cp "$work"/wheel/*.whl "$output/"
  say "$output/$(basename "$work"/wheel/*.whl)"
  if [ -n "$install" ]; then
    rm -rf "$install"
    quietly "$work/log" "$python" -m pip --disable-pip-version-check install --no-deps --target "$install" \
      "$work"/wheel/*.whl
  fi
}

main "$@"
