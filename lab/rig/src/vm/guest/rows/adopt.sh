# Rows of `artery adopt`.

# What a row may leave to the kernel of what it sends, in percent: first packets of neighbors.
few=5
# Pings of a flow of 600 that may be lost where a process ends or starts.
handful=10

# try_programs WORDS…: what the unit tests of artery-adopt with these words try.
try_programs() {
    [ -n "$adopt_tests" ] || skip "no test program of artery-adopt: run make vm"
    [ -x "$adopt_tests" ] || fail "$adopt_tests is no program"
    # 5.10 ends in an oops under emulation where two processors try programs at once: one runs the jump to them
    # (bpf_dispatcher_xdp_func) while the other writes it.
    case $(uname -r) in 5.10.*) threads=1 ;; *) threads=2 ;; esac
    if ! ARTERY_QUICK=1 ARTERY_RIG=required timeout 550 $adopt_tests --test-threads $threads "$@" >$work/tests.log 2>&1; then
        refusal=$(grep -B 1 -m 1 '^processed' $work/tests.log | head -n 1)
        fail "${refusal:-$(tail -n 1 $work/tests.log)}"
    fi
    grep -q '^test result: ok. [1-9]' $work/tests.log || fail "no test has one of the words: $*"
}

row_verifier() {
    try_programs fast::tests::the_verifier fast::tests::copies::the_verifier 100_000_random_frames
    pass "the verifier takes all programs, and one does what the decision says"
}

row_programs() {
    try_programs fast::tests --skip the_verifier --skip 100_000_random_frames
    pass "programs do what the decision says with tunnels, sessions, VRFs, bridges and connections, too"
}

# What it says once it forwards.
started='^artery: forwarding'

start_adopt() {
    start adopt adopt "$@"
    until_says adopt "$started"
}

# passes_the_kernel COUNT [ADDRESS…]: so many pings from a to each address, of which one is of IPv4 and one of IPv6, lose
# nothing, and few of them go by the kernel; sets $share. In a slow machine programs that are loaded anew, because tables have
# grown, take seconds, during which the kernel forwards: so it may take three tries until few do.
passes_the_kernel() {
    count=$1
    shift
    [ $# -gt 0 ] || set -- 10.0.2.2 2001:db8:2::2
    for address; do until_answers a $address adopt; done
    for try in 1 2 3; do
        sleep $try
        before4=$(ipv4_by_kernel)
        before6=$(ipv6_by_kernel)
        all_answer a $count "$@"
        left4=$(($(ipv4_by_kernel) - before4))
        left6=$(($(ipv6_by_kernel) - before6))
        share="by the kernel $left4 of $((2 * count)) packets of IPv4, $left6 of IPv6"
        if [ $((left4 * 50)) -le $((count * few)) ] && [ $((left6 * 50)) -le $((count * few)) ]; then return 0; fi
    done
    artery handler state | jq -c '.ports[] | [.name, .path, .ipv4, .ipv6, .received, .sent, .kernel]' || true
    fail "$share"
}

paths() { artery handler state | jq -r '[.ports[] | .name + " by " + .path] | join(", ")'; }

row_adopt() {
    measure_kernel
    start_adopt eth1 eth2
    passes_the_kernel 200
    # Where XDP would switch off what the card joins and cuts, another path is to be chosen.
    tcp_of_kernel 90
    pass "$(paths); $share; $tcp"
}

row_adopt_tc() {
    measure_kernel
    start_adopt --path tc eth1 eth2
    passes_the_kernel 200
    tcp_of_kernel 90
    pass "$share; $tcp"
}

# By XDP where the driver has it; a driver without it refuses, and no success is told before. A card that takes VLAN tags off
# has all ports go by tc.
row_adopt_xdp() {
    start adopt adopt --path xdp eth1 eth2
    end=$(($(date +%s) + 90))
    until grep -q "$started" $work/adopt.log || ! lives adopt; do
        [ "$(date +%s)" -lt $end ] || fail "neither a success nor a refusal in 90 s"
        sleep 0.2
    done
    if lives adopt; then
        # Such a card starts anew when its program leaves.
        until_answers a 10.0.2.2 adopt
        sleep 4
        passes_the_kernel 200
        pass "$(paths); $share"
    fi
    [ "$driver" != virtio_net ] || fail "refused: $(tail -n 1 $work/adopt.log)"
    wait "$(pid adopt)" || status=$?
    [ "${status:-0}" = 1 ] || fail "a refusal with status ${status:-0}, not 1"
    if grep -q -e ': by XDP' -e "$started" $work/adopt.log; then fail "a success is told before the refusal"; fi
    grep -q -e '--path' $work/adopt.log || fail "the refusal has no remedy: $(tail -n 1 $work/adopt.log)"
    pass "refused, with the remedy"
}

# firewall [OPTION…]: a home gateway's rules come while it runs; what they let through goes past them, and nothing else passes.
firewall() {
    command -v nft >/dev/null || skip "nft is not installed"
    start_adopt "$@" eth1 eth2
    nft -f - <<'N' || skip "this kernel has no connection tracking for nft"
table inet gateway {
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established,related accept
        iifname eth1 accept
    }
    chain out {
        type nat hook postrouting priority 100;
        oifname eth2 masquerade
    }
}
N
    until_says adopt 'except established connections'
    passes_the_kernel 200
    past=$(artery handler state | jq '[.ports[] | .established] | add')
    [ "$past" -ge 600 ] || fail "$past of some 800 packets went past the rules"
    [ "$(answers b 10.0.1.2 3)" = 0 ] || fail "a ping from outside is answered"
    pass "$(paths); $past packets past the rules; $share"
}
row_adopt_firewall() { firewall; }
row_adopt_firewall_xdp() {
    [ "$driver" = virtio_net ] || skip "$driver takes tags off, or has no XDP"
    firewall --path xdp
}

