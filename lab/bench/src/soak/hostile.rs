//! Hostile traffic: malformed frames, floods, forged senders.

use artery_rig::{Host, Result, RigError};
use artery_wire::Random;
use artery_wire::build::{arp_reply, arp_request, ether, ip4, ip6};
use artery_wire::nd::{self, LinkEndpoint};
use artery_wire::{EtherAddr, EtherType, IpProtocol, TcpFlags};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Frames that are sent at once.
const BURST: u64 = 32;

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Bits are flipped, the end is missing.
    Malformed,
    /// Unknown hosts send ARP requests, or claim addresses.
    Arp,
    Nd,
    /// Tiny, overlapping, too long, or without an end.
    Fragments,
    /// Connections that begin and never go on.
    Syn,
    /// To and from link addresses that no host has.
    UnknownMac,
    /// From the addresses of others: of hosts, of the router, of no host.
    Forged,
    /// Time to live 1: each asks for an ICMP error.
    Expired,
    /// Protocols that no host here supports.
    Strange,
}

const KINDS: [Kind; 9] = [
    Kind::Malformed,
    Kind::Arp,
    Kind::Nd,
    Kind::Fragments,
    Kind::Syn,
    Kind::UnknownMac,
    Kind::Forged,
    Kind::Expired,
    Kind::Strange,
];

/// Whom hostile frames are about.
#[derive(Clone)]
pub(super) struct Target {
    /// The link address of what is attacked, and its addresses on the attacker's link.
    pub(super) mac: EtherAddr,
    pub(super) own: (Ipv4Addr, Ipv6Addr),
    /// A host behind it.
    pub(super) far: (Ipv4Addr, Ipv6Addr),
    /// MAC and IPv4 address of the impersonated host.
    pub(super) victim: (EtherAddr, Ipv4Addr),
    /// How many neighbors are made up: the tables of kernels are shared by all namespaces of a machine.
    pub(super) neighbors: u32,
}

