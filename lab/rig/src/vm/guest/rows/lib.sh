# What rows of the matrix have in common. A row is a function row_NAME that runs in a subshell: it ends with `pass`,
# `fail` or `skip` and the reason, or by a command that fails. Rows run in the machine that start.sh made ready:
# a (eth0) -- eth1, this machine, eth2 -- b (eth0).
work=/tmp/rows
socket=$work/control
export ARTERY_SOCKET=$socket

pass() { echo "$*"; exit 0; }
fail() { echo "$*"; exit 1; }
skip() { echo "$*"; exit 77; }

# run_row NAME: prints one line of result on standard output, and all that was said on standard error if it failed.
run_row() {
    rm -rf $work
    mkdir -p $work
    begin=$(cut -d . -f 1 /proc/uptime)
    (
        set -e
        "row_$(echo "$1" | tr - _)"
    ) >$work/said 2>&1
    case $? in
    0) result=pass ;;
    77) result=skip ;;
    *) result=fail ;;
    esac
    end_programs
    restore_line
    seconds=$(($(cut -d . -f 1 /proc/uptime) - begin))
    printf 'row\t%s\t%s\t%s\t%s\n' "$1" $result $seconds "$(tail -n 1 $work/said | tr '\t' ' ')"
    if [ $result = fail ]; then
        echo "--- $1"
        tail -n 30 $work/said
        for file in $work/*.log; do
            [ ! -s "$file" ] || { echo "--- $1: ${file##*/}"; tail -n 30 "$file"; }
        done
        echo "--- $1: kernel"
        dmesg | tail -n 5
    fi >&2
}

# start NAME WORDS…: starts artery; its output goes to NAME.log and its process id to NAME.pid.
start() {
    name=$1
    shift
    artery "$@" >$work/$name.log 2>&1 &
    echo $! >$work/$name.pid
}

pid() { cat $work/$1.pid; }

lives() { kill -0 "$(pid $1)" 2>/dev/null; }

# until_says NAME TEXT: waits up to 90 s: emulation on busy processors takes long to verify programs.
until_says() {
    end=$(($(date +%s) + 90))
    until grep -q "$2" $work/$1.log; do
        lives $1 || fail "artery ended: $(tail -n 1 $work/$1.log)"
        [ "$(date +%s)" -lt $end ] || fail "artery did not say '$2' in 90 s: $(tail -n 1 $work/$1.log)"
        sleep 0.2
    done
}

# until_answers HOST ADDRESS NAME: waits up to 30 s for an answer, as long as the program NAME lives.
until_answers() {
    end=$(($(date +%s) + 30))
    until ip netns exec $1 ping -q -c 1 -W 1 $2 >/dev/null; do
        [ -z "$3" ] || lives $3 || fail "artery ended: $(tail -n 1 $work/$3.log)"
        [ "$(date +%s)" -lt $end ] || fail "$1 gets no answer from $2 in 30 s"
    done
}

# Ends what `start` started and what rows left running in namespaces.
end_programs() {
    for file in $work/*.pid; do
        [ ! -e "$file" ] || kill -9 "$(cat "$file")" 2>/dev/null
    done
    for host in a b; do
        ip netns pids $host | xargs -r kill -9 2>/dev/null
    done
    sleep 0.3
}

# The line as start.sh made it, whatever a row did to it.
restore_line() {
    for link in br0 veb0 red blue bond0 m1 m3 p0 wg0 gre1 ipip1 eth1.10 eth2.10; do ip link del $link 2>/dev/null; done
    ip rule del priority 500 2>/dev/null
    for table in 77 100 200; do
        ip route flush table $table 2>/dev/null
        ip -6 route flush table $table 2>/dev/null
    done
    for host in a2 b2; do ip netns del $host 2>/dev/null; done
    for link in wg0 gre1 ipip1 eth0.10 br0 bond1; do ip -n b link del $link 2>/dev/null; done
    if ! ip -n b address show dev eth0 | grep -q 10.0.2.2; then
        ip -n b link set eth0 up
        ip -n b address add 10.0.2.2/24 dev eth0
        ip -n b address add 2001:db8:2::2/64 dev eth0 nodad
    fi
    nft flush ruleset 2>/dev/null
    for port in eth1 eth2; do
        ip link set $port nomaster mtu 1500 2>/dev/null
        ip link set $port up
    done
    ip address replace 10.0.1.1/24 dev eth1
    ip address replace 2001:db8:1::1/64 dev eth1
    ip address replace 10.0.2.1/24 dev eth2
    ip address replace 2001:db8:2::1/64 dev eth2
    # Without a link-local address, which rows of the router take away, too, the kernel resolves no neighbor for others.
    for number in 1 2; do ip address replace fe80::5054:ff:fe00:$number/64 dev eth$number; done
    for host in a b; do
        ip -n $host link set eth0 mtu 1500
        [ ! -e $work/tcpdump.a ] || ip netns exec $host ethtool -K eth0 tx on >/dev/null 2>&1
    done
    ip -n a address del 10.0.3.2/24 dev eth0 2>/dev/null
    ip -n a address del 10.0.11.2/24 dev eth0 2>/dev/null
    ip -n a address del 2001:db8:11::2/64 dev eth0 2>/dev/null
    ip -n b address del 10.0.3.3/24 dev eth0 2>/dev/null
    ip -n b address del 10.0.2.3/24 dev eth0 2>/dev/null
    ip -n b route replace default via 10.0.2.1
    ip -n b route replace default via 2001:db8:2::1
    sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
    ip neigh flush all 2>/dev/null
    ip netns exec a ip neigh flush all 2>/dev/null
    ip netns exec b ip neigh flush all 2>/dev/null
}

# answers HOST ADDRESS COUNT [OPTIONS…]: how many of so many pings, 100 a second, are answered.
answers() {
    host=$1 address=$2 count=$3
    shift 3
    ip netns exec $host ping -q -i 0.01 -c $count -W 2 "$@" $address | sed -n 's/.* \([0-9]*\) received.*/\1/p'
}

