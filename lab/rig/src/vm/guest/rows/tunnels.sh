# Rows about packets that leave and arrive by tunnels.

of_gre="type gre local 10.0.2.1 remote 10.0.2.2 tos inherit"

# tunnels: gre1 and ipip1 from this machine to b, and what is behind them.
tunnels() {
    modprobe -a ip_gre ipip || skip "this kernel has no GRE or no IPIP"
    ip link add gre1 $of_gre || skip "this kernel has no GRE"
    ip link add ipip1 type ipip local 10.0.2.1 remote 10.0.2.2 ttl 33 tos 0x48 || skip "this kernel has no IPIP"
    ip -n b link add gre1 type gre local 10.0.2.2 remote 10.0.2.1
    ip -n b link add ipip1 type ipip local 10.0.2.2 remote 10.0.2.1
    for tunnel in gre1 ipip1; do
        ip link set $tunnel up
        ip -n b link set $tunnel up
        # Without it what leaves by a port that accepts redirects stays with the kernel.
        sysctl -qw net.ipv4.conf.$tunnel.accept_redirects=0
    done
    ip route add 10.9.0.0/24 dev gre1
    ip -6 route add 2001:db8:9::/64 dev gre1
    ip route add 10.9.1.0/24 dev ipip1
    ip -n b address add 10.9.0.2/32 dev gre1
    ip -n b address add 2001:db8:9::2/128 dev gre1 nodad
    ip -n b address add 10.9.1.2/32 dev ipip1
    # Answers come by gre1, too.
    ip -n b route add 10.0.1.0/24 dev gre1
    ip -n b -6 route add 2001:db8:1::/64 dev gre1
}

# frames.py sends frames from a that differ in all that a tunnel's header depends on, and writes what arrives at b to a file,
# without the identification of outer packets.
tunnel_frames() {
    cat >$work/frames.py <<'P'
import socket, struct, sys, threading, time

ENDS = [socket.inet_aton(end) for end in ("10.9.0.77", "10.9.1.77")]
ENDS.append(socket.inet_pton(socket.AF_INET6, "2001:db8:9::77"))

def total(data):
    data += b"\0" * (len(data) % 2)
    all = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while all >> 16:
        all = (all & 0xffff) + (all >> 16)
    return all

def ipv4(number, to, tos, ttl, flags, payload):
    head = struct.pack("!BBHHHBBH", 0x45, tos, 20 + len(payload), number, flags, ttl, 17, 0)
    head += socket.inet_aton("10.0.1.2") + socket.inet_aton(to)
    return head[:10] + struct.pack("!H", 0xffff ^ total(head)) + head[12:] + payload

def ipv6(tos, ttl, payload):
    head = struct.pack("!IHBB", 6 << 28 | tos << 20 | 77, len(payload), 17, ttl)
    return head + socket.inet_pton(socket.AF_INET6, "2001:db8:1::2") + ENDS[2] + payload

def frames():
    sizes = [8, 9, 18, 26, 100, 1000, 1300, 1428, 1429, 1447, 1448, 1449, 1452, 1456, 1460, 1472]
    for number in range(512):
        tos, ttl = number % 256, 2 + number * 7 % 250
        size = sizes[number % len(sizes)]
        data = struct.pack("!HHHH", 7001, 7002, size, 0) + bytes(number % 251 for _ in range(size - 8))
        flags = 0x4000 if number % 3 else 0
        yield 0x0800, ipv4(number, "10.9.0.77", tos, ttl, flags, data)
        yield 0x0800, ipv4(number, "10.9.1.77", tos, ttl, flags, data)
        if size <= 1432:
            yield 0x86dd, ipv6(tos, ttl, data)

def receive(name, found):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    port.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
    port.bind((name, 0))
    open(sys.argv[2] + ".ready", "w").close()
    # Until the sender begins, which takes long on busy processors.
    port.settimeout(30)
    found.append(None)
    while True:
        try:
            frame = port.recv(65536)
        except TimeoutError:
            return
        # Not what the tunnels' own ends say.
        if frame[12:14] == b"\x08\0" and frame[23] in (4, 47) and any(end in frame for end in ENDS):
            port.settimeout(5)
            assert total(frame[14:34]) == 0xffff, frame.hex()
            found.append(frame[:18] + b"\0\0" + frame[20:24] + b"\0\0" + frame[26:])

if sys.argv[1] == "receive":
    found = []
    receive("eth0", found)
    open(sys.argv[2], "w").write("".join(sorted(frame.hex() + "\n" for frame in found[1:])))
else:
    mac = bytes.fromhex(sys.argv[2].replace(":", ""))
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    port.bind(("eth0", 0))
    own = port.getsockname()[4]
    for count, (kind, packet) in enumerate(frames()):
        frame = mac + own + struct.pack("!H", kind) + packet
        port.send(frame.ljust(60, b"\0") if count % 2 else frame)
        if count % 4 == 0:
            time.sleep(0.002)
P
}

