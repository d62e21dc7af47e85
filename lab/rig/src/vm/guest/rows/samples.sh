# Rows of samples for the kernel's PSAMPLE group, read as hsflowd does.

# Prints each sample in a line: kinds of attributes with their lengths, interfaces, size, group, number, rate, first bytes.
# After "listening" none is missed.
read_samples() {
    timeout 60 python3 - "$1" <<'END'
import socket, struct, sys
def attributes(data):
    while len(data) >= 4:
        length, kind = struct.unpack_from('=HH', data)
        yield kind & 0x3fff, data[4:length]
        data = data[(length + 3) & ~3:]
sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
sock.bind((0, 0))
name = b'psample\0'
body = struct.pack('=BBHHH', 3, 1, 0, 4 + len(name), 2) + name
sock.send(struct.pack('=IHHII', 16 + len(body), 16, 1, 1, 0) + body)
found = dict(attributes(sock.recv(65536)[20:]))
groups = [dict(attributes(entry)) for _, entry in attributes(found[7])]
group = next(struct.unpack('=I', g[2])[0] for g in groups if g[1] == b'packets\0')
sock.setsockopt(270, 1, group)
print('listening', flush=True)
for _ in range(int(sys.argv[1])):
    given = dict(attributes(sock.recv(65536)[20:]))
    number = lambda kind: int.from_bytes(given.get(kind, b'\0'), sys.byteorder)
    kinds = ','.join(f'{kind}:{len(value)}' for kind, value in sorted(given.items()) if kind < 6)
    print(kinds, *(number(kind) for kind in range(6)), given[6].hex(), flush=True)
END
}

# listen COUNT: reads so many samples into samples.txt.
listen() {
    read_samples $1 >$work/samples.txt 2>$work/samples.log &
    listener=$!
    end=$(($(date +%s) + 30))
    until grep -q listening $work/samples.txt; do
        [ "$(date +%s)" -lt $end ] || fail "no listener: $(tail -n 1 $work/samples.log)"
        sleep 0.2
    done
}

# What the kernel writes of a frame at lo, whose filter samples all, is written as ours are.
as_the_kernel_writes() {
    tc qdisc add dev lo clsact
    tc filter add dev lo ingress matchall action sample rate 1 group 8 || skip "this kernel has no sample action"
    listen 2
    ping -q -c 1 127.0.0.1 >/dev/null
    wait $listener || fail "the kernel's own samples don't come"
    tc qdisc del dev lo clsact
    kernel=$(awk '$5 == 8 { print $1; exit }' $work/samples.txt)
}

# samples_are_right NAME: 200 packets of pings between a and b, one of 10 sampled.
samples_are_right() {
    listen 16
    all_answer a 50 10.0.2.2 2001:db8:2::2
    wait $listener || fail "$(grep -vc listening $work/samples.txt) samples of 16 came"
    one=$(cat /sys/class/net/eth1/ifindex) two=$(cat /sys/class/net/eth2/ifindex)
    mac() { tr -d : </sys/class/net/$1/address; }
    wrong=$(awk -v kernel="$kernel" -v there="$one $two $(mac eth1)" -v back="$two $one $(mac eth2)" '
        $1 == "listening" { next }
        {
            number = $6; way = $2 " " $3 " " substr($8, 1, 12)
            if (way != there && way != back) print "interfaces or frame: " $0
            else if ($4 != 98 && $4 != 118 || length($8) != 2 * $4) print "size: " $0
            else if ($5 != 7 || $7 != 10) print "group or rate: " $0
            else if (seen++ && number != last + 1) print "number: " $0
            else if (index($1, substr(kernel, index(kernel, "2:"))) == 0) print "kinds, beside " kernel ": " $0
            last = number
        }' $work/samples.txt | head -n 1)
    [ -z "$wrong" ] || fail "$wrong"
}

row_psample_router() {
    modprobe -a psample act_sample 2>/dev/null || skip "this kernel has no PSAMPLE"
    command -v python3 >/dev/null || skip "no python3, which listens"
    as_the_kernel_writes
    start_router --psample 10,group=7
    samples_are_right
    pass "16 samples are as those of the kernel ($kernel)"
}

row_psample_adopt() {
    modprobe -a psample act_sample 2>/dev/null || skip "this kernel has no PSAMPLE"
    command -v python3 >/dev/null || skip "no python3, which listens"
    as_the_kernel_writes
    start_adopt eth1 eth2 --psample 10,group=7
    passes_the_kernel 20
    samples_are_right
    pass "$(paths); 16 samples are as those of the kernel ($kernel)"
}
