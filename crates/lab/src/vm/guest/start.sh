# Runs as the first process of a machine, with the host's files as its root: makes ready what a running system has, runs
# the command, leaves its status and switches the machine off.
folder=/run/artery-vm
. $folder/settings # driver, network, router, modules, PATH

make_ready() {
    mkdir -p /dev/pts /dev/shm /run/netns /run/lock
    mount -t devpts devpts /dev/pts
    mount -t tmpfs tmpfs /dev/shm
    mount -t bpf bpf /sys/fs/bpf
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mount -t tracefs tracefs /sys/kernel/tracing
    ln -sfn /proc/self/fd /dev/fd
    mkdir -p /lib/modules
    [ -e "/lib/modules/$(uname -r)" ] || ln -s "$modules" "/lib/modules/$(uname -r)"
    hostname artery-vm
    ip link set lo up
    sysctl -qw kernel.printk="4 4 1 7"
    [ -z "$driver" ] || modprobe "$driver"
    if [ -e /sys/module/tun ]; then :; else modprobe tun; fi
    name_cards
}

# The cards are eth0 to eth3 in the order of their addresses.
name_cards() {
    for path in /sys/class/net/*; do
        mac=$(cat "$path/address")
        case $mac in
        52:54:00:00:00:0*) ip link set "${path##*/}" name "card${mac##*:0}" ;;
        esac
    done
    for path in /sys/class/net/card*; do
        [ -e "$path" ] || continue
        ip link set "${path##*/}" name "eth${path##*card}"
    done
}

# a (eth0) -- eth1, router, eth2 -- b (eth0): the wires join eth0 with eth1 and eth2 with eth3.
make_line() {
    for host in a b ${router:+"$router"}; do
        ip netns add "$host"
        ip -n "$host" link set lo up
        in_host "$host" sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
    done
    sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
    ip link set eth0 netns a
    ip link set eth3 netns b name eth0
    for port in eth1 eth2; do
        [ -z "$router" ] || ip link set $port netns "$router"
        in_host "$router" sysctl -qw "net.ipv6.conf.$port.accept_dad=0"
    done
    for host in a b; do in_host $host sysctl -qw net.ipv6.conf.eth0.accept_dad=0; done
    in_host "$router" sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
    give a eth0 10.0.1.2/24 fd00:1::2/64
    give "$router" eth1 10.0.1.1/24 fd00:1::1/64
    give "$router" eth2 10.0.2.1/24 fd00:2::1/64
    give b eth0 10.0.2.2/24 fd00:2::2/64
    ip -n a route add default via 10.0.1.1
    ip -n a route add default via fd00:1::1
    ip -n b route add default via 10.0.2.1
    ip -n b route add default via fd00:2::1
    wait_for_carrier a eth0
    wait_for_carrier "$router" eth1
    wait_for_carrier "$router" eth2
    wait_for_carrier b eth0
}

# in_host HOST COMMAND…: in a namespace, or in the machine itself if HOST is empty.
in_host() {
    host=$1
    shift
    if [ -n "$host" ]; then ip netns exec "$host" "$@"; else "$@"; fi
}

give() {
    in_host "$1" ip link set "$2" up
    in_host "$1" ip address add "$3" dev "$2"
    in_host "$1" ip address add "$4" dev "$2"
}

wait_for_carrier() {
    tries=150
    until [ "$(in_host "$1" cat "/sys/class/net/$2/carrier")" = 1 ]; do
        tries=$((tries - 1))
        if [ $tries = 0 ]; then
            echo "artery-vm: $2 has no link after 15 s"
            return
        fi
        sleep 0.1
    done
}

make_ready
[ "$network" != line ] || make_line
cut -d ' ' -f 1 /proc/uptime >$folder/booted.new
mv $folder/booted.new $folder/booted
setsid sh $folder/command </dev/null >>$folder/stdout 2>>$folder/stderr
echo $? >$folder/status.new
mv $folder/status.new $folder/status
sync
echo o >/proc/sysrq-trigger
while :; do sleep 1; done