# until_ready NAME: waits until NAME.frames is being received.
until_ready() {
    until [ -e $work/$1.frames.ready ]; do sleep 0.1; done
    rm $work/$1.frames.ready
}

# through_tunnels NAME: what of these frames arrives at b, in NAME.frames.
through_tunnels() {
    ip netns exec b python3 $work/frames.py receive $work/$1.frames &
    receiver=$!
    until_ready $1
    ip netns exec a python3 $work/frames.py send "$(cat /sys/class/net/eth1/address)"
    wait $receiver
}

# counted_by PORT COUNT: its packets that went past the kernel, sent or received.
counted_by() { artery handler state | jq --arg name $1 --arg count $2 '[.ports[] | select(.name == $name) | .[$count]] | add // 0'; }
sent_by() { counted_by $1 sent; }

# is_explained PACKET PORT TEXT: the packet is explained with that text, and goes past the kernel.
is_explained() {
    artery explain --adopt "$1" --in $2 >$work/explained
    grep -q "arrival .* by $2, .*$3" $work/explained && grep -q "= verdict .*past the kernel: leaves by eth1" $work/explained ||
        fail "explained: $(cat $work/explained)"
}

# tunnels_by PATH: the same frames arrive at b as by the kernel alone, nearly all of them past it.
tunnels_by() {
    start_adopt --path $1 eth1 eth2 gre1 ipip1
    until_answers a 10.0.2.2 adopt
    for address in 10.9.0.2 10.9.1.2 2001:db8:9::2; do until_answers a $address adopt; done
    sleep 2
    before_gre=$(sent_by gre1) before_ipip=$(sent_by ipip1)
    through_tunnels $1
    past_gre=$(($(sent_by gre1) - before_gre)) past_ipip=$(($(sent_by ipip1) - before_ipip))
    if ! diff $work/kernel.frames $work/$1.frames >$work/diff; then
        artery handler state | jq -c '.ports[] | [.name, .received, .sent, .kernel]'
        fail "by $1 $(wc -l <$work/$1.frames) frames arrive, by the kernel $(wc -l <$work/kernel.frames): $(head -c 400 $work/diff)"
    fi
    frames=$(wc -l <$work/$1.frames)
    [ $(((past_gre + past_ipip) * 10)) -ge $((frames * 8)) ] || {
        artery handler state | jq -c '.ports[] | [.name, .ipv4, .ipv6, .received, .sent, .kernel]'
        artery handler state | jq -r '.guards[].text'
        fail "$past_gre by gre1 and $past_ipip by ipip1 of $frames frames went past the kernel"
    }
    said="$said; by $1 $past_gre by gre1 and $past_ipip by ipip1 of $frames frames, the same as by the kernel"
}

