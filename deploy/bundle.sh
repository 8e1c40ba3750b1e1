#!/usr/bin/env bash
# Builds an archive of the programs that runs on another machine; docs/install.md.
set -euo pipefail
# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PROGRAMS=(genesisd genesisctl genesis-worker)
TESTS=(trainer_step_tests trainer_optim_tests trainer_run_tests trainer_models_tests scaler_driver model_driver
  checkpoint_driver)
LIMIT_MIB=64
# Libraries that the target machine provides: LibTorch and NVIDIA's libraries in its Python, and glibc.
FROM_TORCH='^lib(torch|c10|shm|gomp|cuda|cublas|cudnn|cufft|cufile|cupti|curand|cusolver|cusparse|nv|nccl)'
FROM_GLIBC='^(ld-linux.*|linux-vdso|libc|libm|libdl|librt|libutil|libpthread|libresolv|libanl|libnsl)\.so'
# Used by libexec/launch if the target's own libraries are older than the programs need.
FROM_GCC='^lib(stdc\+\+|gcc_s)\.so'

usage() {
  cat <<'USAGE'
usage: deploy/bundle.sh [--build-dir build/release] [--output genesis-bundle.tar.gz]

Packs the programs, their libraries, tests and benchmarks for a GPU machine, examples and docs. The target
needs Linux on x86-64, glibc, and for the worker a Python with torch 2.11; no compiler, no packages.

  --build-dir DIR   a build with tests. Default: build/release
  --output FILE     Default: genesis-bundle.tar.gz in the present folder
USAGE
}

# libraries FILE: "name path" of every library that the loader uses for a program or library.
libraries() {
  local listing
  listing=$(ldd "$1")
  if grep -q 'not found' <<<"$listing"; then
    fail "$1 lacks libraries on this machine, so they cannot be packed:" \
      "$(grep 'not found' <<<"$listing" | tr -s ' \t' ' ')"
  fi
  awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' <<<"$listing"
}

copy_libraries() {
  local file name path
  for file in "${PROGRAMS[@]/#/$BUILD/bin/}" "${TESTS[@]/#/$BUILD/tests/}"; do
    libraries "$file"
  done | sort -u | while read -r name path; do
    if [[ $name =~ $FROM_TORCH || $name =~ $FROM_GLIBC || -e $ROOT/lib/$name ]]; then continue; fi
    if [[ $name =~ $FROM_GCC ]]; then
      cp -L "$path" "$ROOT/lib/gcc/$name"
    else
      cp -L "$path" "$ROOT/lib/$name"
    fi
  done
}

# copy_program FROM TO: strips it, and replaces the library path of the build machine.
copy_program() {
  [ -x "$1" ] || fail "$1 is missing; build it first: cmake --preset release" \
    "-DBUILD_TESTING=ON && cmake --build --preset release"
  strip -o "$2" "$1"
  # shellcheck disable=SC2016  # The loader expands it.
  python3 "$GENESIS_ROOT/deploy/bundle/set_runpath.py" "$2" '$ORIGIN/../../lib'
}

# starter FILE NAME: writes the script that users call.
starter() {
  printf '#!/bin/sh\nexec "$(dirname "$(readlink -f "$0")")/../libexec/launch" %s "$@"\n' "$2" >"$1"
  chmod 755 "$1"
}

copy_programs() {
  local name
  mkdir -p "$ROOT"/bin "$ROOT"/tests "$ROOT"/libexec/torch "$ROOT"/lib/gcc
  copy_program "$BUILD/bin/genesisd" "$ROOT/libexec/genesisd"
  copy_program "$BUILD/bin/genesisctl" "$ROOT/libexec/genesisctl"
  for name in "${PROGRAMS[@]}"; do starter "$ROOT/bin/$name" "$name"; done
  copy_program "$BUILD/bin/genesis-worker" "$ROOT/libexec/torch/genesis-worker"
  # Installed beside the worker, which searches its own folder. They exist if LibTorch has its CUDA half.
  for name in libgenesis_cuda.so libgenesis_nccl.so; do
    if [ -e "$BUILD/bin/$name" ]; then strip -o "$ROOT/libexec/torch/$name" "$BUILD/bin/$name"; fi
  done
  for name in "${TESTS[@]}"; do
    copy_program "$BUILD/tests/$name" "$ROOT/libexec/torch/$name"
    starter "$ROOT/tests/$name" "$name"
  done
}

copy_files() {
  local folder
  copy_libraries
  # The daemon runs the worker beside it, which must find LibTorch first.
  starter "$ROOT/libexec/genesis-worker" genesis-worker
  install -m 755 "$GENESIS_ROOT/deploy/bundle/launch" "$ROOT/libexec/launch"
  install -m 644 "$GENESIS_ROOT/deploy/bundle/README.md" "$ROOT/README.md"
  mkdir -p "$ROOT/deploy" "$ROOT/tests/e2e"
  install -m 755 "$GENESIS_ROOT/deploy/verify_checkpoint.py" "$ROOT/deploy/"
  install -m 644 "$GENESIS_ROOT/tests/e2e/harness.py" "$ROOT/tests/e2e/"
  for folder in tests/interop tests/gpu benchmarks trainer/compiled/python examples docs; do
    (cd "$GENESIS_ROOT" && find "$folder" -type f ! -name '*.cc' ! -name '*.pyc' \
      ! -name CMakeLists.txt -exec install -D -m 644 {} "$ROOT/{}" \;)
  done
  # Installed for PYTHONPATH.
  "$GENESIS_ROOT/deploy/wheel.sh" --output "$WORK/wheel" >/dev/null
  python3 -m zipfile -e "$WORK"/wheel/genesis_trainer-*.whl "$ROOT/python"
  chmod 755 "$ROOT/tests/gpu/run" "$ROOT/benchmarks/run"
  # genesisctl compile searches ../share/genesis relative to its own folder.
  mkdir -p "$ROOT/share/genesis"
  ln -s ../../trainer/compiled/python "$ROOT/share/genesis/compile"
}

