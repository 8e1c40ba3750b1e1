# Shared by the scripts of this folder; sourced, not run.
# shellcheck shell=bash

GENESIS_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Several checkouts share what setup.sh installs here; cmake/LibTorch.cmake searches the same place.
GENESIS_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/genesis
GENESIS_TORCH_VERSION=2.11.0
GENESIS_TORCH_VENV=$GENESIS_CACHE/torch-$GENESIS_TORCH_VERSION
GENESIS_BUF_VERSION=1.75.0
GENESIS_BUF_VENV=$GENESIS_CACHE/buf-$GENESIS_BUF_VERSION
GENESIS_PROMETHEUS=$GENESIS_CACHE/prometheus
# Tools that check the operators' files: manifests, dashboards, the Dockerfile.
GENESIS_OPS_VENV=$GENESIS_CACHE/ops-1
# Tools that jobs are forwarded to, for the tests.
GENESIS_EXPORT_VENV=$GENESIS_CACHE/export-1
# Programs with which the benchmarks compare; benchmarks/sides.py searches the same place.
GENESIS_BENCH_VENV=$GENESIS_CACHE/bench-1
# Debian 12 as created by debootstrap, and with the package's dependencies.
GENESIS_DEBIAN=$GENESIS_CACHE/debian-12.tar
GENESIS_DEBIAN_TREE=$GENESIS_CACHE/debian-12
export GENESIS_ROOT GENESIS_CACHE GENESIS_TORCH_VENV GENESIS_BUF_VENV GENESIS_PROMETHEUS
export GENESIS_OPS_VENV GENESIS_EXPORT_VENV GENESIS_BENCH_VENV GENESIS_DEBIAN GENESIS_DEBIAN_TREE

# A web proxy cannot reach listeners of this machine.
no_proxy=${no_proxy:-${NO_PROXY-}}
export no_proxy=${no_proxy:+$no_proxy,}localhost,127.0.0.1,::1

say() { printf '%s\n' "$*"; }

# Ends the line of an open stage (setup.sh), once.
stage_failed() {
  if [ "${STAGE_OPEN-no}" = yes ]; then say "failed"; fi
  STAGE_OPEN=no
}

fail() {
  stage_failed
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# help_or_unknown OPTION: handles -h and --help through the script's `usage`; any other option
# fails.
help_or_unknown() {
  case $1 in -h | --help)
    usage
    exit 0
    ;;
  esac
  usage >&2
  fail "unknown option \"$1\""
}

# Runs a command as root; only Debian packages need it.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
    return
  fi
  command -v sudo >/dev/null || return 127
  # sudo clears the environment, and apt needs the proxies.
  local name settings=()
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    if [ -n "${!name-}" ]; then settings+=("$name=${!name}"); fi
  done
  sudo env "${settings[@]}" "$@"
}

# quietly LOG COMMAND...: output goes to LOG; on failure its end is shown.
quietly() {
  local log=$1
  shift
  printf '+ %s\n' "$*" >>"$log"
  "$@" >>"$log" 2>&1 && return
  stage_failed
  printf 'The end of %s:\n' "$log" >&2
  tail -n 25 "$log" >&2
  fail "this command failed: $*"
}

# Prints the number of parallel compilers: one per core and 2 GB, which LibTorch's headers take.
build_jobs() {
  local cores memory_kb by_memory
  cores=$(nproc)
  memory_kb=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  by_memory=$((memory_kb / 2000000))
  if [ "$by_memory" -lt 1 ]; then by_memory=1; fi
  if [ "$by_memory" -lt "$cores" ]; then cores=$by_memory; fi
  say "${GENESIS_BUILD_JOBS:-$cores}"
}

# configure with-tests|as-before: the release preset, with the tests, or with them only if they were
# configured before. A new folder is configured for a full build: several files at a time.
configure() {
  local testing=OFF cache=$GENESIS_ROOT/build/release/CMakeCache.txt options=()
  if [ "$1" = with-tests ] || grep -qs '^BUILD_TESTING:BOOL=ON$' "$cache"; then testing=ON; fi
  if [ ! -e "$cache" ]; then options=(-DGENESIS_UNITY=ON); fi
  (cd "$GENESIS_ROOT" && cmake --preset release "-DBUILD_TESTING=$testing" "${options[@]}")
}

# build TARGET...
build() {
  (cd "$GENESIS_ROOT" && cmake --build --preset release --parallel "$(build_jobs)" --target "$@")
}