/// Sends hostile frames by an interface of a host, until it is dropped.
pub(super) struct Attacker {
    pub(super) sent: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Attacker {
    pub(super) fn start(
        host: &Host,
        interface: &str,
        target: Target,
        rate: u64,
        seed: u64,
    ) -> Result<Attacker> {
        let mut injector = host.injector(interface)?;
        let (sent, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, over) = (sent.clone(), is_over.clone());
        let body = move || {
            let (mut random, mut start, mut number) = (Random::new(seed), Instant::now(), 0u64);
            while !over.load(Relaxed) {
                thread::sleep(Duration::from_millis(5));
                if (start.elapsed().as_micros() as u64 * rate / 1_000_000) < BURST {
                    continue;
                }
                start = Instant::now();
                // Runs of one kind fill what is bounded by the kind.
                let kind = KINDS[(number / (16 * BURST)) as usize % KINDS.len()];
                let frames: Vec<Vec<u8>> =
                    (number..number + BURST).map(|n| target.frame(kind, n as u32, &mut random)).collect();
                number += BURST;
                // What a full queue refuses was not sent.
                count.fetch_add(injector.send(&frames), Relaxed);
            }
        };
        let thread = thread::Builder::new().name("attacker".into()).spawn(body);
        let thread = thread.map_err(RigError::system("cannot start a thread"))?;
        Ok(Attacker { sent, is_over, thread: Some(thread) })
    }

    pub(super) fn stop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Target {
    fn frame(&self, kind: Kind, n: u32, random: &mut Random) -> Vec<u8> {
        match kind {
            Kind::Malformed => self.malformed(n, random),
            Kind::Arp => self.arp(n),
            Kind::Nd => {
                let sender = LinkEndpoint { ether: stranger(n % self.neighbors), ip: self.near6(n) };
                nd::neighbor_solicitation(sender, self.own.1, None)
            }
            Kind::Fragments => self.fragment(n, random),
            Kind::Syn => {
                let (from, to) = (self.near(n), if n.is_multiple_of(2) { self.far.0 } else { self.own.0 });
                let segment = ip4().src(from).dst(to).ttl(64).tcp(random.next() as u16, 7100);
                ether(self.mac, stranger(0)).ip4(segment.flags(TcpFlags::SYN)).bytes()
            }
            Kind::UnknownMac => {
                let packet = ip4().src(self.near(n)).dst(self.far.0).ttl(64).udp(1, 2);
                ether(stranger(n), stranger(!n)).ip4(packet).bytes()
            }
            Kind::Forged => self.forged(n),
            Kind::Expired => match n % 2 {
                0 => self.to(ip4().src(self.near(n)).dst(self.far.0).ttl(1).udp(1, 2)),
                _ => {
                    let packet = ip6().src(self.near6(n)).dst(self.far.1).hop_limit(1).udp(1, 2);
                    ether(self.mac, stranger(0)).ip6(packet).bytes()
                }
            },
            Kind::Strange => {
                let types = [0x0000, 0x05dc, 0x8035, 0x8100, 0x86dd, 0x8847, 0x88a8, 0x88cc, 0x8906, 0xffff];
                let bytes: Vec<u8> = (0..n % 200).map(|_| random.next() as u8).collect();
                ether(self.mac, stranger(0)).raw(EtherType(types[n as usize % types.len()]), bytes).bytes()
            }
        }
    }

    fn to(&self, packet: artery_wire::build::Ip4) -> Vec<u8> {
        ether(self.mac, stranger(0)).ip4(packet).bytes()
    }

    /// A good frame with mistakes behind its link addresses, which stay: a switch believes these.
    fn malformed(&self, n: u32, random: &mut Random) -> Vec<u8> {
        let mut frame = match n % 4 {
            0 => self.arp(n),
            1 => self.to(ip4().src(self.near(n)).dst(self.far.0).ttl(9).tcp(7, 7100).payload([1; 40])),
            2 => {
                let packet = ip6().src(self.near6(n)).dst(self.far.1).udp(7, 7).payload([2; 40]);
                ether(self.mac, stranger(0)).ip6(packet).bytes()
            }
            _ => self.fragment(n, random),
        };
        for _ in 0..=random.below(8) {
            let at = 12 + random.below(frame.len() as u64 - 12) as usize;
            frame[at] ^= 1 << random.below(8);
        }
        if random.percent(30) {
            frame.truncate(14 + random.below(frame.len() as u64 - 14) as usize);
        }
        frame
    }

    fn arp(&self, n: u32) -> Vec<u8> {
        let (thief, near) = (stranger(n % self.neighbors), self.near(n));
        match n % 4 {
            0 | 1 => arp_request(thief, near, self.own.0).bytes(),
            2 => arp_request(thief, near, near).bytes(),
            _ => arp_reply(thief, near, EtherAddr::BROADCAST, near).bytes(),
        }
    }

    fn fragment(&self, n: u32, random: &mut Random) -> Vec<u8> {
        let ip = |offset, more, len: usize, n: u32| {
            let ip = ip4().src(self.near(n)).dst(if n.is_multiple_of(3) { self.own.0 } else { self.far.0 });
            self.to(ip.id(n as u16).fragment(offset, more).raw(IpProtocol::ICMP.0, vec![8; len]))
        };
        match n % 5 {
            0 => ip(0, true, 8, n),
            1 => ip(8, true, 64, n - 1),
            2 => ip(0, true, 64, n - 2),
            3 => ip(65_528, false, 64, n),
            _ => ip(8 * random.below(8000) as usize, true, 1400, n),
        }
    }

    fn forged_source(&self, n: u32) -> Ipv4Addr {
        let sources = [
            self.victim.1,
            self.own.0,
            self.far.0,
            Ipv4Addr::LOCALHOST,
            Ipv4Addr::BROADCAST,
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::new(224, 0, 0, 1),
        ];
        sources[n as usize % sources.len()]
    }

    fn forged(&self, n: u32) -> Vec<u8> {
        let source = self.forged_source(n);
        match n % 3 {
            // The victim's link address, which a switch must not learn here.
            0 => {
                let packet = ip4().src(source).dst(self.far.0).ttl(64).udp(7, 7);
                ether(self.mac, self.victim.0).ip4(packet).bytes()
            }
            1 => arp_request(stranger(n % self.neighbors), self.victim.1, self.victim.1).bytes(),
            _ => self.to(ip4().src(source).dst(self.far.0).ttl(64).tcp(7, 7100).flags(TcpFlags::RST)),
        }
    }

    /// Addresses on the attacker's link: it has 16 bits for hosts, the lowest of which are taken.
    fn near(&self, n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits((self.own.0.to_bits() & 0xffff_0000) + 0x100 + n % self.neighbors)
    }

    fn near6(&self, n: u32) -> Ipv6Addr {
        Ipv6Addr::from_bits((self.own.1.to_bits() & !0xffff_ffff) + 0x1_0000 + u128::from(n % self.neighbors))
    }
}

/// A link address that no host has.
fn stranger(n: u32) -> EtherAddr {
    let [a, b, c, d] = n.to_be_bytes();
    EtherAddr([2, 0x66, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_every_kind_have_a_link_header_and_fit_a_link() {
        let target = Target {
            mac: EtherAddr([2, 0, 0, 0, 0, 1]),
            own: (Ipv4Addr::new(10, 3, 0, 1), "fd00:3::1".parse().expect("an address")),
            far: (Ipv4Addr::new(10, 0, 2, 2), "fd00:2::2".parse().expect("an address")),
            victim: (EtherAddr([2, 0, 0, 0, 0, 2]), Ipv4Addr::new(10, 0, 1, 2)),
            neighbors: 64,
        };
        let mut random = Random::new(1);
        for kind in KINDS {
            for n in (0..2000).chain([u32::MAX]) {
                let length = target.frame(kind, n, &mut random).len();
                assert!((14..=1514).contains(&length), "{kind:?} {n}: {length}");
            }
        }
    }
}
