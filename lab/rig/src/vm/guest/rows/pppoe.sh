# Rows about packets in sessions of PPPoE: eth2 of this machine and eth0 of b carry one, without a daemon.

# session.py LINK PEER NUMBER: holds a session, with an interface of PPP, as pppd leaves them when all is negotiated; without words
# only such an interface.
session_program() {
    cat >$work/session.py <<'P'
import ctypes, fcntl, os, socket, struct, sys, time

def call(file, number, value=0):
    return struct.unpack("i", fcntl.ioctl(file, number, struct.pack("i", value)))[0]

if len(sys.argv) == 1:
    unit = os.open("/dev/ppp", os.O_RDWR)
    call(unit, 0xc004743e, -1)  # PPPIOCNEWUNIT
    time.sleep(1000)
link, peer, number = sys.argv[1].encode(), bytes.fromhex(sys.argv[2].replace(":", "")), int(sys.argv[3], 0)
session = socket.socket(24, socket.SOCK_STREAM, 0)  # AF_PPPOX, PX_PROTO_OE
address = struct.pack("=HI", 24, 0) + struct.pack("!H", number) + peer + link.ljust(16, b"\0")
libc = ctypes.CDLL(None, use_errno=True)
if libc.connect(session.fileno(), address, len(address)):
    sys.exit("connect: " + os.strerror(ctypes.get_errno()))
channel, unit = (os.open("/dev/ppp", os.O_RDWR) for _ in range(2))
call(channel, 0x40047438, call(session, 0x80047437))  # PPPIOCATTCHAN, PPPIOCGCHAN
call(channel, 0x4004743a, call(unit, 0xc004743e, -1))  # PPPIOCCONNECT, PPPIOCNEWUNIT
while True:
    time.sleep(100)
P
}

# begin_session NUMBER [VLAN]: ppp0 here and at b.
begin_session() {
    here=$(cat /sys/class/net/eth2/address)
    there=$(ip netns exec b cat /sys/class/net/eth0/address)
    python3 $work/session.py eth2$2 $there $1 >$work/session.log 2>&1 &
    echo $! >$work/session.pid
    ip netns exec b python3 $work/session.py eth0$2 $here $1 >$work/session-b.log 2>&1 &
    echo $! >$work/session-b.pid
    for try in $(seq 100); do
        if ip link show ppp0 >/dev/null 2>&1 && ip -n b link show ppp0 >/dev/null 2>&1; then break; fi
        sleep 0.1
    done
    ip link show ppp0 >/dev/null || fail "no session: $(cat $work/session.log)"
    sysctl -qw net.ipv4.conf.ppp0.accept_redirects=0
    ip link set ppp0 mtu 1492 up
    ip -n b link set ppp0 mtu 1492 up
    ip address add 10.8.0.1 peer 10.8.0.2 dev ppp0
    ip -n b address add 10.8.0.2 peer 10.8.0.1 dev ppp0
    ip route replace 10.9.0.0/24 dev ppp0
    ip -6 route replace 2001:db8:9::/64 dev ppp0
    ip -n b address add 10.9.0.2/32 dev ppp0
    ip -n b address add 2001:db8:9::2/128 dev ppp0 nodad
    ip -n b route replace 10.0.1.0/24 dev ppp0
    ip -n b -6 route replace 2001:db8:1::/64 dev ppp0
}

end_session() {
    for end in session session-b; do
        kill "$(pid $end)"
        rm $work/$end.pid
    done
    for try in $(seq 100); do
        ip link show ppp0 >/dev/null 2>&1 || ip -n b link show ppp0 >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    fail "ppp0 stays"
}

sessions() {
    command -v python3 >/dev/null || skip "python3 is not installed"
    modprobe pppoe || skip "this kernel has no PPPoE"
    [ -e /dev/ppp ] || mknod /dev/ppp c 108 0
    session_program
    begin_session 0x1234
}

