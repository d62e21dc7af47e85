//! Random frames: valid ones, and frames with any header field invalid.
use artery_wire::Random;
use artery_wire::build::{Ether, Ip4, Ip6, arp_request, ether, ip4, ip6, neighbor_solicitation};
use artery_wire::{EtherType, Icmp6Type, IcmpType};

/// Addresses and prefixes of a family that routes and packets are made of.
pub(crate) struct Pool {
    pub(crate) prefixes: [&'static str; 9],
    hosts: [&'static str; 30],
}

pub(crate) static V4: Pool = Pool {
    prefixes: [
        "20.0.0.0/8",
        "20.1.0.0/16",
        "20.1.2.0/24",
        "21.0.0.0/8",
        "22.0.0.0/7",
        "24.0.0.0/8",
        "25.0.0.0/8",
        "0.0.0.0/0",
        "20.1.2.7/32",
    ],
    hosts: [
        "20.0.0.1",
        "20.1.0.1",
        "20.1.2.3",
        "20.1.2.7",
        "21.0.0.9",
        "22.0.0.9",
        "23.1.2.3",
        "24.7.7.7",
        "25.1.1.1",
        "99.0.0.1",
        "10.0.1.2",
        "10.0.1.3",
        "10.0.2.4",
        "10.0.2.30",
        "10.0.3.5",
        "10.0.4.6",
        "10.0.1.1",
        "10.0.2.1",
        "10.0.1.255",
        "10.0.3.0",
        "255.255.255.255",
        "224.0.0.5",
        "239.1.2.3",
        "127.0.0.1",
        "0.0.0.0",
        "240.0.0.1",
        "169.254.1.1",
        "10.0.3.20",
        "20.0.0.2",
        "21.0.0.1",
    ],
};

pub(crate) static V6: Pool = Pool {
    prefixes: [
        "2001:db8:20::/44",
        "2001:db8:20::/48",
        "2001:db8:20:1::/64",
        "2001:db8:21::/48",
        "2001:db8:22::/47",
        "2001:db8:24::/48",
        "2001:db8:25::/48",
        "::/0",
        "2001:db8:20:1::7/128",
    ],
    hosts: [
        "2001:db8:20::1",
        "2001:db8:20:1::3",
        "2001:db8:20:1::7",
        "2001:db8:21::9",
        "2001:db8:22::9",
        "2001:db8:23::3",
        "2001:db8:24::7",
        "2001:db8:25::1",
        "2001:db8:2f::1",
        "3fff::1",
        "2001:db8:1::2",
        "2001:db8:1::3",
        "2001:db8:2::4",
        "2001:db8:2::30",
        "2001:db8:3::5",
        "2001:db8:4::6",
        "2001:db8:1::1",
        "2001:db8:2::1",
        "2001:db8:3::",
        "fe80::9",
        "fe80::ff:fe00:1",
        "fe80::ff:fe00:2",
        "ff02::1",
        "ff02::1:ff00:1",
        "ff0e::7",
        "::1",
        "::",
        "::ffff:10.0.0.1",
        "2001:db8:3::20",
        "2001:db8:20::2",
    ],
};

pub(crate) fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

/// Most packets come from ordinary addresses.
fn source(random: &mut Random, pool: &Pool) -> &'static str {
    if random.percent(88) { pick(random, &pool.hosts[..16]) } else { pick(random, &pool.hosts) }
}
/// Many go to ordinary ones, and some to the router.
fn destination(random: &mut Random, pool: &Pool) -> &'static str {
    match random.below(100) {
        0..12 => pick(random, &pool.hosts[16..18]),
        12..82 => pick(random, &pool.hosts[..16]),
        _ => pick(random, &pool.hosts),
    }
}

/// A frame, the port that it comes by, and `mark` in its payload.
pub(crate) fn frame(random: &mut Random, mark: [u8; 8]) -> (usize, Vec<u8>) {
    let port = random.below(4) as usize;
    let link = link(random, port);
    let mut bytes = match random.below(100) {
        0 => other(random, link),
        1 => message(random, port),
        2..52 => link.ip4(v4(random, mark)).bytes(),
        _ => link.ip6(v6(random, mark)).bytes(),
    };
    if random.percent(15) {
        damage(random, &mut bytes);
    }
    (port, bytes)
}

fn link(random: &mut Random, port: usize) -> Ether {
    let station = [2, 0, 0, 0, 0, port as u8 + 1];
    let to = match random.below(40) {
        0 => [0xff; 6],
        1 => [1, 0, 0x5e, 0, 0, 5],
        2 => [2, 0, 0, 0, 7, 7],
        _ => station,
    };
    ether(to, [2, 0, 0, 0, port as u8 + 1, 9])
}

fn other(random: &mut Random, link: Ether) -> Vec<u8> {
    match random.below(3) {
        0 => link.raw(EtherType(0x88cc), [1; 50]).bytes(),
        1 => link.vlan(7).ip4(ip4().src("10.0.1.2").dst("20.0.0.1").udp(1, 2)).bytes(),
        _ => vec![0; random.below(20) as usize],
    }
}

