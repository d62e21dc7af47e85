# Rows about VRFs.

# Echo requests that a host has got.
echoes() { ip netns exec $1 awk '/^Icmp: [0-9]/ { print $10 }' /proc/net/snmp; }

# Two VRFs: red has eth1 and eth2, blue their VLANs 10, with the same addresses and hosts a2 and b2.
make_vrfs() {
    modprobe vrf || skip "this kernel has no VRF"
    modprobe 8021q || skip "this kernel has no VLANs"
    ip link add red type vrf table 100
    ip link add blue type vrf table 200
    for vrf in red blue; do ip link set $vrf up; done
    for table in 100 200; do
        ip route add unreachable default metric 4278198272 table $table
        ip -6 route add unreachable default metric 4278198272 table $table
    done
    for number in 1 2; do
        ip link set eth$number master red
        ip link add link eth$number name eth$number.10 type vlan id 10
        ip link set eth$number.10 master blue
        ip link set eth$number.10 up
        for port in eth$number eth$number.10; do
            # Global addresses of IPv6 are lost on the way into a VRF.
            ip address replace 10.0.$number.1/24 dev $port
            ip address replace 2001:db8:$number::1/64 dev $port nodad
        done
    done
    for side in a b; do
        number=1
        [ $side = a ] || number=2
        ip netns add ${side}2
        ip -n $side link add link eth0 name eth0.10 type vlan id 10
        ip -n $side link set eth0.10 netns ${side}2
        ip -n ${side}2 link set lo up
        ip -n ${side}2 link set eth0.10 up
        ip -n ${side}2 address add 10.0.$number.2/24 dev eth0.10
        ip -n ${side}2 address add 2001:db8:$number::2/64 dev eth0.10 nodad
        ip -n ${side}2 route add default via 10.0.$number.1
        ip -n ${side}2 route add default via 2001:db8:$number::1
    done
    # Leaked both ways: red sends to b2 by a port of blue, which sends back to a by a port of red.
    ip -n a address add 10.0.11.2/24 dev eth0
    ip -n b2 address add 10.0.22.2/24 dev eth0.10
    ip -n a address add 2001:db8:11::2/64 dev eth0 nodad
    ip -n b2 address add 2001:db8:22::2/64 dev eth0.10 nodad
    for table in 100 200; do
        ip route add 10.0.22.0/24 dev eth2.10 table $table
        ip -6 route add 2001:db8:22::/64 dev eth2.10 table $table
    done
    add_routes_to_a
}

add_routes_to_a() {
    for table in 100 200; do
        ip route replace 10.0.11.0/24 dev eth1 table $table
        ip -6 route replace 2001:db8:11::/64 dev eth1 table $table
    done
}

# Waits up to 120 s until the programs of all ports know the routes of their VRFs.
until_fast() {
    end=$(($(date +%s) + 120))
    until artery handler state | jq -e '[.ports[] | .ipv4, .ipv6] | all(. == "fast")' >/dev/null; do
        lives adopt || fail "artery ended: $(tail -n 1 $work/adopt.log)"
        [ "$(date +%s)" -lt $end ] || fail "$(artery handler state | jq -c '[.ports[] | [.name, .ipv4, .ipv6]]')"
        sleep 0.5
    done
}

both_vrfs_answer() {
    all_answer a 100 10.0.2.2 2001:db8:2::2
    all_answer a2 100 10.0.2.2 2001:db8:2::2
    for pair in 10.0.22.2,10.0.11.2 2001:db8:22::2,2001:db8:11::2; do
        got=$(answers a ${pair%,*} 100 -I ${pair#*,})
        [ "$got" = 100 ] || fail "${got:-0} of 100 pings by the leaked route to ${pair%,*} are answered"
    done
}

# What each host has got of pings from a, from a2 and by the leaked route.
who_gets() {
    b_before=$(echoes b)
    b2_before=$(echoes b2)
    answers a 10.0.2.2 50 >/dev/null
    b_between=$(echoes b)
    answers a2 10.0.2.2 30 >/dev/null
    answers a 10.0.22.2 20 -I 10.0.11.2 >/dev/null
    # Neither VRF knows this prefix of the other's, and none answers where the default route refuses.
    answers a2 10.0.22.9 2 -W 1 >/dev/null
    answers a 10.0.33.1 2 -W 1 >/dev/null
    echo $((b_between - b_before)) $(($(echoes b) - b_between)) $(($(echoes b2) - b2_before))
}

vrf_row() {
    make_vrfs
    for host in a a2; do until_answers $host 10.0.2.2; done
    by_kernel_alone=$(who_gets)
    [ "$by_kernel_alone" = "50 0 50" ] || fail "by the kernel alone $by_kernel_alone echoes arrive"
    start_adopt "$@" eth1 eth2
    for host in a a2; do until_answers $host 10.0.2.2 adopt; done
    until_fast
    tables=$(artery handler state | jq -r '[.ports[] | .name + " by table " + (.vrf.table | tostring)] | join(", ")')
    [ "$tables" = "eth1 by table 100, eth1.10 by table 200, eth2 by table 100, eth2.10 by table 200" ] || fail "$tables"
    mostly_past both_vrfs_answer
    shares=$share
    adopted=$(who_gets)
    [ "$adopted" = "$by_kernel_alone" ] || fail "$adopted echoes arrive, and $by_kernel_alone by the kernel alone"
    # A port that moves to the other VRF goes by its table at once: red's way to b is gone for a.
    ip link set eth1 master blue
    ip address replace 10.0.1.1/24 dev eth1
    before=$(echoes b)
    before2=$(echoes b2)
    sleep 1
    answers a 10.0.2.2 20 >/dev/null
    moved=$(($(echoes b) - before))
    [ $moved = 0 ] || fail "$moved pings from a port that has left its VRF arrive by the old table"
    moved=$(($(echoes b2) - before2))
    [ $moved = 20 ] || fail "$moved of 20 pings from a port that has left its VRF arrive by the new table"
    ip link set eth1 master red
    # A link that goes down takes the addresses of IPv6, and those of VLANs on it.
    for port in eth1 eth1.10; do
        ip address replace 10.0.1.1/24 dev $port
        ip address replace 2001:db8:1::1/64 dev $port nodad
    done
    add_routes_to_a
    for host in a a2; do until_answers $host 10.0.2.2 adopt; done
    until_fast
    mostly_past both_vrfs_answer
    # A rule that names the VRF keeps its packets, and no others.
    ip route add 10.0.2.0/24 dev eth2 table 77
    ip rule add iif red lookup 77 priority 500
    sleep 1
    share_of all_answer a 50 10.0.2.2
    [ $past -le 60 ] || fail "a rule for iif red, and $share"
    mostly_past all_answer a2 50 10.0.2.2
    ip rule del iif red lookup 77 priority 500
    ip link del red
    sleep 1
    until_answers a2 10.0.2.2 adopt
    all_answer a2 50 10.0.2.2
    lives adopt || fail "artery ended: $(tail -n 1 $work/adopt.log)"
    pass "$(paths); two VRFs and a route between them: $shares"
}

row_adopt_vrf() { vrf_row; }

row_adopt_vrf_xdp() { vrf_row --path xdp; }
