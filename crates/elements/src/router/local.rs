//! Packets for the router itself: echo requests, fragments of such, and the host's.
use super::icmp;
use super::leave::write_link;
use super::neighbors_io::station_for_host;
use super::shared::SharedRouter;
use super::slow::{Job, LINK, Slow};
use super::verdict::{Came, Told};
use crate::ip::icmp_ping_responder;
use crate::ip::reassembly::{GivenUp, Joined, Reassembly};
use artery_engine::{DropReason, Packet};
use artery_wire::{EtherAddr, Icmp6Error, IcmpError, Ip6Headers, IpProtocol, Ipv4, Ipv6};
use std::net::IpAddr;
use std::time::Duration;

/// How long fragments wait for the others (RFC 1122 section 3.3.2, RFC 8200 section 4.5).
const WAIT: Duration = Duration::from_secs(60);
/// Most bytes that wait.
const MOST_BYTES: usize = 256 << 10;
/// Errors quote no more of a packet (RFC 4443 section 2.4 c; those of ICMP less).
const QUOTED: usize = 1280 - 48;
/// The code of what was not put together in time (RFC 792, RFC 4443 section 3.3).
const REASSEMBLY: u8 = 1;
const HEADER4: usize = 20;
const HEADER6: usize = 40;

/// Which fragments belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Whole {
    src: IpAddr,
    dst: IpAddr,
    id: u32,
}

/// A packet that is not all there.
pub(super) struct Begun {
    /// How the fragment came that was here before the others.
    came: Came,
    /// The fragment that it begins with, as much of it as an error quotes.
    first: Option<Vec<u8>>,
}

/// Packets that are not all there.
pub(super) type Fragments = Reassembly<Whole, Begun>;

/// None yet.
pub(super) fn no_fragments() -> Fragments {
    Reassembly::new(WAIT, MOST_BYTES)
}

impl Slow {
    /// Takes a fragment of a packet to the router.
    pub(super) fn reassemble(&mut self, packet: Packet, came: Came, job: &mut Job<'_, '_>) {
        let bytes = packet.data().get(LINK..).unwrap_or_default();
        let Some(Fragment { whole, is_first, as_v4 }) = fragment4(bytes).or_else(|| fragment6(bytes)) else {
            return job.cx.discard(packet, DropReason::BadFragment);
        };
        let reason = match self.fragments.add(whole, &as_v4, || Begun { came, first: None }, job.now) {
            Joined::Whole(assembled, Begun { came, .. }) => {
                self.counters.reassembled += 1;
                self.take_whole(packet.data(), whole, &assembled, came, job);
                DropReason::Consumed
            }
            Joined::Waits => {
                if let Some(begun) = self.fragments.of(&whole).filter(|_| is_first) {
                    begun.first = Some(bytes[..bytes.len().min(QUOTED)].to_vec());
                }
                DropReason::Consumed
            }
            Joined::Bad(_) => DropReason::BadFragment,
        };
        job.cx.discard(packet, reason);
        let given_up = self.fragments.shrink().len();
        job.cx.count_discarded(DropReason::Incomplete, given_up as u64);
    }

    /// Deals with a packet that was put together.
    fn take_whole(&mut self, last: &[u8], whole: Whole, assembled: &[u8], came: Came, job: &mut Job<'_, '_>) {
        let Some(packet) = (match whole.src {
            IpAddr::V4(_) => Some(assembled.to_vec()),
            IpAddr::V6(_) => whole6(&last[LINK..], assembled),
        }) else {
            return job.cx.count_discarded(DropReason::BadFragment, 1);
        };
        let frame = [&last[..LINK], &packet[..]].concat();
        match job.cx.pool().packet_from(&frame) {
            Some(packet) => self.deal(packet, came, job),
            None => job.cx.count_discarded(DropReason::PoolEmpty, 1),
        }
    }

    /// Gives up packets whose fragments did not all come in time. Who sent the first one is told (RFC 792, RFC 8200
    /// section 4.5); of others it is not known what they are.
    pub(super) fn forget_fragments(&mut self, job: &mut Job<'_, '_>) {
        if self.fragments.due().is_none_or(|due| due > job.now) {
            return;
        }
        for GivenUp { of: Begun { came, first }, .. } in self.fragments.expire(job.now) {
            job.cx.count_discarded(DropReason::Incomplete, 1);
            if let Some(first) = first {
                self.tell(out_of_time(&first), &first, came, job);
            }
        }
    }

    /// Answers an echo request.
    pub(super) fn answer(&mut self, packet: Packet, came: Came, job: &mut Job<'_, '_>) {
        let bytes = packet.data().get(LINK..).unwrap_or_default();
        let sender = icmp::ends(bytes).map(|(from, _)| from);
        if !sender.is_some_and(|sender| self.limits.take(sender, job.now)) {
            self.counters.echoes_limited += 1;
            return job.cx.discard(packet, DropReason::RateLimited);
        }
        self.counters.echoes += 1;
        if sender.is_some_and(|sender| sender.is_ipv4()) {
            self.answer_v4(packet, came, job);
        } else {
            self.answer_v6(&packet, came, job);
            job.cx.discard(packet, DropReason::Consumed);
        }
    }

