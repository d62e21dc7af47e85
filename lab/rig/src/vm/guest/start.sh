# Runs as the first process of a machine, with the host's files as its root: makes ready what a running system has, runs
# the command, leaves its status and switches the machine off. Few programs are started, since emulation is slow.
[ $$ = 1 ] || exit 1 # Elsewhere it would switch off the wrong machine.
folder=/run/artery-vm
. $folder/settings # driver, network, router, modules, PATH

make_ready() {
    mkdir -p /dev/pts /dev/shm /run/netns /run/lock /lib/modules
    mount -t devpts devpts /dev/pts
    mount -t tmpfs tmpfs /dev/shm
    mount -t bpf bpf /sys/fs/bpf
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mount -t tracefs tracefs /sys/kernel/tracing
    read -r release </proc/sys/kernel/osrelease
    ln -sfn /proc/self/fd /dev/fd
    [ -e "/lib/modules/$release" ] || ln -s "$modules" "/lib/modules/$release"
    echo artery-vm >/proc/sys/kernel/hostname
    echo 4 4 1 7 >/proc/sys/kernel/printk
    # Addresses are usable at once, in namespaces that are made later, too.
    echo 1 >/proc/sys/net/core/devconf_inherit_init_net
    for kind in all default; do echo 0 >/proc/sys/net/ipv6/conf/$kind/accept_dad; done
    modprobe -a tun "$driver"
    name_cards
}

# The cards are eth0 to eth3 in the order of their addresses.
name_cards() {
    for path in /sys/class/net/*; do
        read -r mac <"$path/address"
        case $mac in
        52:54:00:00:00:0*) ;;
        *) continue ;;
        esac
        [ "${path##*/}" = "eth${mac##*:0}" ] || ip link set "${path##*/}" name "card${mac##*:0}"
    done
    for path in /sys/class/net/card*; do
        [ ! -e "$path" ] || ip link set "${path##*/}" name "eth${path##*card}"
    done
}

# a (eth0) -- eth1, router, eth2 -- b (eth0): the wires join eth0 with eth1 and eth2 with eth3.
make_line() {
    for host in a b ${router:+"$router"}; do ip netns add "$host"; done
    ip -batch - <<END
link set lo up
link set eth0 netns a
link set eth3 netns b name eth0
${router:+link set eth1 netns $router
link set eth2 netns $router}
END
    ip -n a -batch - <<END
link set lo up
link set eth0 up
address add 10.0.1.2/24 dev eth0
address add 2001:db8:1::2/64 dev eth0
route add default via 10.0.1.1
route add default via 2001:db8:1::1
END
    ip -n b -batch - <<END
link set lo up
link set eth0 up
address add 10.0.2.2/24 dev eth0
address add 2001:db8:2::2/64 dev eth0
route add default via 10.0.2.1
route add default via 2001:db8:2::1
END
    ip ${router:+-n "$router"} -batch - <<END
link set lo up
link set eth1 up
link set eth2 up
address add 10.0.1.1/24 dev eth1
address add 2001:db8:1::1/64 dev eth1
address add 10.0.2.1/24 dev eth2
address add 2001:db8:2::1/64 dev eth2
END
    in_host "$router" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding'
    in_host a sh -c "$wait_for_links" sh eth0
    in_host b sh -c "$wait_for_links" sh eth0
    in_host "$router" sh -c "$wait_for_links" sh eth1 eth2
}

wait_for_links='
tries=150
for port; do
    until read -r up </sys/class/net/$port/carrier && [ "$up" = 1 ]; do
        tries=$((tries - 1))
        if [ $tries = 0 ]; then
            echo "artery-vm: $port has no link after 15 s" >/dev/console
            exit
        fi
        sleep 0.1
    done
done'

# in_host HOST COMMAND…: in a namespace, or in the machine itself if HOST is empty.
in_host() {
    host=$1
    shift
    if [ -n "$host" ]; then ip netns exec "$host" "$@"; else "$@"; fi
}

make_ready
if [ "$network" = line ]; then make_line; else ip link set lo up; fi
echo >$folder/booted
setsid sh $folder/command </dev/null >>$folder/stdout 2>>$folder/stderr
echo $? >$folder/status.new
mv $folder/status.new $folder/status
sync
echo o >/proc/sysrq-trigger
while :; do sleep 1; done