# all_answer HOST COUNT ADDRESS…: no ping may be lost.
all_answer() {
    host=$1
    count=$2
    shift 2
    for address in "$@"; do
        # The first asks for neighbors.
        ip netns exec $host ping -q -c 2 -i 0.2 -W 2 $address >/dev/null || true
        got=$(answers $host $address $count)
        [ "$got" = $count ] || fail "${got:-0} of $count pings from $host to $address are answered"
    done
}

# Packets that the kernel has forwarded itself, of each family.
ipv4_by_kernel() { awk '/^Ip: [0-9]/ { print $7 }' /proc/net/snmp; }
ipv6_by_kernel() { awk '/^Ip6OutForwDatagrams/ { print $2 }' /proc/net/snmp6; }

# Packets that the running adopt has forwarded past the kernel.
forwarded_past_kernel() {
    artery handler state | jq '[.ports[].received] | add'
}

# mbits FROM TO ADDRESS: of one TCP connection in 3 s, after 2 s in which it finds its window; 0 where it fails.
mbits() {
    ip netns exec $2 iperf3 -s -1 >/dev/null 2>&1 &
    server=$!
    sleep 0.7
    ip netns exec $1 timeout 20 iperf3 -c $3 -O 2 -t 3 -f m 2>/dev/null |
        awk '/receiver/ { for (i = 1; i < NF; i++) if ($(i + 1) == "Mbits/sec") found = int($i) } END { print found + 0 }'
    kill $server 2>/dev/null || true
    wait $server 2>/dev/null || true
}

# What TCP reaches by the kernel alone, before artery starts.
measure_kernel() { kernel_mbits=$(mbits a b 10.0.2.2); }

# tcp_of_kernel PERCENT [ADDRESS]: TCP of one connection carries so much, or $tcp_floor percent if that is set, of what it does by
# the kernel alone; sets $tcp.
tcp_of_kernel() {
    floor=${tcp_floor:-$1}
    for try in first second; do # Others may use the processors, too.
        ours=$(mbits a b ${2:-10.0.2.2})
        tcp="TCP $ours Mbit/s, the kernel alone $kernel_mbits"
        if [ $((ours * 100)) -ge $((kernel_mbits * floor)) ] && [ $ours -gt 0 ]; then return 0; fi
    done
    fail "$tcp: less than $floor %"
}

# Hubs of QEMU cut what a host leaves to its card into fragments that may not be, so that hosts there leave nothing.
prepare_hosts() {
    [ "$wire" = hub ] || return 0
    for host in a b; do ip netns exec $host ethtool -K eth0 tso off gso off >/dev/null 2>&1; done
}

# flow NAME ADDRESS: pings from a in the background, 100 a second, until 600 are answered, and for 20 s at most; `lost NAME`
# waits for their end and sets $gone.
flow() {
    ip netns exec a ping -q -i 0.01 -c 600 -W 2 -w 20 $2 >$work/flow.$1 2>&1 &
    echo $! >$work/flow.$1.id
}

lost() {
    wait "$(cat $work/flow.$1.id)" || true
    gone=$(sed -n 's/^\([0-9]*\) packets transmitted, \([0-9]*\) received.*/\1 \2/p' $work/flow.$1)
    [ -n "$gone" ] || fail "ping says nothing of its end: $(tail -n 1 $work/flow.$1)"
    # Sent and received.
    set -- $gone
    gone=$(($1 - $2))
}
