# Rows about bonds, and about what may be beside an adopted port and keeps traffic with the kernel: nothing may be lost.

# stays_with_kernel ADDRESS…: pings to b and TCP to the first address lose nothing, and all go by the kernel.
stays_with_kernel() {
    start_adopt eth1 eth2
    sleep 1
    all_answer a 100 "$@"
    past=$(forwarded_past_kernel)
    [ "$past" = 0 ] || fail "$past packets went past the kernel"
    ours=$(mbits a b $1)
    [ $ours -gt 0 ] || fail "TCP carries nothing"
    past=$(forwarded_past_kernel)
    [ "$past" = 0 ] || fail "$past packets of TCP went past the kernel"
    pass "nothing is lost, all by the kernel; TCP $ours Mbit/s"
}

# share_of COMMAND…: runs it, and sets $share to what of it the kernel forwarded itself, and $past to what went past it.
share_of() {
    share_before=$(($(ipv4_by_kernel) + $(ipv6_by_kernel)))
    past_before=$(forwarded_past_kernel)
    "$@"
    by_kernel=$(($(ipv4_by_kernel) + $(ipv6_by_kernel) - share_before))
    past=$(($(forwarded_past_kernel) - past_before))
    share="$past past the kernel, $by_kernel by it"
}

# mostly_past COMMAND…: the same, and at most a few percent go by the kernel; three tries, as programs are loaded slowly here.
mostly_past() {
    for try in 1 2 3; do
        sleep $try
        share_of "$@"
        if [ $((by_kernel * 100)) -le $((past * few)) ] && [ $past -gt 0 ]; then return 0; fi
    done
    artery handler state | jq -c '.ports[] | [.name, .path, .ipv4, .ipv6, .received, .sent, .kernel]' || true
    fail "$share: $*"
}

# make_bond MODE OPTIONS…: bond0 has eth2, or $first, and one end of a veth, whose other end is in b.
make_bond() {
    modprobe bonding max_bonds=0 || skip "this kernel has no bonding"
    ip address flush dev eth2
    ip link add m1 type veth peer name m2 netns b
    ip link add bond0 type bond mode "$@"
    for member in ${first:-eth2} m1; do
        ip link set $member down
        ip link set $member master bond0
    done
    ip link set bond0 up
    ip address add 10.0.2.1/24 dev bond0
    ip address add 2001:db8:2::1/64 dev bond0 nodad
}

# Gives b's addresses to an interface that has both their ends: $1.
b_uses() {
    ip -n b address flush dev eth0
    for member in ${their_first:-eth0} m2; do
        ip -n b link set $member down
        ip -n b link set $member master $1
        ip -n b link set $member up
    done
    ip -n b link set $1 up
    ip -n b address add 10.0.2.2/24 dev $1
    ip -n b address add 2001:db8:2::2/64 dev $1 nodad
    ip -n b route replace default via 10.0.2.1
    ip -n b route replace default via 2001:db8:2::1
}

# answers_at_backup: how many of 50 answers of b to a pass that the switch sends to the member m1.
answers_at_backup() {
    mac=$(cat /sys/class/net/bond0/address)
    ip netns exec b bridge fdb replace $mac dev m2 master static sticky
    got=$(answers a 10.0.2.2 50)
    ip netns exec b bridge fdb del $mac dev m2 master
    echo "${got:-0}"
}

# nothing_at_backup: none passes.
nothing_at_backup() {
    got=$(answers_at_backup)
    [ $got = 0 ] || fail "$got of 50 answers pass that arrive at the member which the bond does not use"
}

# One switch behind both members; the second is the backup, and what arrives there the kernel does not take.
row_adopt_bond() {
    modprobe bridge || skip "this kernel has no bridge"
    make_bond active-backup miimon 100 primary eth2
    ip -n b link add br0 type bridge
    b_uses br0
    until_answers a 10.0.2.2
    # So it is by the kernel alone.
    nothing_at_backup
    until_answers a 10.0.2.2
    start_adopt eth1 bond0
    until_answers a 10.0.2.2 adopt
    mostly_past all_answer a 100 10.0.2.2 2001:db8:2::2
    shares=$share
    nothing_at_backup
    until_answers a 10.0.2.2 adopt
    flow there 10.0.2.2
    sleep 1.5
    ip link set eth2 down
    lost there
    # The kernel sees after 100 ms that a member is down, and sends an announcement.
    [ $gone -le 60 ] || fail "$gone of 600 pings are lost with a member"
    [ "$(cat /sys/class/net/bond0/bonding/active_slave)" = m1 ] || fail "the other member is not in use"
    mostly_past all_answer a 100 10.0.2.2
    pass "$(paths); active-backup: $shares; nothing of the backup member passes; $gone pings lost with the other one"
}

