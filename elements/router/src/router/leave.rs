//! Egress from the router: rewrites a packet, fragments it if it must, sends it, and sends a redirect to its
//! sender.
use super::icmp::IcmpSource;
use super::redirect::{Redirect, build_redirect};
use super::slow_path::{SlowPath, SlowPathContext};
use super::verdict::{EgressPlan, IngressInfo};
use artery_common::fragments::Fragmenter;
use artery_common::gateway_options::OptionProcessor;
use artery_common::ip_header;
use artery_engine::{DropReason, Level, Packet};
use artery_forward::fast_path::LINK;
use artery_l3::router::PortView;
use artery_wire::{EtherAddr, Ethernet, Ipv4, Ipv6};
use std::net::Ipv4Addr;

/// Room for headers in front of the fragments of a packet.
const HEADROOM: usize = 64;
const HEADER6: usize = 40;

impl SlowPath {
    /// Sends a frame whose next hop is known, after the packets that waited for the same neighbor.
    pub(super) fn forward_packet(
        &mut self,
        mut packet: Packet,
        leave: &EgressPlan,
        came: IngressInfo,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        let neighbor = (leave.decision.port, leave.next_hop);
        self.release_if_ready(neighbor, job);
        if leave.decision.link.wants_report() {
            job.report_use(&neighbor);
        }
        let Some(port) = job.port(leave.decision.port) else {
            return job.cx.discard(packet, DropReason::PortDown);
        };
        if came.from.port().is_some() && job.cx.is_monitored_at(Level::L3, &packet) {
            return job.cx.discard(packet, DropReason::Monitored);
        }
        self.send_redirect(packet.data(), leave, came, job);
        if let Err(reason) = rewrite_headers(&mut packet, leave, port, job) {
            return job.cx.discard(packet, reason);
        }
        if leave.is_cut {
            self.send_fragments(packet, leave, job)
        } else {
            job.cx.send(leave.decision.port.0.into(), packet)
        }
    }

    /// Sends an IPv4 packet in fragments.
    fn send_fragments(&mut self, mut packet: Packet, leave: &EgressPlan, job: &mut SlowPathContext<'_, '_>) {
        let mut link = [0; LINK];
        link.copy_from_slice(&packet.data()[..LINK]);
        let (mtu, port) = (usize::from(leave.decision.mtu), usize::from(leave.decision.port.0));
        let header_len = Ipv4::new(&packet.data()[LINK..]).map_or(0, |ip| ip.header_len());
        if packet.strip(LINK).is_err() {
            return job.cx.discard(packet, DropReason::TooShort);
        }
        ip_header::mark_header(&mut packet, 0, header_len);
        let mut rest = job.cx.scratch_batch();
        let first = mtu.saturating_sub(header_len) & !7;
        let done = Fragmenter { mtu, headroom: HEADROOM }.split_packet(&mut packet, first, &mut rest, job.cx);
        if done.is_none() {
            job.cx.recycle_batch(rest);
            return job.cx.discard(packet, DropReason::Malformed);
        }
        self.counters.fragments += 1 + rest.len() as u64;
        for mut fragment in std::iter::once(packet).chain(rest.drain()) {
            match fragment.prepend(LINK) {
                Ok(room) => {
                    room.copy_from_slice(&link);
                    job.cx.send(port, fragment);
                }
                Err(_) => job.cx.discard(fragment, DropReason::NoRoom),
            }
        }
        job.cx.recycle_batch(rest);
    }

