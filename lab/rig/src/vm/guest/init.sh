#!/bin/busybox sh
# The first program of a machine, in its first root file system: gives it the host's files, read only, with a layer of
# memory above, and goes on there.
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sysfs /sys
$B mount -t devtmpfs devtmpfs /dev
for module in $($B cat /modules/order); do
    $B insmod "/modules/$module" || echo "artery-vm: cannot load $module"
done
share="trans=virtio,version=9p2000.L,msize=512000"
$B mount -t 9p -o "ro,cache=loose,$share" root /lower || echo "artery-vm: cannot mount the host's files"
$B mount -t tmpfs -o mode=0755 tmpfs /upper
$B mkdir -m 755 /upper/files /upper/work
$B mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /root ||
    echo "artery-vm: cannot mount the layer of memory"
$B mount -t tmpfs -o mode=0755 tmpfs /root/run
$B mkdir /root/run/artery-vm
$B mount -t 9p -o "$share" run /root/run/artery-vm || echo "artery-vm: cannot mount the folder of the run"
for folder in proc sys dev; do $B mount --move "/$folder" "/root/$folder"; done
exec $B switch_root /root /bin/sh /run/artery-vm/start.sh
