# Rows about what may be beside an adopted port and keeps traffic with the kernel: nothing may be lost.

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

row_beside_vrf() {
    modprobe vrf || skip "this kernel has no VRF"
    ip link add vrf1 type vrf table 100
    ip link set vrf1 up
    for port in eth1 eth2; do
        ip link set $port master vrf1
    done
    # Global addresses of IPv6 are lost on the way into a VRF.
    ip address replace 2001:db8:1::1/64 dev eth1
    ip address replace 2001:db8:2::1/64 dev eth2
    stays_with_kernel 10.0.2.2 2001:db8:2::2
}

row_beside_bond() {
    modprobe bonding max_bonds=0 || skip "this kernel has no bonding"
    ip address flush dev eth2
    ip link add bond0 type bond mode active-backup miimon 100
    ip link set eth2 down
    ip link set eth2 master bond0
    ip link set bond0 up
    ip address add 10.0.2.1/24 dev bond0
    ip address add 2001:db8:2::1/64 dev bond0
    until_answers a 10.0.2.2
    stays_with_kernel 10.0.2.2 2001:db8:2::2
}

row_beside_flowtable() {
    command -v nft >/dev/null || skip "nft is not installed"
    nft -f - <<'N'
table inet beside {
    flowtable fast { hook ingress priority 0; devices = { eth1, eth2 }; }
    chain forward {
        type filter hook forward priority 0; policy accept;
        ct state established flow add @fast
    }
}
N
    stays_with_kernel 10.0.2.2 2001:db8:2::2
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