    /// Sends a redirect to a frame's sender, if there is a better first hop. A redirect that may not be
    /// sent takes no permit.
    fn send_redirect(
        &mut self,
        frame: &[u8],
        leave: &EgressPlan,
        came: IngressInfo,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        let is_usable = |port, address| self.is_usable(port, address);
        let from = IcmpSource { ports: job.view().ports, port: came.from.port(), is_usable: &is_usable };
        let Some(redirect) = build_redirect(frame, leave, came, from) else { return };
        if !self.limits.try_acquire(redirect.destination(), job.now) {
            self.counters.redirects_limited += 1;
            return;
        }
        self.counters.redirects += 1;
        let packet = frame.get(LINK..).unwrap_or_default();
        match redirect {
            Redirect::V4(error) => {
                let packet = error.build_packet(packet, self.next_id());
                self.send_reply(&packet, came, job);
            }
            Redirect::V6(frame) => {
                frame.to_bytes(packet).map(|frame| job.send_frame(leave.decision.port, &frame));
            }
        }
    }
}

/// Writes the headers of a frame that leaves by a port, and removes its padding.
fn rewrite_headers(
    packet: &mut Packet,
    leave: &EgressPlan,
    port: &PortView,
    job: &mut SlowPathContext<'_, '_>,
) -> Result<(), DropReason> {
    let to = leave.decision.link.address().ok_or(DropReason::NeighborUnresolved)?;
    let bytes = packet.data_mut().get_mut(LINK..).ok_or(DropReason::TooShort)?;
    let length = match leave.family(bytes) {
        Family::V4 => rewrite_v4(bytes, leave, port, job)?,
        Family::V6 => rewrite_v6(bytes, leave)?,
    };
    packet.truncate(LINK + length);
    write_link(packet, to, port.address)
}

/// Writes the MAC addresses of a frame.
pub(super) fn write_link(packet: &mut Packet, to: EtherAddr, from: EtherAddr) -> Result<(), DropReason> {
    let mut ethernet = Ethernet::new(packet.data_mut())?;
    ethernet.set_dst(to);
    ethernet.set_src(from);
    Ok(())
}

enum Family {
    V4,
    V6,
}

impl EgressPlan {
    /// The packet's, which need not be its next hop's.
    fn family(&self, packet: &[u8]) -> Family {
        if packet.first().is_some_and(|first| first >> 4 == 4) { Family::V4 } else { Family::V6 }
    }
}

fn rewrite_v4(
    bytes: &mut [u8],
    leave: &EgressPlan,
    port: &PortView,
    job: &mut SlowPathContext<'_, '_>,
) -> Result<usize, DropReason> {
    let mut ip = Ipv4::new(&mut *bytes).map_err(|_| DropReason::Malformed)?;
    let (length, header_len) = (ip.total_length().into(), ip.header_len());
    if leave.is_hop {
        ip.decrement_ttl();
        if header_len > 20 {
            apply_options(&mut bytes[..header_len], port, job)?;
        }
    }
    Ok(length)
}

/// Applies IP options that record the egress address and the time.
fn apply_options(
    header: &mut [u8],
    port: &PortView,
    job: &mut SlowPathContext<'_, '_>,
) -> Result<(), DropReason> {
    let ports = job.view().ports;
    let is_own =
        |address: Ipv4Addr| ports.iter().any(|port| port.v4.iter().any(|(own, _)| *own == address.to_bits()));
    let any = || ports.iter().find_map(|port| port.v4.first());
    let address = port.v4.first().or_else(any).map_or(Ipv4Addr::UNSPECIFIED, |(own, _)| (*own).into());
    let gateway = OptionProcessor { address, is_own: &is_own, now: job.cx.now() };
    if gateway.process_options(header).map_err(|_| DropReason::BadOption)? {
        Ipv4::new(header).map_err(|_| DropReason::Malformed)?.fill_checksum();
    }
    Ok(())
}

fn rewrite_v6(bytes: &mut [u8], leave: &EgressPlan) -> Result<usize, DropReason> {
    let mut ip = Ipv6::new(bytes).map_err(|_| DropReason::Malformed)?;
    if leave.is_hop {
        ip.set_hop_limit(ip.hop_limit().saturating_sub(1));
    }
    Ok(HEADER6 + usize::from(ip.payload_length()))
}
