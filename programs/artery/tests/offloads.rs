//! Hosts with default offloads on both sides of a router: frames longer than the MTU,
//! with checksums half made.
use crate::support::host::{Host, has, wait};
use crate::support::{Folder, Router};
use artery_wire::{Ethernet, IpProtocol, Ipv4, checksum};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

const ROUTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conf/router.click");

/// Frames of each interface leave by the other.
const CABLE: &str = "
    FromDevice(left, SNIFFER false, PROMISC true) -> from_left :: Counter -> Queue -> ToDevice(right);
    FromDevice(right, SNIFFER false, PROMISC true) -> from_right :: Counter -> Queue -> ToDevice(left);";

/// What one side sends the other in a TCP connection.
const BYTES: usize = 6_000_000;

/// Longest time that nothing may come in.
const PATIENCE: Duration = Duration::from_secs(10);

/// Three hosts in a row: a left and a right one, and between them the one that the router runs on, by its
/// interfaces `left` and `right`.
struct Row {
    left: Host,
    middle: Host,
    right: Host,
    folder: Folder,
}

impl Row {
    fn new(mtu: u32) -> Option<Row> {
        let (left, middle, right) = (Host::new()?, Host::new()?, Host::new()?);
        middle.cable("left", &left, "eth0", mtu);
        middle.cable("right", &right, "eth0", mtu);
        Some(Row { left, middle, right, folder: Folder::new() })
    }

    /// Gives the hosts addresses in two networks that `conf/router.click` joins.
    fn in_two_networks(self) -> Row {
        self.left.run("ip addr add 10.0.1.2/24 dev eth0\nip route add default via 10.0.1.1");
        self.right.run("ip addr add 10.0.2.2/24 dev eth0\nip route add default via 10.0.2.1");
        self
    }

    /// Gives the hosts addresses in one network.
    fn in_one_network(self) -> Row {
        for (host, number) in [(&self.left, 1), (&self.right, 2)] {
            host.run(&format!(
                "ip addr add 10.0.0.{number}/24 dev eth0
                 ip -6 addr add fd00::{number}/64 dev eth0 nodad"
            ));
        }
        self
    }

    /// Makes the middle's kernel finish what the router leaves undone, and the hosts check every sum.
    fn without_trust(self) -> Option<Row> {
        if !has("ethtool") {
            return None;
        }
        self.middle.run("ethtool -K left tx off\nethtool -K right tx off");
        self.left.run("ethtool -K eth0 rx off");
        self.right.run("ethtool -K eth0 rx off");
        Some(self)
    }

    fn start(&self, args: &[&str]) -> Router {
        let socket = self.folder.path("s");
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        self.middle.call(move || {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            Router::start(&socket, &args)
        })
    }

    fn start_router(&self) -> Router {
        self.start(&["--device", "eth0=left", "--device", "eth1=right", ROUTER])
    }

    /// Sends bytes both ways over a TCP connection from the left host to an address of the right one.
    fn tcp(&self, address: &str) {
        tcp(&self.left, &self.right, address);
    }

    /// Sends by TCP, with right checksums, and in fewer packets than segments of so many bytes. A sender
    /// whose processor others use may join none, and send some twice: it has five tries.
    fn expect_joined(&self, to: &str, router: &Router, counter: &str, segment: usize) {
        let mut counts = vec![0];
        let is_joined = (0..5).any(|_| {
            self.tcp(to);
            self.expect_right_checksums();
            counts.push(number(router, counter));
            counts[counts.len() - 1] - counts[counts.len() - 2] < (BYTES / segment) as u64
        });
        assert!(is_joined, "not one was longer than a segment: {counts:?} packets");
    }

    fn expect_right_checksums(&self) {
        for host in [&self.left, &self.right] {
            for protocol in ["Tcp", "Udp"] {
                assert_eq!(host.count(protocol, "InCsumErrors"), 0, "{protocol}");
            }
        }
    }
}

/// The byte at a place of what one side sends.
fn byte(seed: usize, at: usize) -> u8 {
    ((at + seed) % 251) as u8 ^ (at >> 12) as u8
}

fn send(stream: &mut TcpStream, seed: usize) {
    let bytes: Vec<u8> = (0..BYTES).map(|at| byte(seed, at)).collect();
    stream.write_all(&bytes).unwrap();
}