row_adopt_tunnels() {
    command -v python3 >/dev/null || skip "python3 is not installed"
    tunnels
    tunnel_frames
    until_answers a 10.9.0.2
    until_answers a 10.9.1.2
    through_tunnels kernel
    [ "$(wc -l <$work/kernel.frames)" -gt 1000 ] || fail "the kernel alone: $(wc -l <$work/kernel.frames) frames"
    tunnels_by tc
    by_tcp=$(mbits a b 10.9.0.2)
    [ $by_tcp -gt 0 ] || fail "TCP carries nothing by gre1"
    tunnels_follow
    end_programs
    [ "$driver" != virtio_net ] || tunnels_by xdp
    pass "TCP by gre1 $by_tcp Mbit/s$said"
}

# moves_past NUMBER TEXT: of 50 pings to the address behind gre1 so many at least went by gre1 past the kernel, and so many
# answers, or none where NUMBER is 0; none is lost.
moves_past() {
    # What has changed takes effect in milliseconds, and in a slow machine later.
    sleep 1.5
    before=$(sent_by gre1)
    answered=$(counted_by gre1 received)
    all_answer a 50 10.9.0.2
    past=$(($(sent_by gre1) - before))
    answered=$(($(counted_by gre1 received) - answered))
    if [ $1 = 0 ]; then [ "$past $answered" = "0 0" ] || fail "$2: $past pings and $answered answers went past the kernel"; else
        [ $past -ge $1 ] && [ $answered -ge $1 ] || fail "$2: $past of 50 pings and $answered answers went past the kernel"
    fi
}

# Tunnels, routes, rules and neighbors change while packets go past the kernel.
tunnels_follow() {
    moves_past 45 "as it is"
    ip link change gre1 $of_gre ttl 9
    moves_past 45 "with another TTL"
    ip link change gre1 $of_gre key 5
    ip -n b link change gre1 type gre local 10.0.2.2 remote 10.0.2.1 key 5
    moves_past 0 "with a key"
    ip link change gre1 $of_gre nokey
    ip -n b link change gre1 type gre local 10.0.2.2 remote 10.0.2.1 nokey
    moves_past 45 "without a key again"
    nft -f - <<'N'
table ip out { chain out { type filter hook output priority 0; meta l4proto gre counter; }; }
N
    moves_past 0 "with a rule for packets of the machine"
    nft flush ruleset
    moves_past 45 "without rules"
    ip route change 10.0.2.0/24 dev eth2 proto kernel scope link src 10.0.2.1 mtu 1000
    moves_past 45 "with a route of MTU 1000"
    # The kernel answers the first one, from which the sender learns the MTU.
    answers a 10.9.0.2 1 -s 1200 >/dev/null
    got=$(answers a 10.9.0.2 20 -s 1200)
    [ "$got" = 20 ] || fail "${got:-0} of 20 pings that are longer than the route's MTU are answered"
    ip route change 10.0.2.0/24 dev eth2 proto kernel scope link src 10.0.2.1
    ip link set gre1 down
    ip link set gre1 up
    ip route replace 10.9.0.0/24 dev gre1
    moves_past 45 "after it was down"
    ip link del gre1
    ip link add gre1 $of_gre
    sysctl -qw net.ipv4.conf.gre1.accept_redirects=0
    ip link set gre1 up
    ip route replace 10.9.0.0/24 dev gre1
    ip -6 route replace 2001:db8:9::/64 dev gre1
    moves_past 45 "after it came back"
}

transmitted_by() { cat /sys/class/net/$1/statistics/tx_packets; }

# moves_by PORT TEXT: pings go by gre1 past the kernel, and their outer packets leave by the port.
moves_by() {
    by_port=$(transmitted_by $1)
    moves_past 45 "$2"
    by_port=$(($(transmitted_by $1) - by_port))
    [ $by_port -ge 45 ] || fail "$2: $by_port packets left by $1"
}