row_adopt_kill() {
    start_adopt eth1 eth2
    passes_the_kernel 50
    flow there 10.0.2.2
    sleep 1.5
    kill -9 "$(pid adopt)"
    sleep 2
    start_adopt eth1 eth2
    lost there
    [ $gone -le $handful ] || fail "$gone pings are lost by kill -9 and a new start"
    passes_the_kernel 100
    pass "$gone pings are lost by kill -9 and a new start; after that $share"
}

row_adopt_reload() {
    start_adopt eth1 eth2
    passes_the_kernel 50
    flow there 2001:db8:2::2
    sleep 1.5
    kill -HUP "$(pid adopt)"
    lost there
    lives adopt || fail "SIGHUP ends it: $(tail -n 1 $work/adopt.log)"
    [ $gone = 0 ] || fail "$gone pings are lost by SIGHUP"
    passes_the_kernel 100
    pass "no ping is lost by SIGHUP; after that $share"
}

# A process that stands still no longer forwards by its tables.
row_adopt_stopped() {
    start_adopt eth1 eth2
    passes_the_kernel 50
    kill -STOP "$(pid adopt)"
    sleep 2
    before=$(ipv4_by_kernel)
    all_answer a 100 10.0.2.2
    by_kernel=$(($(ipv4_by_kernel) - before))
    kill -CONT "$(pid adopt)"
    [ $by_kernel -ge 200 ] || fail "a stopped process forwards by its old tables: $by_kernel of 200 packets by the kernel"
    sleep 2
    passes_the_kernel 100
    pass "while it is stopped the kernel forwards, and after SIGCONT $share"
}

# Packets of 9,000 bytes.
row_adopt_jumbo() {
    ip -n a link set eth0 mtu 9000
    ip -n b link set eth0 mtu 9000
    for port in eth1 eth2; do ip link set $port mtu 9000; done
    # What a card or its emulation does not carry by the kernel alone can't be tried.
    until_answers a 10.0.2.2
    got=$(answers a 10.0.2.2 20 -s 8900)
    [ "${got:-0}" -gt 0 ] || skip "$driver carries no frames of 8,900 bytes here by the kernel alone"
    start_adopt eth1 eth2
    for address in 10.0.2.2 2001:db8:2::2; do
        until_answers a $address adopt
        got=$(answers a $address 100 -s 8900)
        [ "$got" = 100 ] || fail "${got:-0} of 100 pings of 8,900 bytes to $address are answered"
    done
    passes_the_kernel 100
    ours=$(mbits a b 10.0.2.2)
    [ $ours -gt 0 ] || fail "TCP carries nothing"
    pass "$(paths); no ping of 8,900 bytes is lost, of short ones $share; TCP $ours Mbit/s"
}