# ppp_frames.py sends frames from a into the session, or from b frames of it, plain ones and those that the kernel drops or takes for
# itself, and writes what arrives at the other end.
ppp_frames() {
    cat >$work/ppp_frames.py <<'P'
import socket, struct, sys, time

A4, B4 = socket.inet_aton("10.0.1.77"), socket.inet_aton("10.9.0.77")
A6, B6 = socket.inet_pton(socket.AF_INET6, "2001:db8:1::77"), socket.inet_pton(socket.AF_INET6, "2001:db8:9::77")
WITH_LENGTH = {b"\x08\0": lambda packet: struct.unpack("!H", packet[2:4])[0],
               b"\x86\xdd": lambda packet: 40 + struct.unpack("!H", packet[4:6])[0]}

def total(data):
    data += b"\0" * (len(data) % 2)
    all = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while all >> 16:
        all = (all & 0xffff) + (all >> 16)
    return all

def ipv4(ends, payload, number, tos, ttl, more=0, options=b""):
    words = 5 + len(options) // 4
    flags = 0x4000 if number % 3 else 0
    head = struct.pack("!BBHHHBBH", 0x40 | words, tos, 4 * words + len(payload) + more, number, flags, ttl, 17, 0)
    head += b"".join(ends) + options
    return head[:10] + struct.pack("!H", 0xffff ^ total(head)) + head[12:] + payload

def ipv6(ends, payload, number, tos, ttl, more=0):
    return struct.pack("!IHBB", 6 << 28 | tos << 20 | number, len(payload) + more, 17, ttl) + b"".join(ends) + payload

def packets(ends4, ends6, odd):
    sizes = [8, 9, 10, 18, 26, 100, 1000, 1300, 1443, 1444, 1445, 1463, 1464, 1465, 1472]
    for number in range(900):
        size = sizes[number % len(sizes)]
        data = struct.pack("!HHHH", 7001, 7002, size, 0) + bytes(number % 251 for _ in range(size - 8))
        tos, ttl = number % 256, 2 + number * 7 % 250
        kind = number % 43 if odd else 0
        ttl = 1 if kind == 3 else ttl
        more = {5: 3, 7: -3}.get(kind, 0)
        options = b"\1\1\1\0" if kind == 9 else b""
        yield number, 0x0800, ipv4(ends4, data, number, tos, ttl, more, options)
        if size <= 1452:
            yield number, 0x86dd, ipv6(ends6, data, number, tos, ttl, more)

def in_session(number, kind, packet):
    """As a session has it, or not quite."""
    case = number % 47
    first = {4: 0x11a7, 6: 0x1100, 8: 0x1100}.get(case, 0x1100)
    session = 0x1235 if case == 10 else 0x1234
    protocol = struct.pack("!H", 0x0021 if kind == 0x0800 else 0x0057)
    protocol = {12: b"\xc0\x21", 14: protocol[1:], 16: b"\0\xfd"}.get(case, protocol)
    length = len(protocol) + len(packet) + {18: 1, 20: -1}.get(case, 0)
    return struct.pack("!HHH", first, session, length) + protocol + packet

def receive(link):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    port.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
    port.bind((link, 0))
    own = port.getsockname()[4]
    open(sys.argv[2] + ".ready", "w").close()
    # Until the sender begins, which takes long on busy processors.
    port.settimeout(30)
    while True:
        try:
            frame = port.recv(65536)
        except TimeoutError:
            return
        kind, packet = frame[12:14], frame[14:]
        if frame[:6] != own:
            continue
        if kind == b"\x88\x64" and (packet[24:28] == B4 or packet[32:48] == B6):
            port.settimeout(5)
            yield frame[:20 + struct.unpack("!H", packet[4:6])[0]]
        elif kind in WITH_LENGTH and (packet[16:20] == A4 or packet[24:40] == A6):
            port.settimeout(5)
            # Not what short frames are filled up with.
            yield frame[:14 + WITH_LENGTH[kind](packet)]

if sys.argv[1] == "receive":
    found = list(receive("eth0"))
    open(sys.argv[2], "w").write("".join(sorted(frame.hex() + "\n" for frame in found)))
else:
    mac = bytes.fromhex(sys.argv[2].replace(":", ""))
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    port.bind(("eth0", 0))
    own = port.getsockname()[4]
    if sys.argv[1] == "into":
        frames = ((kind, packet) for _, kind, packet in packets([socket.inet_aton("10.0.1.2"), B4], [A6[:15] + b"\2", B6], True))
    else:
        frames = ((0x8864, in_session(*packet)) for packet in packets([socket.inet_aton("10.9.0.5"), A4], [B6[:15] + b"\5", A6], True))
    for count, (kind, packet) in enumerate(frames):
        frame = mac + own + struct.pack("!H", kind) + packet
        if len(frame) > 1514:
            continue
        port.send(frame.ljust(60, b"\0") if count % 2 else frame)
        if count % 4 == 0:
            time.sleep(0.002)
P
}

