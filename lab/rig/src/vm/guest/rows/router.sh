# Rows of `artery router`.

ports="--port eth1=10.0.1.1/24,2001:db8:1::1/64 --port eth2=10.0.2.1/24,2001:db8:2::1/64"

start_router() {
    ip address flush dev eth1
    ip address flush dev eth2
    start router router $ports "$@"
    until_answers a 10.0.2.2 router
    until_answers a 2001:db8:2::2 router
}

row_router() {
    measure_kernel
    start_router
    all_answer a 200 10.0.2.2 2001:db8:2::2
    tcp_of_kernel 80
    pass "no ping is lost; $tcp"
}

row_router_kill() {
    start_router
    kill -9 "$(pid router)"
    sleep 0.5
    restore_line || true
    until_answers a 10.0.2.2
    all_answer a 50 10.0.2.2 2001:db8:2::2
    start_router
    all_answer a 50 10.0.2.2 2001:db8:2::2
    pass "after kill -9 the kernel forwards at once, and a new start works"
}

row_router_reload() {
    start_router
    flow there 10.0.2.2
    sleep 1.5
    kill -HUP "$(pid router)"
    lost there
    lives router || fail "SIGHUP ends it: $(tail -n 1 $work/router.log)"
    [ $gone = 0 ] || fail "$gone pings are lost by SIGHUP"
    pass "no ping is lost by SIGHUP"
}

row_balancer() {
    ip -n b address add 10.0.2.3/24 dev eth0
    start_router --nat --service 192.0.2.1:5201/tcp=one=10.0.2.2,two=10.0.2.3
    ip netns exec b iperf3 -s -1 >/dev/null 2>&1 &
    sleep 0.7
    ip netns exec a timeout 30 iperf3 -c 192.0.2.1 -t 2 -P 8 -f m >$work/iperf3.log 2>&1 ||
        fail "TCP to the service fails: $(tail -n 1 $work/iperf3.log)"
    artery flow show >$work/flows.log 2>&1 || fail "flow show: $(tail -n 1 $work/flows.log)"
    for member in one two; do
        grep -qw $member $work/flows.log || fail "no connection of nine is $member's"
    done
    pass "nine connections of TCP, shared out among two servers"
}
