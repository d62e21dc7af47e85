//! A packet's last steps in the router: rewritten, cut if it must be, and sent; its sender told of a better first hop.
use super::icmp::Speaker;
use super::redirect::{Redirect, redirect};
use super::slow::{Job, LINK, Slow};
use super::verdict::{Came, Leave};
use crate::ip::fragments::Cut;
use crate::ip::gateway_options::Gateway;
use crate::ip::ip_header;
use artery_engine::{DropReason, Level, Packet};
use artery_table::router::PortView;
use artery_wire::{EtherAddr, Ethernet, Ipv4, Ipv6};
use std::net::Ipv4Addr;

/// Room for headers in front of the fragments of a packet.
const HEADROOM: usize = 64;
const HEADER6: usize = 40;

impl Slow {
    /// Sends a frame whose next hop is known. Those that waited for the same neighbor go before.
    pub(super) fn leave(&mut self, mut packet: Packet, leave: &Leave, came: Came, job: &mut Job<'_, '_>) {
        let neighbor = (leave.decision.port, leave.next_hop);
        self.let_go(neighbor, job);
        if leave.decision.link.wants_report() {
            job.report_use(&neighbor);
        }
        let Some(port) = job.port(leave.decision.port) else {
            return job.cx.discard(packet, DropReason::PortDown);
        };
        if came.from.port().is_some() && job.cx.exits(Level::L3, &packet) {
            return job.cx.discard(packet, DropReason::Monitored);
        }
        self.redirect(packet.data(), leave, came, job);
        if let Err(reason) = rewrite(&mut packet, leave, port, job) {
            return job.cx.discard(packet, reason);
        }
        if leave.is_cut {
            self.cut(packet, leave, job)
        } else {
            job.cx.send(leave.decision.port.0.into(), packet)
        }
    }

    /// Sends an IPv4 packet in fragments.
    fn cut(&mut self, mut packet: Packet, leave: &Leave, job: &mut Job<'_, '_>) {
        let mut link = [0; LINK];
        link.copy_from_slice(&packet.data()[..LINK]);
        let (mtu, port) = (usize::from(leave.decision.mtu), usize::from(leave.decision.port.0));
        let header_len = Ipv4::new(&packet.data()[LINK..]).map_or(0, |ip| ip.header_len());
        if packet.strip(LINK).is_err() {
            return job.cx.discard(packet, DropReason::TooShort);
        }
        ip_header::mark(&mut packet, 0, header_len);
        let mut rest = job.cx.spare();
        let first = mtu.saturating_sub(header_len) & !7;
        let done = Cut { mtu, headroom: HEADROOM }.split(&mut packet, first, &mut rest, job.cx);
        if done.is_none() {
            job.cx.give_spare(rest);
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
        job.cx.give_spare(rest);
    }

    /// Tells a frame's sender of a better first hop, if there is one. What can't be said uses up no permit.
    fn redirect(&mut self, frame: &[u8], leave: &Leave, came: Came, job: &mut Job<'_, '_>) {
        let is_usable = |port, address| self.is_usable(port, address);
        let from = Speaker { ports: job.view().ports, port: came.from.port(), is_usable: &is_usable };
        let Some(redirect) = redirect(frame, leave, came, from) else { return };
        if !self.limits.take(redirect.to(), job.now) {
            self.counters.redirects_limited += 1;
            return;
        }
        self.counters.redirects += 1;
        let packet = frame.get(LINK..).unwrap_or_default();
        match redirect {
            Redirect::V4(error) => {
                let packet = error.packet(packet, self.next_id());
                self.say(&packet, came, job);
            }
            Redirect::V6(frame) => {
                frame.bytes(packet).map(|frame| job.send(leave.decision.port, &frame));
            }
        }
    }
}

/// Writes the headers of a frame that leaves by a port, and takes its padding away.
fn rewrite(
    packet: &mut Packet,
    leave: &Leave,
    port: &PortView,
    job: &mut Job<'_, '_>,
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

/// Writes the stations of a frame.
pub(super) fn write_link(packet: &mut Packet, to: EtherAddr, from: EtherAddr) -> Result<(), DropReason> {
    let mut ethernet = Ethernet::new(packet.data_mut()).map_err(|_| DropReason::TooShort)?;
    ethernet.set_dst(to);
    ethernet.set_src(from);
    Ok(())
}

enum Family {
    V4,
    V6,
}

impl Leave {
    /// The packet's, which need not be its next hop's.
    fn family(&self, packet: &[u8]) -> Family {
        if packet.first().is_some_and(|first| first >> 4 == 4) { Family::V4 } else { Family::V6 }
    }
}

fn rewrite_v4(
    bytes: &mut [u8],
    leave: &Leave,
    port: &PortView,
    job: &mut Job<'_, '_>,
) -> Result<usize, DropReason> {
    let mut ip = Ipv4::new(&mut *bytes).map_err(|_| DropReason::Malformed)?;
    let (length, header_len) = (ip.total_length().into(), ip.header_len());
    if leave.is_hop {
        ip.decrement_ttl();
        if header_len > 20 {
            heed_options(&mut bytes[..header_len], port, job)?;
        }
    }
    Ok(length)
}

/// What options ask for: the address that the packet leaves by, and when it does.
fn heed_options(header: &mut [u8], port: &PortView, job: &mut Job<'_, '_>) -> Result<(), DropReason> {
    let ports = job.view().ports;
    let is_own =
        |address: Ipv4Addr| ports.iter().any(|port| port.v4.iter().any(|(own, _)| *own == address.to_bits()));
    let any = || ports.iter().find_map(|port| port.v4.first());
    let address = port.v4.first().or_else(any).map_or(Ipv4Addr::UNSPECIFIED, |(own, _)| (*own).into());
    let gateway = Gateway { address, is_own: &is_own, now: job.cx.now() };
    if gateway.heed(header).map_err(|_| DropReason::BadOption)? {
        Ipv4::new(header).map_err(|_| DropReason::Malformed)?.fill_checksum();
    }
    Ok(())
}

fn rewrite_v6(bytes: &mut [u8], leave: &Leave) -> Result<usize, DropReason> {
    let mut ip = Ipv6::new(bytes).map_err(|_| DropReason::Malformed)?;
    if leave.is_hop {
        ip.set_hop_limit(ip.hop_limit().saturating_sub(1));
    }
    Ok(HEADER6 + usize::from(ip.payload_length()))
}