fn message(random: &mut Random, port: usize) -> Vec<u8> {
    let n = port + 1;
    let (who, ours) = (2 + random.below(38), random.percent(70));
    let target = if ours { 1 } else { 77 };
    let ether = [2, 0, 0, 0, n as u8, who as u8];
    if random.percent(50) {
        arp_request(ether, &format!("10.0.{n}.{who}")[..], &format!("10.0.{n}.{target}")[..]).bytes()
    } else {
        let target = format!("2001:db8:{n}::{target}");
        neighbor_solicitation(ether, &format!("2001:db8:{n}::{who:x}")[..], &target[..]).bytes()
    }
}

/// The mark and as much behind it as makes packets fit, or not.
fn payload(random: &mut Random, mark: [u8; 8]) -> Vec<u8> {
    let more = match random.below(10) {
        0 => 500 + random.below(200),
        1 => 1150 + random.below(200),
        2 => 1400 + random.below(120),
        _ => random.below(60),
    };
    [&mark[..], &vec![0x5a; more as usize]].concat()
}

fn v4(random: &mut Random, mark: [u8; 8]) -> Ip4 {
    let mut packet = ip4()
        .src(source(random, &V4))
        .dst(destination(random, &V4))
        .ttl(pick(random, &[0, 1, 2, 63, 64, 64, 64, 64, 64, 64, 128, 255]));
    packet = packet.id(random.next() as u16);
    if random.percent(30) {
        packet = packet.dont_fragment();
    }
    let (from, to) = (random.next() as u16, random.next() as u16);
    packet = match random.below(8) {
        0 | 1 => packet.tcp(from, to),
        2 | 3 => packet.icmp_echo(from, to),
        4 => packet.icmp_echo_reply(from, to),
        5 => packet.icmp(pick(random, &[IcmpType::UNREACHABLE, IcmpType::TIME_EXCEEDED]), 0, [0; 4]),
        _ => packet.udp(from, to),
    };
    if random.percent(8) {
        packet = packet.options(options(random));
    }
    let mut bytes = payload(random, mark);
    if random.percent(10) {
        bytes.truncate(bytes.len() & !7);
        packet = packet.fragment(8 * random.below(4) as usize, random.percent(50));
    }
    packet.payload(bytes)
}

/// Sound ones, contradictory ones, and source routes.
fn options(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => vec![148, 4, 0, 0],
        1 => vec![7, 7, 4, 0, 0, 0, 0, 0],
        2 => vec![68, 12, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        3 => vec![131, 7, 4, 1, 1, 1, 1, 0],
        4 => vec![137, 7, 8, 1, 1, 1, 1, 0],
        5 => vec![7, 9, 4, 0, 0, 0, 0, 0],
        6 => vec![68, 8, 4, 0, 0, 0, 0, 0],
        _ => (0..8).map(|_| random.next() as u8).collect(),
    }
}

fn v6(random: &mut Random, mark: [u8; 8]) -> Ip6 {
    let hops = pick(random, &[0, 1, 2, 63, 64, 64, 64, 64, 64, 64, 128, 255]);
    let mut packet = ip6().src(source(random, &V6)).dst(destination(random, &V6)).hop_limit(hops);
    packet = packet.flow_label(random.below(1 << 20) as u32);
    for _ in 0..random.below(10).saturating_sub(7) {
        packet = extension(random, packet);
    }
    let (from, to) = (random.next() as u16, random.next() as u16);
    packet = match random.below(8) {
        0 | 1 => packet.tcp(from, to),
        2 | 3 => packet.icmp_echo(from, to),
        4 => packet.icmp_echo_reply(from, to),
        5 => packet.icmp(
            pick(random, &[Icmp6Type(1), Icmp6Type(133), Icmp6Type(136), Icmp6Type(200)]),
            0,
            [0; 4],
        ),
        _ => packet.udp(from, to),
    };
    packet.payload(payload(random, mark))
}

fn extension(random: &mut Random, packet: Ip6) -> Ip6 {
    match random.below(6) {
        0 => packet.extension(0, [5, 2, 0, 0, 1, 0]),
        // Unknown options: skipped, discarded, rejected with an error, rejected unless sent
        // to a multicast address.
        1 => packet.extension(0, [pick(random, &[0x1e, 0x5e, 0x9e, 0xde]), 4, 0, 0, 0, 0]),
        2 => packet.extension(60, [1, 4, 0, 0, 0, 0]),
        3 => packet.extension(43, [0, random.below(2) as u8, 0, 0, 0, 0]),
        4 => packet.fragment(8 * random.below(3) as usize, random.percent(50), 7),
        _ => packet.extension(0, [random.next() as u8, random.next() as u8, 0, 0, 0, 0]),
    }
}

/// Bytes are missing, are too many, or are others.
fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    match random.below(4) {
        0 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
        1 => bytes.extend([0; 7]),
        _ => {
            let at = 12 + random.below(42) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
    }
}
