# Rows of `artery up`.

files=$work/etc

# start_switch RULES: a veb with the packet filter between a (10.0.3.2) and b (10.0.3.3).
start_switch() {
    ip -n a address replace 10.0.3.2/24 dev eth0
    ip -n b address replace 10.0.3.3/24 dev eth0
    ip address flush dev eth1
    ip address flush dev eth2
    mkdir -p $files
    printf 'add eth1\nadd eth2\nlink1\nup\n' >$files/hostname.veb0
    echo up >$files/hostname.eth1
    echo up >$files/hostname.eth2
    printf "$1" >$files/pf.conf
    start switch up --etc $files
    until_answers a 10.0.3.3 switch
}

from_a='set skip on lo0\nblock\npass in on eth1\npass out\n'

row_up() {
    measure_kernel
    start_switch "$from_a"
    all_answer a 200 10.0.3.3
    [ "$(answers b 10.0.3.2 20)" = 0 ] || fail "pings that pf.conf blocks pass"
    tcp_of_kernel 80 10.0.3.3
    artery pfctl -s states | grep -q 'tcp 10.0.3.3:5201' || fail "no state of the TCP connection"
    pass "rules and states hold; $tcp"
}

row_up_kill() {
    start_switch "$from_a"
    kill -9 "$(pid switch)"
    sleep 0.5
    restore_line || true
    until_answers a 10.0.2.2
    all_answer a 50 10.0.2.2 2001:db8:2::2
    start_switch "$from_a"
    all_answer a 50 10.0.3.3
    pass "after kill -9 the kernel forwards at once, and a new start works"
}

row_up_reload() {
    start_switch "$from_a"
    [ "$(answers b 10.0.3.2 20)" = 0 ] || fail "pings that pf.conf blocks pass"
    printf 'pass\n' >$files/pf.conf
    kill -HUP "$(pid switch)"
    sleep 3
    lives switch || fail "SIGHUP ends it: $(tail -n 1 $work/switch.log)"
    all_answer b 50 10.0.3.2
    pass "SIGHUP reads pf.conf again"
}
