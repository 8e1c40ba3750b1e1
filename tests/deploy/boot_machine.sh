#!/bin/bash
# boot_machine.sh TREE FOLDER [OUTSIDE:INSIDE]... -- PROGRAM [ARGUMENT...]: run by machine.py as the first process of new
# namespaces. Overlays FOLDER on TREE, makes that the whole file system of this process, with the folders OUTSIDE
# readable at INSIDE, and executes PROGRAM.
set -euo pipefail
tree=$1
root=$2/root
mount --make-rprivate /
mount -t overlay -o "lowerdir=$tree,upperdir=$2/upper,workdir=$2/work" overlay "$root"
shift 2
while [ "$1" != -- ]; do
  mkdir -p "$root${1#*:}"
  mount --bind -o ro "${1%%:*}" "$root${1#*:}"
  shift
done
shift
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
# The kernel's settings are the host's.
mount --bind -o ro "$root/proc/sys" "$root/proc/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in null zero full random urandom tty; do
  mknod -m 666 "$root/dev/$name" c "$((0x$(stat -c %t "/dev/$name")))" "$((0x$(stat -c %T "/dev/$name")))"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
hostname genesis-test
ip link set lo up 2>/dev/null || python3 - <<'UP'
import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14s", b"lo", 0x49, b""))
UP
cd "$root"
pivot_root . mnt
umount -l /mnt
exec chroot . /usr/bin/env -i container=genesis-test PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@" </dev/null