# By XDP what arrives at a bond stays, since programs of members would forward what the bond does not take.
row_adopt_bond_xdp() {
    modprobe bridge || skip "this kernel has no bridge"
    make_bond active-backup miimon 100 primary eth2
    ip -n b link add br0 type bridge
    b_uses br0
    until_answers a 10.0.2.2
    start adopt adopt --path xdp eth1 bond0
    end=$(($(date +%s) + 90))
    until grep -q "$started" $work/adopt.log || ! lives adopt; do
        [ "$(date +%s)" -lt $end ] || fail "neither a success nor a refusal in 90 s"
        sleep 0.2
    done
    lives adopt || pass "refused: $(tail -n 1 $work/adopt.log)"
    until_answers a 10.0.2.2 adopt
    sleep 2
    all_answer a 100 10.0.2.2
    nothing_at_backup
    pass "$(paths); nothing passes that arrives at the member which the bond does not use"
}

row_adopt_bond_xor() {
    make_bond balance-xor miimon 100 xmit_hash_policy layer3+4
    ip -n b link add bond1 type bond mode balance-xor miimon 100 xmit_hash_policy layer3+4
    b_uses bond1
    until_answers a 10.0.2.2
    start_adopt eth1 bond0
    until_answers a 10.0.2.2 adopt
    mostly_past all_answer a 100 10.0.2.2 2001:db8:2::2
    ours=$(mbits a b 10.0.2.2)
    [ $ours -gt 0 ] || fail "TCP carries nothing"
    pass "$(paths); balance-xor: $share; TCP $ours Mbit/s"
}

# until_joined: both members are in the aggregator in use.
until_joined() {
    end=$(($(date +%s) + 60))
    until [ "$(cat /sys/class/net/bond0/bonding/ad_num_ports)" = 2 ]; do
        [ "$(date +%s)" -lt $end ] || fail "$(cat /sys/class/net/bond0/bonding/ad_num_ports) of 2 members are joined"
        sleep 0.5
    done
    sleep 1
}

# lost_with_member: how many of 600 pings are lost when b takes the link of a member away; sets $gone.
lost_with_member() {
    until_joined
    until_answers a 10.0.2.2
    flow there 10.0.2.2
    sleep 1.5
    ip -n b link set m2 down
    lost there
    [ "$(cat /sys/class/net/bond0/bonding/ad_num_ports)" = 1 ] || fail "the member is still in use"
}