# The route of outer packets moves to another port, to another next hop, to nowhere, and to a bridge.
row_adopt_tunnel_routes() {
    modprobe -a bridge veth || skip "this kernel has no bridge or no veth"
    tunnels
    ip link add m1 type veth peer name m1 netns b
    ip link set m1 up
    ip -n b link set m1 up
    ip address add 10.0.4.1/24 dev m1
    ip -n b address add 10.0.4.2/24 dev m1
    ip -n b address add 10.0.2.3/24 dev eth0
    start_adopt --path tc eth1 eth2 m1 gre1
    until_answers a 10.0.2.2 adopt
    until_answers a 10.9.0.2 adopt
    moves_by eth2 "as it is"
    flow moving 10.9.0.2
    sleep 1
    ip route add 10.0.2.2/32 via 10.0.4.2 dev m1
    sleep 1
    ip route replace 10.0.2.2/32 via 10.0.2.3 dev eth2
    sleep 1
    ip route del 10.0.2.2/32
    lost moving
    [ $gone = 0 ] || fail "$gone of 600 pings are lost while the route of outer packets moves"
    ip route add 10.0.2.2/32 via 10.0.4.2 dev m1
    moves_by m1 "by another port"
    ip route replace 10.0.2.2/32 via 10.0.2.3 dev eth2
    moves_by eth2 "by another next hop"
    ip neighbor show 10.0.2.3 | grep -q lladdr || fail "the other next hop was not asked for"
    ip route replace unreachable 10.0.2.2/32
    sleep 1.5
    before=$(sent_by gre1)
    got=$(answers a 10.9.0.2 20 || true)
    past=$(($(sent_by gre1) - before))
    [ "$got $past" = "0 0" ] || fail "without a route $got of 20 pings are answered, and $past went past the kernel"
    ip route del unreachable 10.0.2.2/32
    moves_by eth2 "with its route again"
    kill "$(pid adopt)"
    sleep 1
    ip address flush dev eth2
    ip link add br0 type bridge
    ip link set eth2 master br0
    ip link set br0 up
    ip address add 10.0.2.1/24 dev br0
    start_adopt --path tc eth1 br0 gre1
    until_answers a 10.0.2.2 adopt
    until_answers a 10.9.0.2 adopt
    moves_by eth2 "by a bridge"
    pass "past the kernel by another port, another next hop and a bridge; $gone of 600 pings lost meanwhile"
}