# carry NAME: sends datagrams of many sizes between a and b, in a VLAN, too, and keeps what arrives in NAME.a and NAME.b, without
# what differs each time: the identification, the flow label, the source port, and checksums of those.
carry() {
    for host in a b; do
        ip netns exec $host tcpdump --immediate-mode -B 32768 -U -n -s 9216 -Q in -i eth0 -w $work/$1.$host.pcap \
            '(udp and dst port 7002) or (vlan and udp and dst port 7002)' 2>$work/tcpdump.$host &
        echo $! >$work/tcpdump.$host.pid
        until grep -q 'listening on' $work/tcpdump.$host; do sleep 0.1; done
    done
    for size in 40 1472 1473 3400 3470 3471 5000 8900; do
        head -c $size /proc/self/exe >$work/payload
        for far in 10.0.2.2 2001:db8:2::2 10.0.10.2 2001:db8:10::2; do
            ip netns exec a bash -c "cat $work/payload >/dev/udp/$far/7002"
        done
        for near in 10.0.1.2 2001:db8:1::2; do
            ip netns exec b bash -c "cat $work/payload >/dev/udp/$near/7002"
        done
    done
    sleep 1
    for host in a b; do
        kill "$(cat $work/tcpdump.$host.pid)"
        wait "$(cat $work/tcpdump.$host.pid)" || true
        tcpdump -r $work/$1.$host.pcap -n -t -e -v -x 2>/dev/null |
            sed -e 's/ id [0-9]*,//' -e 's/flowlabel 0x[0-9a-f]*, //' -e 's/\.[0-9]* > / > /' -e '/0x00[012]0:/d' >$work/$1.$host
    done
}

# On 7.2 such frames were lost now and then until the driver's ring had gone round once: it seems that buffers from before
# the program, which have no room in front, are not taken for them. So short packets of many flows use those up first.
# Where that is not it, the row says what the driver has dropped.
use_old_buffers() {
    ip netns exec a bash -c 'for n in {1..1500}; do echo >/dev/udp/10.0.2.2/7003; done' 2>/dev/null
    ip netns exec b bash -c 'for n in {1..1500}; do echo >/dev/udp/10.0.1.2/7003; done' 2>/dev/null
}

# Packets of up to 9,000 bytes by XDP, whose frames lie in several buffers: byte by byte what the kernel sends.
row_adopt_multi_buffer() {
    [ "$driver" = virtio_net ] || skip "$driver takes tags off, or has no XDP"
    for host in a b; do
        ip -n $host link set eth0 mtu 9000
        ip netns exec $host ethtool -K eth0 tx off >/dev/null
    done
    for port in eth1 eth2; do ip link set $port mtu 9000; done
    add_vlan
    # What b sends goes by the VLAN.
    all_answer a 5 10.0.2.2 2001:db8:2::2 10.0.10.2 2001:db8:10::2
    carry kernel
    start adopt adopt --path xdp eth1 eth2
    end=$(($(date +%s) + 90))
    until grep -q "$started" $work/adopt.log; do
        if ! lives adopt; then
            case $(uname -r) in
            5.* | 6.[0-2].*) skip "this kernel's driver has no XDP for such frames: $(tail -n 1 $work/adopt.log)" ;;
            *) fail "refused: $(tail -n 1 $work/adopt.log)" ;;
            esac
        fi
        [ "$(date +%s)" -lt $end ] || fail "neither a success nor a refusal in 90 s"
        sleep 0.2
    done
    passes_the_kernel 100
    use_old_buffers
    before4=$(ipv4_by_kernel)
    before6=$(ipv6_by_kernel)
    carry adopted
    by_kernel=$(($(ipv4_by_kernel) + $(ipv6_by_kernel) - before4 - before6))
    for host in a b; do
        diff $work/kernel.$host $work/adopted.$host >$work/diff ||
            { cut -c 1-160 $work/diff | head -n 20; fail "what $host gets differs from what the kernel sends (tcpdump: $(grep dropped $work/tcpdump.$host); $(
                for port in eth1 eth2; do ethtool -S $port | grep drops | grep -v ': 0$' | tr -d '\n'; done
            ))"; }
        frames=$(grep -c 'UDP' $work/adopted.$host)
        [ $host = b ] && wanted=32 || wanted=16
        [ $frames = $wanted ] || fail "$host gets $frames of $wanted datagrams"
    done
    kept=$(artery handler state | jq '[.ports[].kernel["multi-buffer"]] | add')
    [ $((by_kernel + kept)) -le 4 ] || fail "$by_kernel of 48 packets by the kernel, $kept as multi-buffer frames"
    for far in 10.0.2.2 2001:db8:2::2; do
        got=$(answers a $far 100 -s 8900)
        [ "$got" = 100 ] || fail "${got:-0} of 100 pings of 8,900 bytes to $far are answered"
    done
    # Longer packets than the next link takes are answered by the kernel.
    ip link set eth2.10 mtu 5000
    sleep 1
    for far in 10.0.10.2 2001:db8:10::2; do
        ip netns exec a ping -c 2 -W 1 -M do -s 8000 $far >$work/long.log 2>&1 || true
        grep -q -e 'mtu *[=:] *5000' $work/long.log || fail "no answer to a packet that is too long: $(tail -n 3 $work/long.log)"
    done
    ours=$(mbits a b 10.0.2.2)
    [ $ours -gt 0 ] || fail "TCP carries nothing"
    pass "$(paths); 48 datagrams of up to 8,928 bytes as by the kernel, $by_kernel by it; TCP $ours Mbit/s"
}