# lacp_bond [vlan [VRF]]: a bond with LACP, or a VLAN on it, in a VRF or in none, as at the edge of a data centre.
lacp_bond() {
    # What joins the cards of a machine may keep LACPDUs, as bridges do.
    first=m3
    their_first=m4
    ip link add m3 type veth peer name m4 netns b
    make_bond 802.3ad miimon 100 lacp_rate fast xmit_hash_policy layer3+4
    ip -n b link add bond1 type bond mode 802.3ad miimon 100 lacp_rate fast xmit_hash_policy layer3+4
    b_uses bond1
    ports="eth1 bond0"
    if [ $# -gt 0 ]; then
        modprobe 8021q || skip "this kernel has no VLANs"
        tag bond0 1
        netns=b tag bond1 2
        ip -n b route replace default via 10.0.2.1
        ip -n b route replace default via 2001:db8:2::1
        ports="$ports bond0.10"
    fi
    [ $# -lt 2 ] || into_vrf $2 eth1 1 bond0.10 2
    lost_with_member
    by_kernel_alone=$gone
    ip -n b link set m2 up
    until_joined
    until_answers a 10.0.2.2
    start_adopt $ports
    until_answers a 10.0.2.2 adopt
    mostly_past all_answer a 100 10.0.2.2 2001:db8:2::2
    shares=$share
    # Without LACPDUs for 3 s a member would leave.
    sleep 4
    lost_with_member
    [ $gone -le $((by_kernel_alone + handful)) ] ||
        fail "$gone pings are lost with a member, by the kernel alone $by_kernel_alone"
    mostly_past all_answer a 100 10.0.2.2
    ours=$(mbits a b 10.0.2.2)
    [ $ours -gt 0 ] || fail "TCP carries nothing"
    pass "$(paths); ${1:-bond} of 802.3ad${2:+ in a VRF}: $shares; $gone pings lost with a member, by the kernel alone $by_kernel_alone; TCP $ours Mbit/s"
}

row_adopt_bond_lacp() { lacp_bond; }
row_adopt_bond_vlan() { lacp_bond vlan; }
row_adopt_bond_vlan_vrf() { lacp_bond vlan blue; }

# into_vrf NAME DEVICE NUMBER…: puts devices, with the addresses of their networks, into a VRF of its own.
into_vrf() {
    modprobe vrf || skip "this kernel has no VRF"
    vrf=$1
    ip link add $vrf type vrf table 200
    ip link set $vrf up
    shift
    while [ $# -gt 0 ]; do
        ip link set $1 master $vrf
        # Global addresses of IPv6 are lost on the way.
        ip address replace 2001:db8:$2::1/64 dev $1 nodad
        shift 2
    done
}

# tag DEVICE NUMBER: moves the addresses of a bond to its VLAN 10, in the network namespace $netns.
tag() {
    on="${netns:+-n $netns}"
    ip $on address flush dev $1
    ip $on link add link $1 name $1.10 type vlan id 10
    ip $on link set $1.10 up
    ip $on address add 10.0.2.$2/24 dev $1.10
    ip $on address add 2001:db8:2::$2/64 dev $1.10 nodad
}

# A bridge with an address: b behind the card, c behind a veth. What goes between these two is bridged, the rest is routed.
row_adopt_bridge() {
    modprobe bridge || skip "this kernel has no bridge"
    ip address flush dev eth2
    ip link add br0 type bridge
    ip netns add c
    ip link add m1 type veth peer name eth0 netns c
    for member in eth2 m1; do
        ip link set $member master br0
        ip link set $member up
    done
    ip link set br0 up
    ip address add 10.0.2.1/24 dev br0
    ip address add 2001:db8:2::1/64 dev br0 nodad
    ip -n c link set eth0 up
    ip -n c address add 10.0.2.3/24 dev eth0
    ip -n c address add 2001:db8:2::3/64 dev eth0 nodad
    ip -n c route add default via 10.0.2.1
    ip -n c route add default via 2001:db8:2::1
    until_answers a 10.0.2.2
    start_adopt eth1 br0
    until_answers a 10.0.2.2 adopt
    until_answers a 10.0.2.3 adopt
    mostly_past all_answer a 100 10.0.2.2 2001:db8:2::2
    shares=$share
    mostly_past all_answer a 100 10.0.2.3 2001:db8:2::3
    all_answer b 20 10.0.2.3 2001:db8:2::3
    ours=$(mbits a b 10.0.2.2)
    [ $ours -gt 0 ] || fail "TCP carries nothing"
    pass "$(paths); behind the card: $shares; behind the veth: $share; TCP $ours Mbit/s"
}

row_adopt_bond_arp() {
    modprobe bridge || skip "this kernel has no bridge"
    make_bond active-backup arp_interval 200 arp_ip_target 10.0.2.2 arp_validate all
    ip -n b link add br0 type bridge
    b_uses br0
    until_answers a 10.0.2.2
    start_adopt eth1 bond0
    until_answers a 10.0.2.2 adopt
    failures() { awk '/Link Failure Count/ { sum += $4 } END { print sum + 0 }' /proc/net/bonding/bond0; }
    before=$(failures)
    mostly_past all_answer a 300 10.0.2.2
    sleep 2
    [ "$(failures)" = "$before" ] || fail "ARP monitoring lost a member: $before failures, then $(failures)"
    pass "$(paths); ARP monitoring: $share; no member lost"
}

# A flow table for b, behind masquerading. The counter behind the statement would keep all connections in the kernel.
flow_table() {
    nft -f - <<'N'
table inet fast {
    counter seen { }
    flowtable both { hook ingress priority 0; devices = { eth1, eth2 }; }
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established flow add @both
        counter name seen
        ct state established,related accept
        iifname eth1 accept
    }
    chain out {
        type nat hook postrouting priority 100;
        meta nfproto ipv4 oifname eth2 masquerade
    }
}
N
}

# Packets that came to the counter: those of connections that the kernel has in no flow table, or that end.
seen() { nft list counter inet fast seen | sed -n 's/.*packets \([0-9]*\).*/\1/p'; }

# through_flow_table: a connection of TCP, one of UDP that lasts longer than the flow table keeps it without packets, and pings;
# sets $tcp, $udp and $seen_of_pings. Nothing from b comes in that is not asked for.
through_flow_table() {
    tcp=$(mbits a b 10.0.2.2)
    [ $tcp -gt 0 ] || fail "TCP carries nothing"
    ip netns exec b iperf3 -s -1 >/dev/null 2>&1 &
    server=$!
    sleep 0.7
    udp=$(ip netns exec a timeout 90 iperf3 -c 10.0.2.2 -u -b 500K -l 200 -t 45 |
        sed -n 's/.* \([0-9]*\/[0-9]*\) .*receiver/\1/p')
    wait $server || true
    # The last packets of connections are counted, too.
    end=$(($(date +%s) + 20))
    while true; do
        connections=$(conntrack -L -p tcp 2>&1) || fail "conntrack: $connections"
        case $connections in *ESTABLISHED*) ;; *) break ;; esac
        [ "$(date +%s)" -lt $end ] || fail "a connection that was closed is established: $connections"
        sleep 0.5
    done
    before=$(seen)
    all_answer a 100 10.0.2.2 2001:db8:2::2
    seen_of_pings=$(($(seen) - before))
    [ "$(answers b 10.0.1.2 3)" = 0 ] || fail "a ping from outside is answered"
    # A machine that is emulated on busy processors loses some, whoever forwards.
    [ -n "$udp" ] && [ $((${udp%/*} * 4)) -le ${udp#*/} ] || fail "UDP lost '$udp'"
}

row_adopt_flowtable() {
    command -v nft >/dev/null || skip "nft is not installed"
    command -v conntrack >/dev/null || skip "conntrack is not installed"
    flow_table || skip "this kernel has no flow tables of nft"
    until_answers a 10.0.2.2
    through_flow_table
    alone="the kernel alone: TCP $tcp Mbit/s, UDP lost $udp, $seen_of_pings packets of pings counted"
    alone_of_pings=$seen_of_pings
    start_adopt eth1 eth2
    until_answers a 10.0.2.2 adopt
    sleep 2
    kept() { artery handler state | jq '[.ports[].kernel | add // 0] | add'; }
    past_rules() { artery handler state | jq '[.ports[].established] | add'; }
    before_kept=$(kept) before_past=$(past_rules)
    through_flow_table
    kept=$(($(kept) - before_kept)) past=$(($(past_rules) - before_past))
    with="TCP $tcp Mbit/s, UDP lost $udp, $seen_of_pings packets of pings counted"
    # Pings are in no flow table: the counter counts each of them.
    [ $seen_of_pings = $alone_of_pings ] || fail "$with; $alone"
    # Pings, first and last packets, what renews entries, and all while the machine stands still for a second: without consent
    # nothing goes past the counter.
    [ $((kept * 2)) -le $past ] && [ $past -gt 10000 ] ||
        fail "$past packets went past the rules, $kept stayed with the kernel: $(artery handler state | jq -c '[.ports[].kernel]')"
    pass "$(paths); $past packets past the rules, $kept by the kernel; $with; $alone"
}

row_beside_wireguard() {
    command -v wg >/dev/null || skip "wireguard-tools is not installed"
    modprobe wireguard || skip "this kernel has no WireGuard"
    wg genkey >$work/r.key
    wg genkey >$work/b.key
    ip link add wg0 type wireguard
    wg set wg0 private-key $work/r.key listen-port 51820 \
        peer "$(wg pubkey <$work/b.key)" endpoint 10.0.2.2:51820 allowed-ips 10.9.0.2/32
    ip address add 10.9.0.1/24 dev wg0
    ip link set wg0 up
    ip -n b link add wg0 type wireguard
    ip netns exec b wg set wg0 private-key $work/b.key listen-port 51820 \
        peer "$(wg pubkey <$work/r.key)" endpoint 10.0.2.1:51820 allowed-ips 0.0.0.0/0
    ip -n b address add 10.9.0.2/24 dev wg0
    ip -n b link set wg0 up
    ip -n b route add 10.0.1.0/24 dev wg0
    until_answers a 10.9.0.2
    stays_with_kernel 10.9.0.2
}