# arriving.py sends frames from b that are of gre1 and ipip1, plain ones and those that the kernel drops, changes or puts together,
# and writes what arrives at a of what is within.
arriving_frames() {
    cat >$work/arriving.py <<'P'
import socket, struct, sys, time

TO4, TO6 = socket.inet_aton("10.0.1.77"), socket.inet_pton(socket.AF_INET6, "2001:db8:1::77")

def total(data):
    data += b"\0" * (len(data) % 2)
    all = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while all >> 16:
        all = (all & 0xffff) + (all >> 16)
    return all

def ipv4(source, to, protocol, payload, number, tos=0, ttl=64, flags=0x4000, more=0, options=b"", wrong=0):
    words = 5 + len(options) // 4
    head = struct.pack("!BBHHHBBH", 0x40 | words, tos, 4 * words + len(payload) + more, number, flags, ttl, protocol, 0)
    head += socket.inet_aton(source) + to + options
    return head[:10] + struct.pack("!H", wrong ^ 0xffff ^ total(head)) + head[12:] + payload

def ipv6(tos, ttl, number, payload, more=0):
    head = struct.pack("!IHBB", 6 << 28 | tos << 20 | number, len(payload) + more, 17, ttl)
    return head + socket.inet_pton(socket.AF_INET6, "2001:db8:9::5") + TO6 + payload

def within(number, of_gre):
    """A packet that is to arrive at a, or a damaged one, and its type."""
    sizes = [8, 9, 18, 26, 100, 1000, 1300, 1400]
    size = sizes[number // 4 % len(sizes)]
    data = struct.pack("!HHHH", 7001, 7002, size, 0) + bytes(number % 251 for _ in range(size - 8))
    tos, ttl = number * 5 % 256, 2 + number * 7 % 250
    kind = number % 29
    ttl = 1 if kind == 3 else ttl
    more = {5: 3, 7: -3}.get(kind, 0)
    if of_gre and number % 3 == 0:
        return 0x86dd, ipv6(tos, ttl, number, data, more)
    source = "10.9.%d.5" % (0 if of_gre else 1)
    source = {11: "127.0.0.5", 13: "10.0.2.1", 17: "10.0.2.2"}.get(kind, source)
    options = b"\1\1\1\0" if kind == 19 else b""
    wrong = 1 if kind == 23 else 0
    return 0x0800, ipv4(source, TO4, 17, data, number, tos, ttl, 0x4000 if number % 2 else 0, more, options, wrong)

def packets():
    for number in range(1200):
        of_gre = number % 2 == 0
        kind, inner = within(number, of_gre)
        flags, options = {10: (0x8000, 4), 22: (0x2000, 4), 34: (0x1000, 4), 46: (0x0001, 0)}.get(number % 60, (0, 0))
        data = struct.pack("!HH", flags, kind) + b"\0" * options + inner if of_gre else inner
        if flags == 0x8000:
            data = data[:4] + struct.pack("!H", 0xffff ^ total(data)) + data[6:]
        protocol = 47 if of_gre else 4
        make = lambda data, **more: ipv4("10.0.2.2", socket.inet_aton("10.0.2.1"), protocol, data, number, **more)
        tos = number // 7 % 4 | (0xb8 if number % 3 else 0)
        case = number % 41
        if case == 4 and len(data) > 64:
            yield make(data[:40], flags=0x2000)
            yield make(data[40:], flags=5)
        elif case == 6:
            yield make(data, options=b"\1\1\1\0")
        elif case == 8:
            yield make(data, wrong=1)
        else:
            yield make(data, tos=tos, ttl=1 if case == 12 else 64)

def receive(name, found):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    port.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
    port.bind((name, 0))
    open(sys.argv[2] + ".ready", "w").close()
    # Until the sender begins, which takes long on busy processors.
    port.settimeout(30)
    while True:
        try:
            frame = port.recv(65536)
        except TimeoutError:
            return
        if frame[30:34] == TO4 and frame[12:14] == b"\x08\0" or frame[38:54] == TO6 and frame[12:14] == b"\x86\xdd":
            port.settimeout(5)
            found.append(frame)

def unfilled(frame):
    """Without what a short frame is filled up with."""
    if len(frame) != 60:
        return frame
    is_ipv4 = frame[12:14] == b"\x08\0"
    end = 14 + (struct.unpack("!H", frame[16:18])[0] if is_ipv4 else 40 + struct.unpack("!H", frame[18:20])[0])
    assert not any(frame[end:]), frame.hex()
    return frame[:end]

if sys.argv[1] == "receive":
    found = []
    receive("eth0", found)
    open(sys.argv[2], "w").write("".join(sorted(unfilled(frame).hex() + "\n" for frame in found)))
    open(sys.argv[2] + ".short", "w").write(str(sum(len(frame) < 60 for frame in found)))
else:
    mac = bytes.fromhex(sys.argv[2].replace(":", ""))
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    port.bind(("eth0", 0))
    own = port.getsockname()[4]
    for count, packet in enumerate(packets()):
        frame = mac + own + b"\x08\0" + packet
        port.send(frame.ljust(60, b"\0") if count % 2 else frame)
        if count % 4 == 0:
            time.sleep(0.002)
P
}

# out_of_tunnels NAME: what of these frames arrives at a, in NAME.frames.
out_of_tunnels() {
    ip netns exec a python3 $work/arriving.py receive $work/$1.frames &
    receiver=$!
    until_ready $1
    ip netns exec b python3 $work/arriving.py send "$(cat /sys/class/net/eth2/address)"
    wait $receiver
}

# arrives_by PATH: the same frames arrive at a as by the kernel alone, most of them past it.
arrives_by() {
    start_adopt --path $1 eth1 eth2 gre1 ipip1
    until_answers a 10.0.2.2 adopt
    for address in 10.9.0.2 10.9.1.2; do until_answers a $address adopt; done
    sleep 2
    before_gre=$(counted_by gre1 received) before_ipip=$(counted_by ipip1 received)
    out_of_tunnels $1
    past_gre=$(($(counted_by gre1 received) - before_gre)) past_ipip=$(($(counted_by ipip1 received) - before_ipip))
    frames=$(wc -l <$work/$1.frames)
    if ! diff $work/kernel.frames $work/$1.frames >$work/diff; then
        artery handler state | jq -c '.ports[] | [.name, .received, .sent, .kernel]'
        fail "by $1 $frames frames arrive, by the kernel $(wc -l <$work/kernel.frames): $(head -c 400 $work/diff)"
    fi
    is_explained "10.9.0.5:7001 > 10.0.1.77:7002 udp" gre1 "a tunnel, whose header programs take off"
    # By tc IPv6 out of GRE needs 6.3; with ECN more stays with the kernel.
    [ $past_ipip -ge $((frames / 8)) ] && [ $past_gre -ge $((frames / 12)) ] || {
        artery handler state | jq -c '.ports[] | [.name, .ipv4, .ipv6, .received, .sent, .kernel]'
        artery handler state | jq -r '.guards[].text'
        fail "by $1 $past_gre out of gre1 and $past_ipip out of ipip1 of $frames frames went past the kernel"
    }
    short=$(cat $work/$1.frames.short)
    # What stays with the kernel is its driver's to fill up, which the one of virtio does not. Bridges between cards may cut off what
    # IPv4 is filled up with (bridge-nf-call-iptables), hubs don't.
    [ $1 = tc ] || [ "$wire" != hub ] || [ $((short * 3)) -lt $((2 * $(cat $work/kernel.frames.short))) ] ||
        fail "by $1 $short frames are shorter than Ethernet's shortest, by the kernel $(cat $work/kernel.frames.short); \
            $past_gre out of gre1 and $past_ipip out of ipip1 of $frames went past it"
    said="$said; by $1 $past_gre out of gre1 and $past_ipip out of ipip1 of $frames frames, the same as by the kernel"
}

row_adopt_tunnels_in() {
    command -v python3 >/dev/null || skip "python3 is not installed"
    tunnels
    arriving_frames
    mac=$(ip netns exec a cat /sys/class/net/eth0/address)
    for address in 10.0.1.77 2001:db8:1::77; do ip neighbor replace $address lladdr $mac dev eth1 nud permanent; done
    until_answers a 10.9.0.2
    until_answers a 10.9.1.2
    out_of_tunnels kernel
    [ "$(wc -l <$work/kernel.frames)" -gt 500 ] || fail "the kernel alone: $(wc -l <$work/kernel.frames) frames"
    arrives_by tc
    # What the kernel stops.
    nft -f - <<'N'
table ip in { chain in { type filter hook input priority 0; meta l4proto gre drop; }; }
N
    stays "with a rule for packets to the machine"
    nft flush ruleset
    sysctl -qw net.ipv4.conf.gre1.rp_filter=1
    ip route add 10.9.0.2/32 dev ipip1
    stays "where its source is routed elsewhere"
    ip route del 10.9.0.2/32
    sysctl -qw net.ipv4.conf.gre1.rp_filter=0 net.ipv4.conf.gre1.forwarding=0
    stays "where the tunnel does not forward"
    sysctl -qw net.ipv4.conf.gre1.forwarding=1
    ip address del 10.0.2.1/24 dev eth2
    ip address add 10.0.2.4/24 dev eth2
    stays "where its outer address is another's"
    ip address del 10.0.2.4/24 dev eth2
    ip address add 10.0.2.1/24 dev eth2
    ip link set gre1 down
    stays "where the tunnel is down"
    ip link set gre1 up
    ip route replace 10.9.0.0/24 dev gre1
    moves_past 45 "as it was"
    end_programs
    [ "$driver" != virtio_net ] || arrives_by xdp
    pass "$said"
}

# stays TEXT: nothing out of gre1 gets from b to a, by the kernel or past it.
stays() {
    sleep 1.5
    ip netns exec a python3 $work/arriving.py receive $work/stays.frames &
    receiver=$!
    until_ready stays
    ip netns exec b ping -q -c 20 -i 0.01 -W 1 -I 10.9.0.2 10.0.1.77 >/dev/null || true
    wait $receiver
    [ ! -s $work/stays.frames ] || fail "$1: $(wc -l <$work/stays.frames) packets arrive"
}

# send_into ADDRESS: packets a second that arrive at p1 and are forwarded to an address, in $rate. All of it is done in line.
send_into() {
    echo rem_device_all >/proc/net/pktgen/kpktgend_0
    echo add_device p0 >/proc/net/pktgen/kpktgend_0
    for word in "count 50000" "pkt_size 60" "delay 0" "src_min 10.0.5.2" "src_max 10.0.5.2" "dst $1" \
        "dst_mac $(cat /sys/class/net/p1/address)"; do echo "$word" >/proc/net/pktgen/p0; done
    echo start >/proc/net/pktgen/pgctrl
    rate=$(sed -n 's/^ *\([0-9]*\)pps.*/\1/p' /proc/net/pktgen/p0)
}

# rates NAME: what goes into each tunnel, and out by no tunnel, in NAME.rates.
rates() {
    for to in m1:10.0.4.3 gre1:10.9.0.77 ipip1:10.9.1.77 ppp0:10.9.2.77; do
        before=$(transmitted_by m1)
        send_into ${to#*:}
        sent=$(($(transmitted_by m1) - before))
        [ $sent -ge 49500 ] || fail "$1: $sent of 50000 packets left by ${to%:*}"
        echo "${to%:*} $rate" >>$work/$1.rates
    done
}

# Packets a second into tunnels, by the kernel and by tc, in line on one processor: p0 sends by the kernel's generator, and what leaves
# by m1 is dropped behind it. In an emulated machine these say only how much there is to do.
row_adopt_tunnel_rates() {
    command -v python3 >/dev/null || skip "python3 is not installed"
    modprobe -a veth ip_gre ipip pppoe pktgen || skip "this kernel has no GRE, IPIP, PPPoE or packet generator"
    [ -e /dev/ppp ] || mknod /dev/ppp c 108 0
    ip link add p0 type veth peer name p1
    ip link add m1 type veth peer name m2
    for link in p0 p1 m1 m2; do
        sysctl -qw net.ipv6.conf.$link.disable_ipv6=1
        ip link set $link up
    done
    ip address add 10.0.5.1/24 dev p1
    ip address add 10.0.4.1/24 dev m1
    for address in 10.0.4.2 10.0.4.3; do ip neighbor add $address lladdr 02:00:00:00:00:77 dev m1; done
    ip link add gre1 type gre local 10.0.4.1 remote 10.0.4.2
    ip link add ipip1 type ipip local 10.0.4.1 remote 10.0.4.2
    session_program
    python3 $work/session.py m1 02:00:00:00:00:77 0x1234 >$work/session.log 2>&1 &
    echo $! >$work/session.pid
    until ip link show ppp0 >/dev/null 2>&1; do
        lives session || fail "no session: $(cat $work/session.log)"
        sleep 0.1
    done
    number=0
    for tunnel in gre1 ipip1 ppp0; do
        ip link set $tunnel up
        sysctl -qw net.ipv4.conf.$tunnel.accept_redirects=0
        ip route add 10.9.$number.0/24 dev $tunnel
        number=$((number + 1))
    done
    sysctl -qw net.ipv4.conf.m1.accept_redirects=0
    rates before
    start_adopt --path tc p1 m1 gre1 ipip1 ppp0 --pppoe ppp0=m1
    sleep 3
    rates adopt
    for tunnel in gre1 ipip1 ppp0; do
        past=$(sent_by $tunnel)
        [ $past -ge 47500 ] || fail "$past of 50000 packets into $tunnel went past the kernel: $(artery handler state | jq -r '.guards[].text')"
        said="$said; $((past / 500)) % into $tunnel past the kernel"
    done
    kill "$(pid adopt)"
    sleep 1
    rates after
    for by in before adopt after; do said="$said; $by $(tr '\n' ' ' <$work/$by.rates)"; done
    pass "packets a second$said"
}