# A port whose card is taken out and put in again.
row_adopt_returns() {
    start_adopt eth1 eth2
    passes_the_kernel 50
    card=$(readlink -f /sys/class/net/eth2/device)
    [ "$driver" != virtio_net ] || card=${card%/*}
    read -r mac </sys/class/net/eth2/address
    echo 1 >"$card/remove"
    until_says adopt 'eth2: the interface is gone'
    echo 1 >/sys/bus/pci/rescan
    end=$(($(date +%s) + 30))
    until name=$(basename "$(dirname "$(grep -l "$mac" /sys/class/net/*/address 2>/dev/null)")" 2>/dev/null) && [ "$name" != . ]; do
        [ "$(date +%s)" -lt $end ] || fail "the card does not come back in 30 s"
        sleep 0.2
    done
    # What udev and whoever configures interfaces do.
    [ "$name" = eth2 ] || ip link set "$name" name eth2
    restore_line || true
    until_says adopt 'eth2: the interface has come back'
    passes_the_kernel 100
    pass "$(paths); after eth2 has come back $share"
}

# What distributions may forbid others, and root may do.
row_adopt_unprivileged() {
    sysctl -qw kernel.unprivileged_bpf_disabled=2
    start_adopt --path tc eth1 eth2
    passes_the_kernel 100
    sysctl -qw kernel.unprivileged_bpf_disabled=0
    pass "with kernel.unprivileged_bpf_disabled=2 $share"
}

# Locks the kernel down, for good: the last rows of a machine.
locked_down() {
    [ -e /sys/kernel/security/lockdown ] || mount -t securityfs securityfs /sys/kernel/security
    [ -e /sys/kernel/security/lockdown ] || skip "this kernel has no lockdown"
    grep -q "\[$1\]" /sys/kernel/security/lockdown || echo $1 >/sys/kernel/security/lockdown
    start_adopt eth1 eth2
    passes_the_kernel 100
    if artery handler state | jq -e '.ports[0].path == "xdp"' >/dev/null && [ $1 = confidentiality ]; then
        grep -q 'are not counted.*lockdown=confidentiality' $work/adopt.log || fail "it is not said that losses are not counted"
    fi
    pass "$(paths); with lockdown=$1 $share"
}

row_adopt_integrity() { locked_down integrity; }
row_adopt_confidentiality() { locked_down confidentiality; }

# A VLAN by 8021q on one of the ports, by which b sends.
add_vlan() {
    ip link add link eth2 name eth2.10 type vlan id 10
    ip link set eth2.10 up
    ip address add 10.0.10.1/24 dev eth2.10
    ip address add 2001:db8:10::1/64 dev eth2.10
    ip -n b link add link eth0 name eth0.10 type vlan id 10
    ip -n b link set eth0.10 up
    ip -n b address add 10.0.10.2/24 dev eth0.10
    ip -n b address add 2001:db8:10::2/64 dev eth0.10
    ip -n b route replace default via 10.0.10.1
    ip -n b route replace default via 2001:db8:10::1
}

# It is a port, too.
vlan() {
    add_vlan
    all_answer a 20 10.0.10.2 2001:db8:10::2
    start_adopt "$@" eth1 eth2 eth2.10
    passes_the_kernel 100 10.0.10.2 2001:db8:10::2
    ours=$(mbits a b 10.0.10.2)
    [ $ours -gt 0 ] || fail "TCP carries nothing"
    pass "$(paths); $share; TCP $ours Mbit/s"
}

row_vlan() { vlan; }
row_vlan_tc() { vlan --path tc; }
row_vlan_xdp() {
    [ "$driver" = virtio_net ] || skip "$driver takes tags off, or has no XDP"
    vlan --path xdp
}
