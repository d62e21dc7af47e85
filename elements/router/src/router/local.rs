//! Packets for the router itself: echo requests, fragments of such, and the host's.
use super::classify::is_own_address;
use super::icmp::{self, IcmpSource};
use super::leave::write_link;
use super::local_fragments::{
    Fragment, LocalFragmentKey, PartialLocalPacket, parse_ipv4_fragment, parse_ipv6_fragment, rebuild_ipv6,
};
use super::neighbors_io::mac_for_host;
use super::slow_path::{SlowPath, SlowPathContext};
use super::verdict::{IcmpReply, IngressInfo};
use artery_common::echo_reply::answer_echo;
use artery_common::gateway_options::OptionProcessor;
use artery_common::reassembly::{FragmentOutcome, GivenUp};
use artery_engine::{DropReason, Packet};
use artery_forward::fast_path::LINK;
use artery_forward::flow;
use artery_forward::shared::SharedRouter;
use artery_wire::{EtherAddr, Icmp6Error, IcmpError, Ipv4, Ipv6};
use std::net::{IpAddr, Ipv6Addr};

/// Errors quote at most so many bytes of a packet (RFC 4443 section 2.4 c; ICMP quotes fewer).
const QUOTED: usize = 1280 - 48;
/// The ICMP code for a reassembly timeout (RFC 792, RFC 4443 section 3.3).
const REASSEMBLY: u8 = 1;
const HEADER4: usize = 20;

impl SlowPath {
    /// Adds a fragment of a packet to the router.
    pub(super) fn reassemble_fragment(
        &mut self,
        packet: Packet,
        came: IngressInfo,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        let bytes = packet.data().get(LINK..).unwrap_or_default();
        let Some(Fragment { whole, is_first, as_v4 }) =
            parse_ipv4_fragment(bytes).or_else(|| parse_ipv6_fragment(bytes))
        else {
            return job.cx.discard(packet, DropReason::BadFragment);
        };
        let reason = match self.fragments.add_fragment(
            whole,
            &as_v4,
            || PartialLocalPacket { ingress: came, first: None },
            job.now,
        ) {
            FragmentOutcome::Whole(assembled, PartialLocalPacket { ingress: came, .. }) => {
                self.counters.reassembled += 1;
                self.receive_reassembled(packet.data(), whole, &assembled, came, job);
                DropReason::Consumed
            }
            FragmentOutcome::Waits => {
                if let Some(begun) = self.fragments.context_of(&whole).filter(|_| is_first) {
                    begun.first = Some(bytes[..bytes.len().min(QUOTED)].to_vec());
                }
                DropReason::Consumed
            }
            FragmentOutcome::Bad(_) => DropReason::BadFragment,
        };
        job.cx.discard(packet, reason);
        let given_up = self.fragments.shrink_memory().len();
        job.cx.count_discarded(DropReason::Incomplete, given_up as u64);
    }

    /// Handles a reassembled packet.
    fn receive_reassembled(
        &mut self,
        last: &[u8],
        whole: LocalFragmentKey,
        assembled: &[u8],
        came: IngressInfo,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        let Some(packet) = (match whole.src {
            IpAddr::V4(_) => Some(assembled.to_vec()),
            IpAddr::V6(_) => rebuild_ipv6(&last[LINK..], assembled),
        }) else {
            return job.cx.count_discarded(DropReason::BadFragment, 1);
        };
        let frame = [&last[..LINK], &packet[..]].concat();
        match job.cx.pool().packet_from(&frame) {
            Some(packet) => self.handle(packet, came, job),
            None => job.cx.count_discarded(DropReason::PoolEmpty, 1),
        }
    }

    /// Drops packets whose fragments did not all come in time. The sender of the first one gets an ICMP error
    /// (RFC 792, RFC 8200 section 4.5); without the first one the sender's protocol is unknown.
    pub(super) fn forget_fragments(&mut self, job: &mut SlowPathContext<'_, '_>) {
        if self.fragments.next_deadline().is_none_or(|due| due > job.now) {
            return;
        }
        for GivenUp { of: PartialLocalPacket { ingress: came, first }, .. } in
            self.fragments.expire_packets(job.now)
        {
            job.cx.count_discarded(DropReason::Incomplete, 1);
            if let Some(first) = first {
                self.send_icmp_error(reassembly_timeout_reply(&first), &first, came, job);
            }
        }
    }

