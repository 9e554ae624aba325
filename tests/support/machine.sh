#!/bin/sh
# A machine of its own for a test: systemd as process 1 of namespaces of its own, on a tree of its
# own. Of the machine below it has /usr, under an overlay, and nothing else: no file, no process
# and no network of it is in reach, and the tree is in memory.
#
#     unshare --mount --propagation private sh machine.sh EMPTY FILES PIDFILE [FOLDER PLACE]...
#
# EMPTY is where the tree is put together; FILES is copied into it; each FOLDER is shown in it,
# for reading only, at its PLACE. The number of process 1 is written to PIDFILE. It ends, and the
# tree with it, when process 1 or this one is killed.
set -eu

case ${machine_stage:-groups} in
groups)
    # A control group for it, seen as the topmost from within.
    mount -t cgroup2 cgroup2 "$1"
    group=$1$(sed -n 's/^0:://p' /proc/self/cgroup)/ovirt-scheduler-test-$$
    mkdir "$group"
    trap 'find "$group" -depth -type d -exec rmdir {} \;' EXIT
    machine_stage=namespaces machine_group=$group setpriv --pdeathsig KILL -- \
        unshare --pid --fork --kill-child --mount --propagation private --ipc --uts --net \
        sh "$0" "$@"
    ;;

namespaces)
    read -r pid _ </proc/self/stat # of the machine below: /proc is still its own
    echo 0 >"$machine_group/cgroup.procs"
    echo "$pid" >"$3"
    machine_stage=tree exec unshare --cgroup sh "$0" "$@"
    ;;

tree)
    tree=$1 files=$2 pidfile=$3
    shift 3
    umount "$tree"
    mount -t tmpfs -o mode=755 machine "$tree"
    cd "$tree"
    mkdir dev etc old opt proc run sys tmp usr var .above .work
    for link in bin lib lib32 lib64 sbin; do
        if [ -L "/$link" ]; then cp -P "/$link" .; fi
    done
    mount -t overlay -o lowerdir=/usr,upperdir=.above,workdir=.work overlay usr
    mount -t proc proc proc
    for shared in proc/sys proc/sysrq-trigger; do # the kernel is the machine's below
        if [ -e $shared ]; then
            mount --bind $shared $shared
            mount -o remount,bind,ro $shared
        fi
    done
    mount -t sysfs -o ro sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=755 dev dev
    mknod -m 666 dev/null c 1 3
    mknod -m 666 dev/zero c 1 5
    mknod -m 666 dev/full c 1 7
    mknod -m 666 dev/random c 1 8
    mknod -m 666 dev/urandom c 1 9
    mknod -m 666 dev/tty c 5 0
    mkdir dev/pts dev/shm
    mount -t devpts -o newinstance,mode=620,ptmxmode=666 devpts dev/pts
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    cp -R "$files/." .
    if [ -d /etc/ld.so.conf.d ]; then cp -R /etc/ld.so.conf.d etc; fi
    while [ $# -gt 0 ]; do
        mkdir -p ".$2"
        mount --rbind "$1" ".$2"
        mount -o remount,bind,ro ".$2"
        shift 2
    done
    chroot . ldconfig
    pivot_root . old
    cd /
    umount -l old
    rmdir old
    # It ends by being killed; it has no business with the clock, modules and ports below.
    exec env -i container=test PATH=/usr/sbin:/usr/bin \
        setpriv --bounding-set=-sys_time,-sys_module,-sys_rawio,-syslog,-sys_boot \
        --inh-caps=-all -- /lib/systemd/systemd --log-target=journal --show-status=false
    ;;
esac