fn receive(stream: &mut TcpStream, seed: usize) {
    let mut bytes = vec![0; BYTES];
    stream.read_exact(&mut bytes).unwrap();
    let wrong = bytes.iter().enumerate().position(|(at, got)| *got != byte(seed, at));
    assert_eq!(wrong, None, "a byte that was not sent so");
}

/// Sends bytes both ways over a TCP connection between two hosts, and checks every one.
fn tcp(client: &Host, server: &Host, address: &str) {
    let address: SocketAddr = address.parse().unwrap();
    let listener = server.call(move || TcpListener::bind(address).unwrap());
    let serving = server.start(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        receive(&mut stream, 1);
        send(&mut stream, 2);
    });
    client.call(move || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        send(&mut stream, 1);
        receive(&mut stream, 2);
    });
    wait(serving);
}

/// A number that a handler gives.
fn number(router: &Router, handler: &str) -> u64 {
    router.read(handler).parse().unwrap()
}

#[test]
fn tcp_crosses_the_router_in_frames_longer_than_the_mtu() {
    let Some(row) = Row::new(1500).map(Row::in_two_networks) else { return };
    let router = row.start_router();
    row.expect_joined("10.0.2.2:7000", &router, "left/arrived.count", 1448);
}

#[test]
fn checksums_and_segments_are_right_where_the_kernel_finishes_what_the_router_left() {
    let Some(row) = Row::new(1500).map(Row::in_two_networks).and_then(Row::without_trust) else { return };
    let _router = row.start_router();
    row.tcp("10.0.2.2:7000");
    row.expect_right_checksums();
}

#[test]
fn tcp_over_ipv6_crosses_a_cable() {
    let Some(row) = Row::new(1500).map(Row::in_one_network).and_then(Row::without_trust) else { return };
    let router = row.start(&["-e", CABLE]);
    row.expect_joined("[fd00::2]:7000", &router, "from_left.count", 1428);
}

#[test]
fn what_comes_uncut_by_packet_sockets_leaves_cut_by_af_xdp() {
    let Some(row) = Row::new(1500).map(Row::in_one_network).and_then(Row::without_trust) else { return };
    // Frames that come by AF_XDP do not say what their sender left undone.
    row.right.run("ethtool -K eth0 tx off");
    let text = "
        FromDevice(left, SNIFFER false, PROMISC true, METHOD LINUX) -> from_left :: Counter -> Queue
            -> ToDevice(right, METHOD XDP_GENERIC);
        FromDevice(right, SNIFFER false, PROMISC true, METHOD XDP_GENERIC) -> Queue -> ToDevice(left, METHOD \
        LINUX);";
    let router = row.start(&["-e", text]);
    row.expect_joined("10.0.0.2:7000", &router, "from_left.count", 1448);
}

#[test]
fn tcp_over_ipv6_is_routed() {
    let Some(row) = Row::new(1500) else { return };
    let text = "
        elementclass Side { $device, $mac, $neighbor |
            FromDevice($device, SNIFFER false, PROMISC true) -> Classifier(12/86dd) -> Strip(14) -> \
        GetIP6Address(24) -> output;
            input -> EtherEncap(0x86dd, $mac, $neighbor) -> Queue -> ToDevice($device); }
        routes :: LookupIP6Route(fd01::/64 0, fd02::/64 1);
        routes[0] -> l :: Side(left, 02:00:00:00:01:01, 02:00:00:00:01:02) -> routes;
        routes[1] -> r :: Side(right, 02:00:00:00:02:01, 02:00:00:00:02:02) -> routes;";
    for (host, net) in [(&row.left, 1), (&row.right, 2)] {
        host.run(&format!(
            "ip link set eth0 address 02:00:00:00:0{net}:02
             ip -6 addr add fd0{net}::2/64 dev eth0 nodad
             ip -6 neigh add fd0{net}::1 lladdr 02:00:00:00:0{net}:01 dev eth0
             ip -6 route add default via fd0{net}::1"
        ));
    }
    let Some(row) = row.without_trust() else { return };
    let _router = row.start(&["-e", text]);
    row.tcp("[fd02::2]:7000");
    row.expect_right_checksums();
}