# by_session NAME: what of these frames arrives, in NAME.into at b, and in NAME.out at a.
by_session() {
    ip netns exec b python3 $work/ppp_frames.py receive $work/$1.into &
    receiver=$!
    until [ -e $work/$1.into.ready ]; do sleep 0.1; done
    ip netns exec a python3 $work/ppp_frames.py into "$(cat /sys/class/net/eth1/address)"
    wait $receiver
    ip netns exec a python3 $work/ppp_frames.py receive $work/$1.out &
    receiver=$!
    until [ -e $work/$1.out.ready ]; do sleep 0.1; done
    ip netns exec b python3 $work/ppp_frames.py out "$(cat /sys/class/net/eth2/address)"
    wait $receiver
}

# goes_by PATH: the same frames arrive as by the kernel alone, nearly all of them past it.
goes_by() {
    start_adopt --path $1 eth1 eth2 ppp0 --pppoe ppp0=eth2
    until_answers a 10.9.0.2 adopt
    until_answers a 2001:db8:9::2 adopt
    sleep 2
    into=$(counted_by ppp0 sent) out=$(counted_by ppp0 received)
    by_session $1
    into=$(($(counted_by ppp0 sent) - into)) out=$(($(counted_by ppp0 received) - out))
    for way in into out; do
        diff $work/kernel.$way $work/$1.$way >$work/diff || {
            artery handler state | jq -c '.ports[] | [.name, .received, .sent, .kernel]'
            fail "by $1 $(wc -l <$work/$1.$way) frames arrive ($way), by the kernel $(wc -l <$work/kernel.$way): $(head -c 400 $work/diff)"
        }
    done
    is_explained "10.9.0.5:7001 > 10.0.1.77:7002 udp" ppp0 "a tunnel, whose header programs take off"
    all_into=$(wc -l <$work/$1.into) all_out=$(wc -l <$work/$1.out)
    [ $((into * 10)) -ge $((all_into * 8)) ] && [ $((out * 10)) -ge $((all_out * 8)) ] || {
        artery handler state | jq -c '.ports[] | [.name, .ipv4, .ipv6, .received, .sent, .kernel]'
        artery handler state | jq -r '.guards[].text'
        fail "by $1 $into of $all_into frames into the session and $out of $all_out out of it went past the kernel"
    }
    said="$said; by $1 $into of $all_into frames into the session and $out of $all_out out of it past the kernel, all as by the kernel"
}

# pings_past NUMBER TEXT: of 50 pings so many at least, and so many answers, went past the kernel, or none; none is lost.
pings_past() {
    sleep 1.5
    into=$(counted_by ppp0 sent) out=$(counted_by ppp0 received)
    all_answer a 50 10.9.0.2
    into=$(($(counted_by ppp0 sent) - into)) out=$(($(counted_by ppp0 received) - out))
    if [ $1 = 0 ]; then [ "$into $out" = "0 0" ] || fail "$2: $into pings and $out answers went past the kernel"; else
        [ $into -ge $1 ] && [ $out -ge $1 ] || fail "$2: $into of 50 pings and $out answers went past the kernel"
    fi
}

row_adopt_pppoe() {
    sessions
    ppp_frames
    mac=$(ip netns exec a cat /sys/class/net/eth0/address)
    for address in 10.0.1.77 2001:db8:1::77; do ip neighbor replace $address lladdr $mac dev eth1 nud permanent; done
    until_answers a 10.9.0.2
    until_answers a 2001:db8:9::2
    by_session kernel
    for way in into out; do
        [ "$(wc -l <$work/kernel.$way)" -gt 1000 ] || fail "the kernel alone: $(wc -l <$work/kernel.$way) frames ($way)"
    done
    goes_by tc
    sessions_follow
    end_programs
    begin_session 0x1234
    [ "$driver" != virtio_net ] || goes_by xdp
    end_programs
    by_vlan tc
    [ "$driver" != virtio_net ] || by_vlan xdp
    pass "$said"
}