    /// Answers an echo request.
    pub(super) fn answer_echo(
        &mut self,
        packet: Packet,
        came: IngressInfo,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        let bytes = packet.data().get(LINK..).unwrap_or_default();
        let sender = flow::source_and_destination(bytes).map(|(from, _)| from);
        if !sender.is_some_and(|sender| self.limits.try_acquire(sender, job.now)) {
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

    /// The request itself becomes the reply, with its options (RFC 1122 section 3.2.2.6).
    fn answer_v4(&mut self, mut packet: Packet, came: IngressInfo, job: &mut SlowPathContext<'_, '_>) {
        let header_len = Ipv4::new(&packet.data()[LINK..]).map_or(0, |ip| ip.header_len());
        packet.set_headers(LINK, header_len);
        match answer_echo(&mut packet, icmp::HOP_LIMIT) {
            Some(()) => match record_in_options(&mut packet, header_len, job) {
                Ok(()) => self.send_own(packet, came, job),
                Err(reason) => job.cx.discard(packet, reason),
            },
            None => job.cx.discard(packet, DropReason::Malformed),
        }
    }

    fn answer_v6(&mut self, request: &Packet, came: IngressInfo, job: &mut SlowPathContext<'_, '_>) {
        let packet = &request.data()[LINK..];
        let Some(src) = self.echo_source(packet, came, job) else { return };
        let Some(reply) = icmp::echo_reply(packet, src) else { return };
        let mtu = self.mtu_to(&reply, came, job);
        if reply.len() <= mtu {
            return self.send_reply(&reply, came, job);
        }
        self.ids = self.ids.wrapping_add(1);
        for fragment in icmp::fragment_ipv6(&reply, mtu, self.ids).unwrap_or_default() {
            self.send_reply(&fragment, came, job);
        }
    }

    /// The source of the reply to an IPv6 echo request: the address that was asked, unless that is one of
    /// several nodes (RFC 4443 section 4.2).
    fn echo_source(
        &self,
        request: &[u8],
        came: IngressInfo,
        job: &SlowPathContext<'_, '_>,
    ) -> Option<Ipv6Addr> {
        let (asking, asked) = Ipv6::new(request).map(|ip| (ip.src(), ip.dst())).ok()?;
        let ports = job.view().ports;
        if ports.iter().any(|port| is_own_address(port, asked.into())) {
            return Some(asked);
        }
        let is_usable = |port, address| self.is_usable(port, address);
        IcmpSource { ports, port: came.from.port(), is_usable: &is_usable }.ipv6_source(asking)
    }

    /// How long an IPv6 packet of our own may be.
    fn mtu_to(&self, packet: &[u8], came: IngressInfo, job: &SlowPathContext<'_, '_>) -> usize {
        let port = came.from.port().and_then(|port| job.port(port)).map_or(1280, |port| port.mtu.into());
        match flow::source_and_destination(packet) {
            Some((_, IpAddr::V6(to))) if !to.is_unicast_link_local() => {
                let view = job.view();
                view.v6.explain_path(view.turn, to.to_bits(), |_| 0).decision.mtu.into()
            }
            _ => port,
        }
    }

    /// The host's MAC address, if there is a host behind a router with so many outputs.
    pub(super) fn host_address(&self, router: &SharedRouter, outputs: usize) -> Option<EtherAddr> {
        self.settings.host.filter(|_| router.port_count() < outputs)
    }

    /// Whether packets for the router that it does not answer itself can go to a host.
    pub(super) fn has_host(&self, job: &SlowPathContext<'_, '_>) -> bool {
        self.settings.has_host_ports || self.host_address(job.router, job.cx.outputs()).is_some()
    }

    /// Hands a packet to the host, or ends it if there is none.
    pub(super) fn hand_to_host(
        &mut self,
        mut packet: Packet,
        came: IngressInfo,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        if let (true, Some(port)) = (self.settings.has_host_ports, came.from.port()) {
            return self.hand_to_host_port(packet, port, job);
        }
        let Some(host) = self.host_address(job.router, job.cx.outputs()) else {
            return job.cx.discard(packet, DropReason::Local);
        };
        match write_link(&mut packet, host, mac_for_host(job.view().ports)) {
            Ok(()) => job.cx.send(job.router.port_count(), packet),
            Err(reason) => job.cx.discard(packet, reason),
        }
    }
}

/// Applies options of an echo reply that record who had it and when.
fn record_in_options(
    packet: &mut Packet,
    header_len: usize,
    job: &mut SlowPathContext<'_, '_>,
) -> Result<(), DropReason> {
    let header = packet.data_mut().get_mut(LINK..LINK + header_len).ok_or(DropReason::Malformed)?;
    let address = Ipv4::new(&*header).map_err(|_| DropReason::Malformed)?.src();
    let gateway = OptionProcessor { address, is_own: &|other| other == address, now: job.cx.now() };
    if header_len > HEADER4 && gateway.process_options(header).map_err(|_| DropReason::BadOption)? {
        Ipv4::new(header).map_err(|_| DropReason::Malformed)?.fill_checksum();
    }
    Ok(())
}

/// The error for a packet whose fragments did not all come in time; `first` is its first fragment.
fn reassembly_timeout_reply(first: &[u8]) -> IcmpReply {
    match Ipv4::new(first) {
        Ok(_) => IcmpReply::V4(IcmpError { code: REASSEMBLY, ..IcmpError::time_exceeded() }),
        Err(_) => IcmpReply::V6(Icmp6Error { code: REASSEMBLY, ..Icmp6Error::time_exceeded() }),
    }
}