#[test]
fn datagrams_cross_the_router_and_back_with_right_checksums() {
    let Some(row) = Row::new(1500).map(Row::in_two_networks).and_then(Row::without_trust) else { return };
    let _router = row.start_router();
    let bind = |address: &'static str| {
        move || {
            let socket = UdpSocket::bind(address).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        }
    };
    let server = row.right.call(bind("10.0.2.2:7000"));
    let echo = row.right.start(move || {
        let mut buffer = [0; 2000];
        for _ in 0..300 {
            let (len, from) = server.recv_from(&mut buffer).unwrap();
            server.send_to(&buffer[..len], from).unwrap();
        }
    });
    let client = row.left.call(bind("0.0.0.0:0"));
    row.left.call(move || {
        let mut buffer = [0; 2000];
        for len in (0..300).map(|n| n * 1472 / 299) {
            let sent: Vec<u8> = (0..len).map(|at| byte(len, at)).collect();
            client.send_to(&sent, "10.0.2.2:7000").unwrap();
            let got = client.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..got], sent);
        }
    });
    wait(echo);
    row.expect_right_checksums();
}

/// Sends twice 40 datagrams of 1,000 bytes and one of 500, 41 in one call (UDP_SEGMENT).
const SEND_SEGMENTED: &str = r"
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(17, 103, 1000)
s.connect(('10.0.2.2', 7000))
for n in range(2):
    s.send(b''.join(bytes([n * 41 + i]) * (1000 if i < 40 else 500) for i in range(41)))
";