    /// The request itself becomes the reply.
    fn answer_v4(&mut self, mut packet: Packet, came: Came, job: &mut Job<'_, '_>) {
        let header_len = Ipv4::new(&packet.data()[LINK..]).map_or(0, |ip| ip.header_len());
        packet.set_headers(LINK, header_len);
        match icmp_ping_responder::answer(&mut packet) {
            Some(()) => self.send_own(packet, came, job),
            None => job.cx.discard(packet, DropReason::Malformed),
        }
    }

    fn answer_v6(&mut self, request: &Packet, came: Came, job: &mut Job<'_, '_>) {
        let Some(reply) = icmp::echo_reply(&request.data()[LINK..]) else { return };
        let mtu = self.mtu_to(&reply, came, job);
        if reply.len() <= mtu {
            return self.say(&reply, came, job);
        }
        self.ids = self.ids.wrapping_add(1);
        for fragment in icmp::fragments6(&reply, mtu, self.ids).unwrap_or_default() {
            self.say(&fragment, came, job);
        }
    }

    /// How long an IPv6 packet of our own may be.
    fn mtu_to(&self, packet: &[u8], came: Came, job: &Job<'_, '_>) -> usize {
        let port = came.from.port().and_then(|port| job.port(port)).map_or(1280, |port| port.mtu.into());
        match icmp::ends(packet) {
            Some((_, IpAddr::V6(to))) if !to.is_unicast_link_local() => {
                let view = job.view();
                view.v6.explain(view.turn, to.to_bits(), |_| 0).decision.mtu.into()
            }
            _ => port,
        }
    }

    /// The host's station, if there is a host behind a router with so many outputs.
    pub(super) fn host(&self, router: &SharedRouter, outputs: usize) -> Option<EtherAddr> {
        self.settings.host.filter(|_| router.ports() < outputs)
    }

    /// Whether what is for the router, and is not answered by it, has somewhere to go.
    pub(super) fn has_host(&self, job: &Job<'_, '_>) -> bool {
        self.settings.has_host_ports || self.host(job.router, job.cx.outputs()).is_some()
    }

    /// Hands a packet to the host, or ends it if there is none.
    pub(super) fn hand_to_host(&mut self, mut packet: Packet, came: Came, job: &mut Job<'_, '_>) {
        if let (true, Some(port)) = (self.settings.has_host_ports, came.from.port()) {
            return self.hand_to_host_port(packet, port, job);
        }
        let Some(host) = self.host(job.router, job.cx.outputs()) else {
            return job.cx.discard(packet, DropReason::Local);
        };
        match write_link(&mut packet, host, station_for_host(job.view().ports)) {
            Ok(()) => job.cx.send(job.router.ports(), packet),
            Err(reason) => job.cx.discard(packet, reason),
        }
    }
}

/// What is said of a packet whose fragments did not all come in time; this is the first of them.
fn out_of_time(first: &[u8]) -> Told {
    match Ipv4::new(first) {
        Ok(_) => Told::V4(IcmpError { code: REASSEMBLY, ..IcmpError::time_exceeded() }),
        Err(_) => Told::V6(Icmp6Error { code: REASSEMBLY, ..Icmp6Error::time_exceeded() }),
    }
}

/// A fragment of a packet.
struct Fragment {
    whole: Whole,
    /// Whether the packet begins with it.
    is_first: bool,
    as_v4: Vec<u8>,
}

fn fragment4(packet: &[u8]) -> Option<Fragment> {
    let ip = Ipv4::new(packet).ok()?;
    let whole = Whole { src: ip.src().into(), dst: ip.dst().into(), id: ip.id().into() };
    let as_v4 = packet.get(..ip.total_length().into())?.to_vec();
    Some(Fragment { whole, is_first: ip.fragment_offset() == 0, as_v4 })
}

/// An IPv6 fragment as an IPv4 one: what belongs where is said the same way. Options in front of it are left out, as the
/// reply has none.
fn fragment6(packet: &[u8]) -> Option<Fragment> {
    let ip = Ipv6::new(packet).ok()?;
    let part = Ip6Headers::read(packet).ok()?.fragment?;
    let payload = packet.get(part.at + 8..HEADER6 + usize::from(ip.payload_length()))?;
    let whole = Whole { src: ip.src().into(), dst: ip.dst().into(), id: part.id };
    let mut bytes = vec![0; HEADER4];
    bytes.extend(payload);
    let length = u16::try_from(bytes.len()).ok()?;
    let mut header = Ipv4::init(&mut bytes[..HEADER4]).ok()?;
    header.set_total_length(length);
    header.set_fragment(false, part.more, part.offset);
    Some(Fragment { whole, is_first: part.offset == 0, as_v4: bytes })
}

/// The IPv6 packet whose fragments were put together as IPv4 ones; `last` is one of them.
fn whole6(last: &[u8], assembled: &[u8]) -> Option<Vec<u8>> {
    let part = Ip6Headers::read(last).ok()?.fragment?;
    let (next, payload) = (*last.get(part.at)?, assembled.get(HEADER4..)?);
    let mut bytes = last.get(..HEADER6)?.to_vec();
    bytes.extend(payload);
    let length = u16::try_from(payload.len()).ok()?;
    let mut header = Ipv6::new(&mut bytes[..HEADER6]).ok()?;
    header.set_payload_length(length);
    header.set_next_header(IpProtocol(next));
    Some(bytes)
}