# newest_version PREFIX: the highest symbol version with that prefix needed by the bundle.
newest_version() {
  # objdump fails on scripts, which are not ELF files.
  { find "$ROOT/libexec" "$ROOT/lib" -maxdepth 2 -type f ! -path '*/gcc/*' -exec objdump -T {} + 2>/dev/null || true; } |
    grep -o "$1_[0-9][0-9.]*" | sort -uV | tail -n 1
}

write_manifest() {
  local revision
  revision=$(git -C "$GENESIS_ROOT" rev-parse HEAD 2>/dev/null || say unknown)
  if [ -n "$(git -C "$GENESIS_ROOT" status --porcelain 2>/dev/null)" ]; then revision+=" with changes"; fi
  cat >"$ROOT/MANIFEST" <<MANIFEST
version $("$ROOT/libexec/genesisctl" --version | cut -d ' ' -f 2)
revision $revision
machine $(uname -m)
torch ${GENESIS_TORCH_VERSION%.*}
glibc $(newest_version GLIBC)
libstdc++ $(newest_version GLIBCXX)
MANIFEST
  library_lines >>"$ROOT/MANIFEST"
  (cd "$ROOT" && find . -type f ! -name SHA256SUMS | sort | xargs -d '\n' sha256sum >SHA256SUMS)
}

# "library FILE PACKAGE VERSION" for looking up advisories; no package if dpkg is missing or does
# not know the file.
library_lines() {
  local file files owners packages
  files=$(cd "$ROOT/lib" && find . -name '*.so*' -printf '%P\n' | sort)
  # shellcheck disable=SC2046  # One word per library.
  owners=$(dpkg-query -S $(sed 's|.*/|*/|' <<<"$files") 2>/dev/null | sed 's/^\([^:, ]*\)[^/]*/\1 /' || true)
  # shellcheck disable=SC2016  # dpkg-query's own.
  packages=$(dpkg-query -W -f '${Package} ${Version}\n' 2>/dev/null || true)
  for file in $files; do
    say "library $file $(awk -v end="/${file##*/}" '
      NF == 0 { next }
      FILENAME == "/dev/fd/3" { version[$1] = $2; next }
      substr($2, length($2) - length(end) + 1) == end { print $1, version[$1]; exit }
    ' /dev/fd/3 - 3<<<"$packages" <<<"$owners")"
  done
}

# Makes a reproducible archive: equal files produce equal bytes.
pack() {
  local bytes
  tar --create --directory "$WORK" --sort=name --owner=0 --group=0 --numeric-owner \
    --mtime=@"${SOURCE_DATE_EPOCH:-0}" --format=gnu genesis-bundle | gzip -9n >"$WORK/archive"
  bytes=$(stat -c %s "$WORK/archive")
  if [ "$bytes" -gt $((LIMIT_MIB * 1048576)) ]; then
    fail "the archive has $((bytes / 1048576)) MiB and may have $LIMIT_MIB;" \
      "the largest files: $(cd "$ROOT" && find . -type f -size +2M -printf '%s %p\n' | sort -rn | head -n 5 | tr '\n' ' ')"
  fi
  mkdir -p "$(dirname "$OUTPUT")"
  cp "$WORK/archive" "$OUTPUT.partial"
  mv "$OUTPUT.partial" "$OUTPUT"
  say "$OUTPUT: $(awk "BEGIN { printf \"%.1f\", $bytes / 1048576 }") MiB, sha256 $(sha256sum <"$OUTPUT" | cut -d ' ' -f 1)"
}

main() {
  BUILD=$GENESIS_ROOT/build/release
  OUTPUT=genesis-bundle.tar.gz
  while [ $# -gt 0 ]; do
    case $1 in
      --build-dir | --output)
        [ $# -ge 2 ] || fail "$1 needs a value; see deploy/bundle.sh --help"
        if [ "$1" = --output ]; then OUTPUT=$2; else BUILD=$2; fi
        shift
        ;;
      *) help_or_unknown "$1" ;;
    esac
    shift
  done
  [ -d "$BUILD" ] || fail "--build-dir $BUILD is not there; build first, or name the folder of a build."
  for tool in ldd objdump strip python3; do
    command -v "$tool" >/dev/null || fail "$tool is missing; run deploy/setup.sh"
  done
  BUILD=$(cd "$BUILD" && pwd)
  WORK=$(mktemp -d)
  trap 'rm -rf "$WORK"' EXIT
  ROOT=$WORK/genesis-bundle
  copy_programs
  copy_files
  write_manifest
  pack
}

main "$@"
