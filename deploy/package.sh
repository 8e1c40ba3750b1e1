#!/usr/bin/env bash
# Builds what is installed elsewhere: the Debian package, and the relocatable archive of
# deploy/bundle.sh.
set -euo pipefail
# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'USAGE'
usage: deploy/package.sh [--build-dir build/release] [--output build/release/package] [--deb-only]

  genesis-trainer_<version>_amd64.deb                Debian 12; docs/install.md
  genesis-trainer-<version>-linux-x86_64.tar.gz      any Linux; needs only a LibTorch; docs/install.md

  --build-dir DIR   a build of the release preset, with tests for the archive. Default: build/release
  --output DIR      Default: <build-dir>/package
  --deb-only        no archive
USAGE
}

main() {
  local build=$GENESIS_ROOT/build/release output='' deb_only='' work version name
  while [ $# -gt 0 ]; do
    case $1 in
      --build-dir | --output)
        [ $# -ge 2 ] || fail "$1 needs a value; see deploy/package.sh --help"
        if [ "$1" = --output ]; then output=$2; else build=$2; fi
        shift
        ;;
      --deb-only) deb_only=yes ;;
      *) help_or_unknown "$1" ;;
    esac
    shift
  done
  for name in genesisd genesisctl genesis-worker; do
    [ -x "$build/bin/$name" ] || fail "$build/bin/$name is missing; build it first: cmake --preset release &&" \
      "cmake --build --preset release"
  done
  for name in cpack dpkg-shlibdeps dpkg-deb; do
    command -v "$name" >/dev/null || fail "$name is missing; run deploy/setup.sh"
  done
  build=$(cd "$build" && pwd)
  output=${output:-$build/package}
  mkdir -p "$output"
  work=$(mktemp -d)
  # shellcheck disable=SC2064  # Expanded now, because it is local.
  trap "rm -rf '$work'" EXIT
  quietly "$work/log" cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work/package"
  cp "$work"/package/*.deb "$output/"
  say "$output/$(basename "$work"/package/*.deb)"
  if [ -n "$deb_only" ]; then return; fi
  version=$("$build/bin/genesisctl" --version | cut -d ' ' -f 2)
  "$GENESIS_ROOT/deploy/bundle.sh" --build-dir "$build" \
    --output "$output/genesis-trainer-$version-linux-$(uname -m).tar.gz"
}

main "$@"