# by_vlan PATH: a session in a VLAN.
by_vlan() {
    ip link add link eth2 name eth2.10 type vlan id 10
    ip -n b link add link eth0 name eth0.10 type vlan id 10
    ip link set eth2.10 up
    ip -n b link set eth0.10 up
    begin_session 0x1234 .10
    start_adopt --path $1 eth1 eth2 ppp0 --pppoe ppp0=eth2.10
    until_answers a 10.9.0.2 adopt
    pings_past 45 "in a VLAN by $1"
    end_programs
    ip link del eth2.10
    ip -n b link del eth0.10
}

# Another interface gets the name ppp0 before the session begins: its packets are no packets of the session.
name_is_taken() {
    python3 $work/session.py &
    echo $! >$work/session.pid
    until ip link show ppp0 >/dev/null 2>&1; do sleep 0.1; done
    ip link set ppp0 up
    ip route replace 10.9.0.0/24 dev ppp0
    sleep 3
    python3 $work/session.py eth2 $there 0x1234 >$work/session-b.log 2>&1 &
    echo $! >$work/session-b.pid
    until ip link show ppp1 >/dev/null 2>&1; do sleep 0.1; done
    sleep 3
    into=$(counted_by ppp0 sent)
    answers a 10.9.0.2 20 >/dev/null || true
    [ "$(counted_by ppp0 sent)" = "$into" ] || fail "packets for another ppp0 went into the session"
    artery handler state | jq -r '.guards[].text' | grep -q "ppp0 was there without the session at eth2" ||
        fail "no line says that ppp0 is another"
    end_session
}

# Sessions, filters and connections change while packets go past the kernel.
sessions_follow() {
    pings_past 45 "as it is"
    end_session
    begin_session 0x4321
    pings_past 45 "with another session"
    end_session
    name_is_taken
    begin_session 0x1234
    pings_past 45 "with its session again"
    nft -f - <<'N'
table inet filter { chain forward { type filter hook forward priority 0; counter; }; }
N
    pings_past 0 "with a rule that counts"
    nft flush ruleset
    tc qdisc add dev ppp0 root tbf rate 100mbit burst 16k latency 50ms
    into=$(counted_by ppp0 sent)
    all_answer a 50 10.9.0.2
    [ "$(counted_by ppp0 sent)" = "$into" ] || fail "packets go past the queueing of ppp0"
    tc qdisc del dev ppp0 root
    pings_past 45 "without it again"
    # As home gateways have it.
    nft -f - <<'N'
table inet fw {
    chain forward {
        type filter hook forward priority 0; policy drop;
        tcp flags syn tcp option maxseg size set rt mtu
        ct state established,related accept
        iifname "eth1" oifname "ppp0" accept
    }
    chain nat { type nat hook postrouting priority 100; oifname "ppp0" masquerade; }
}
N
    # The kernel is to take segments out of window for valid.
    sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=1
    ip -n b route del 10.0.1.0/24
    sleep 2
    before=$(artery handler state | jq '[.ports[].established] | add')
    by_tcp=$(mbits a b 10.9.0.2)
    [ $by_tcp -gt 0 ] || fail "TCP carries nothing by the session"
    past=$(($(artery handler state | jq '[.ports[].established] | add') - before))
    [ $past -gt 100 ] || {
        artery handler state | jq -c '.ports[] | [.name, .ipv4, .ipv6, .received, .sent, .kernel]'
        artery handler state | jq -r '.guards[].text'
        fail "with a home gateway's rules $past packets went past the kernel"
    }
    nft flush ruleset
    sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=0
    ip -n b route replace 10.0.1.0/24 dev ppp0
    pings_past 45 "without rules"
    said="$said; with a home gateway's rules TCP $by_tcp Mbit/s, $past packets past them"
}