fn python(host: &Host, program: &'static str) -> String {
    host.call(move || {
        let output = Command::new("python3").args(["-c", program]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    })
}

#[test]
fn datagrams_sent_many_at_once_arrive_one_by_one() {
    let Some(row) = Row::new(1500).map(Row::in_two_networks).and_then(Row::without_trust) else { return };
    if !has("python3") {
        return;
    }
    let router = row.start_router();
    let server = row.right.call(|| UdpSocket::bind("10.0.2.2:7000").unwrap());
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    python(&row.left, SEND_SEGMENTED);
    let mut buffer = [0; 2000];
    for number in 0..2 * 41 {
        let len = server.recv(&mut buffer).unwrap();
        let expected = if number % 41 < 40 { 1000 } else { 500 };
        assert_eq!((len, buffer[0]), (expected, number as u8));
        assert!(buffer[..len].iter().all(|byte| *byte == number as u8));
    }
    row.expect_right_checksums();
    let packets = number(&router, "left/arrived.count");
    assert!(packets < 20, "{packets} packets came to the router");
}

#[test]
fn tcp_of_the_machine_itself_goes_through_its_tap_device_and_back() {
    let Some(row) = Row::new(1500) else { return };
    if !std::path::Path::new("/dev/net/tun").exists() {
        return;
    }
    row.left.run("ip addr add 10.0.1.2/24 dev eth0");
    let Some(row) = row.without_trust() else { return };
    let text = "
        FromHost(tap0, 10.0.1.1/24) -> from_host :: Counter -> Queue -> ToDevice(left);
        FromDevice(left, SNIFFER false, PROMISC true) -> to_host :: Counter -> ToHost(tap0);";
    let router = row.start(&["-e", text]);
    tcp(&row.middle, &row.left, "10.0.1.2:7000");
    tcp(&row.left, &row.middle, "10.0.1.1:7001");
    row.expect_right_checksums();
    assert_eq!(row.middle.count("Tcp", "InCsumErrors"), 0);
    let segments = (2 * BYTES / 1448) as u64;
    for counter in ["from_host.count", "to_host.count"] {
        let packets = number(&router, counter);
        assert!(packets < segments, "{counter}: {packets}");
    }
}

/// The frames of a pcap file in the byte order of this machine.
fn frames(pcap: &[u8]) -> Vec<&[u8]> {
    let mut rest = &pcap[24..];
    let mut frames = Vec::new();
    while let Some((header, after)) = rest.split_at_checked(16) {
        let len = u32::from_ne_bytes(header[8..12].try_into().unwrap()) as usize;
        frames.push(&after[..len]);
        rest = &after[len..];
    }
    frames
}

fn transport_checksum_is_right(ip: &Ipv4<&[u8]>) -> bool {
    let payload = &ip.payload()[..usize::from(ip.total_length()) - ip.header_len()];
    let pseudo = checksum::pseudo_v4(ip.src(), ip.dst(), ip.protocol(), payload.len() as u16);
    checksum::is_valid(checksum::add(pseudo, checksum::sum(payload)))
}

#[test]
fn a_dump_of_passing_traffic_has_what_would_be_on_a_wire() {
    let Some(row) = Row::new(1500).map(Row::in_one_network) else { return };
    let dump = row.folder.path("d.pcap");
    let text = format!(
        "FromDevice(left, SNIFFER false, PROMISC true) -> t :: Tee -> Queue -> ToDevice(right);
         t[1] -> d :: ToDump({dump});
         FromDevice(right, SNIFFER false, PROMISC true) -> Queue -> ToDevice(left);"
    );
    let router = row.start(&["-e", &text]);
    row.tcp("10.0.0.2:7000");
    row.expect_right_checksums();
    router.signal(rustix::process::Signal::INT);
    assert_eq!(router.finish().status, 0);
    let pcap = std::fs::read(&dump).unwrap();
    let mut bytes = 0;
    for frame in frames(&pcap) {
        assert!(frame.len() <= 1514, "a frame of {} bytes", frame.len());
        let Ok(ip) = Ethernet::new(frame).and_then(|ether| Ipv4::new(&frame[ether.payload_offset()..]))
        else {
            continue;
        };
        if ip.protocol() == IpProtocol::TCP {
            assert!(ip.checksum_is_valid() && transport_checksum_is_right(&ip), "{ip:?}");
            bytes += usize::from(ip.total_length());
        }
    }
    assert!(bytes > BYTES, "only {bytes} bytes of {BYTES}");
}

#[test]
fn a_tunnel_of_udp_carries_tcp_in_datagrams_of_right_checksums() {
    let Some(row) = Row::new(1500).map(Row::in_one_network).and_then(Row::without_trust) else { return };
    row.middle.run(
        "ip link add one mtu 1600 type veth peer name two mtu 1600
         ip link set one up
         ip link set two up",
    );
    // Both ends of the tunnel are here.
    let text = "
        elementclass End { $outer, $inner, $from, $to |
            FromDevice($inner, SNIFFER false, PROMISC true) -> UDPIPEncap($from, 4000, $to, 4000)
                -> EtherEncap(0x0800, 02:00:00:00:00:01, ff:ff:ff:ff:ff:ff) -> Queue -> ToDevice($outer);
            FromDevice($outer, SNIFFER false, PROMISC true) -> Classifier(12/0800) -> carried :: Counter
                -> CheckIPHeader(14, CHECKSUM true) -> check :: CheckUDPHeader
                -> Strip(42) -> Queue -> ToDevice($inner);
            check[1] -> wrong :: Counter -> Discard; }
        a :: End(one, left, 192.0.2.1, 192.0.2.2);
        b :: End(two, right, 192.0.2.2, 192.0.2.1);";
    let router = row.start(&["-e", text]);
    row.tcp("10.0.0.2:7000");
    row.expect_right_checksums();
    assert_eq!((router.read("a/wrong.count"), router.read("b/wrong.count")), ("0".into(), "0".into()));
    assert!(number(&router, "b/carried.count") >= (BYTES / 1460) as u64);
}

#[test]
fn hosts_learn_of_the_shorter_mtu_behind_the_router() {
    let Some(row) = Row::new(9000).map(Row::in_two_networks) else { return };
    let router = row.start_router();
    row.tcp("10.0.2.2:7000");
    row.expect_right_checksums();
    assert!(number(&router, "to_right/size.drops") > 0 && number(&router, "to_left/size.drops") > 0);
    let learned = row.left.call(|| Command::new("ip").args(["route", "get", "10.0.2.2"]).output().unwrap());
    let learned = String::from_utf8(learned.stdout).unwrap();
    assert!(learned.contains("mtu "), "{learned}");
}

/// Sends frames with virtio-net headers that do not fit them, or only just.
const HOSTILE: &str = r"
import random, socket, struct
seed = 0xa47e47
random.seed(seed)
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.setsockopt(263, 15, 1)
s.bind(('eth0', 0))
mac = open('/sys/class/net/eth0/address').read().strip()
def total(data):
    data += b'\0' * (len(data) % 2)
    n = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while n >> 16: n = (n & 0xffff) + (n >> 16)
    return n
def ip4(protocol, upper, claimed=None, options=b''):
    length = 20 + len(options) + len(upper) if claimed is None else claimed
    h = struct.pack('!BBHHHBBH4s4s', 0x45 + len(options) // 4, 0, length & 0xffff, 1, 0, 64, protocol, 0,
        bytes([10, 0, 1, 2]), bytes([10, 0, 2, 2])) + options
    return h[:10] + struct.pack('!H', 0xffff - total(h)) + h[12:] + upper
def tcp(n): return struct.pack('!HHIIBBHHH', 9, 9, 1, 1, 0x50, 0x10, 99, 0, 0) + b'x' * n
def udp(n, claimed=None):
    return struct.pack('!HHHH', 9, 9, 8 + n if claimed is None else claimed, 0) + b'x' * n
def ip6(next, upper): return struct.pack('!IHBB', 6 << 28, len(upper), next, 64) + b'\xfd' * 32 + upper
tags = [b'', b'\x81\0\0\x07', b'\x81\0\0\x07\x81\0\0\x08', b'\x88\xa8\0\x07\x81\0\0\x08', b'\x81\0']
bodies = [(b'\x08\0', ip4(6, tcp(n))) for n in (0, 1, 100, 3000, 40000, 65400)]
bodies += [(b'\x08\0', ip4(17, udp(n))) for n in (0, 1, 100, 3000, 60000)]
bodies += [(b'\x08\0', ip4(17, udp(3000, 7))), (b'\x08\0', ip4(6, tcp(3000), 40))]
bodies += [(b'\x08\0', ip4(6, tcp(50), 9999))]
bodies += [(b'\x08\0', ip4(47, b'\0\0\x08\0' + ip4(6, tcp(3000)))), (b'\x08\0', ip4(4, ip4(6, tcp(3000))))]
bodies += [(b'\x08\0', ip4(6, tcp(3000), None, b'\x01' * 12))]
bodies += [(b'\x08\0', b'E'), (b'\x08\0', b''), (b'\x08\0', b'\xff' * 90)]
bodies += [(b'\x86\xdd', ip6(6, tcp(3000))), (b'\x86\xdd', ip6(0, b'\x06\0' + b'\0' * 6 + tcp(3000)))]
bodies += [(b'\x08\x06', b'\0' * 28), (b'\x88\xb5', b'z' * 1400)]
sent = {}
def send(flags, kind, headers, size, start, offset, frame):
    try:
        s.send(struct.pack('=BBHHHH', flags, kind, headers, size, start, offset) + frame)
        sent[kind & 0x7f] = sent.get(kind & 0x7f, 0) + 1
    except OSError:
        pass
for to in (b'\xff' * 6, b'\x02\0\0\0\x01\x01'):
    for type, body in bodies:
        for tag in tags:
            frame = to + bytes.fromhex(mac.replace(':', '')) + tag + type + body
            for kind in (0, 1, 4, 5, 3, 0x81):
                start = 14 + len(tag) + (40 if type == b'\x86\xdd' else 20)
                offset = 6 if kind == 5 else 16
                send(1, kind, start + 20, 1000, start, offset, frame)
            for n in range(4):
                send(random.choice((0, 1, 1, 2)), random.choice((0, 1, 4, 5, 0x85)),
                    random.choice((0, 14, 54, 66, 9000)), random.choice((0, 1, 8, 500, 1448, 65535)),
                    random.choice((0, 13, 14, 34, 38, 54, len(frame) - 2)),
                    random.choice((0, 2, 6, 16, 17, 40000)), frame)
print(sent)
";

#[test]
fn frames_that_lie_about_themselves_harm_nobody() {
    let Some(row) = Row::new(1500).map(Row::in_two_networks) else { return };
    if !has("python3") {
        return;
    }
    row.middle.run("ip link set left address 02:00:00:00:01:01");
    let router = row.start(&["--json", "--device", "eth0=left", "--device", "eth1=right", ROUTER]);
    let sent = python(&row.left, HOSTILE);
    assert!(sent.contains("1: ") && sent.contains("5: "), "the kernel let none through: {sent}");
    // Some of those had wrong sums of their own.
    let wrong_sums = row.right.count("Tcp", "InCsumErrors");
    row.tcp("10.0.2.2:7000");
    assert_eq!(row.right.count("Tcp", "InCsumErrors"), wrong_sums);
    router.signal(rustix::process::Signal::INT);
    let outcome = router.finish();
    assert_eq!(outcome.status, 0, "{outcome:?}");
    // Elements have printed warnings about malformed packets before.
    let report = &outcome.err[outcome.err.find('{').unwrap()..];
    let report: serde_json::Value = serde_json::from_str(report).unwrap_or_else(|e| panic!("{e}: {report}"));
    let mut elements = report["elements"].as_array().unwrap().iter();
    let arrived = elements.find(|element| element["name"] == "left/arrived").unwrap();
    // The kernel keeps most to itself, what it takes for a segment of another kind too.
    assert!(arrived["drops"]["malformed"].as_u64() > Some(0), "{arrived}, sent {sent}");
}
