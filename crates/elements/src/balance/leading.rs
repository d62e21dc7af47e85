//! Leads frames to members: by the shortcut past the forwarders, or by annotation.
use super::known::{Noted, Tell};
use crate::router::plain::Forwarded;
use crate::router::shortcut::Lane;
use artery_engine::Packet;
use artery_table::balance::{Choice, MemberId};

/// Where a frame goes: on to the forwarders, ...
pub(super) const ON: u16 = u16::MAX;
/// ... nowhere, since it is for a service and no member can take it, or to the port of this number.
pub(super) const NOWHERE: u16 = u16::MAX - 1;

/// Leads frames of a family to their members.
pub(super) struct Leading<'a, 't, A: Forwarded> {
    /// The shortcut, where it is open.
    pub(super) lane: Option<Lane<'t, A>>,
    pub(super) frames: &'a mut [Packet],
    /// Where each goes.
    pub(super) exits: &'a mut [u16],
    pub(super) choice: &'a Choice,
}

impl<A: Forwarded> Tell for Leading<'_, '_, A> {
    #[inline(never)]
    fn tell(&mut self, packet: Noted, member: Option<MemberId>) {
        match member {
            Some(member) => self.known(packet, member),
            None => self.exits[packet.at()] = NOWHERE,
        }
    }

    #[inline(always)]
    fn known(&mut self, packet: Noted, member: MemberId) {
        if packet.is_plain
            && let Some(lane) = &self.lane
            && let Some(frame) = self.frames.get_mut(packet.at())
            && let Some(exit) = self.exits.get_mut(packet.at())
            && let Some(port) = lane.take(frame, member.place())
        {
            *exit = port.0;
        } else {
            self.known_closer(packet, member);
        }
    }
}

impl<A: Forwarded> Leading<'_, '_, A> {
    /// The same where the frame may not take the shortcut, or only after more looks.
    #[inline(never)]
    fn known_closer(&mut self, packet: Noted, member: MemberId) {
        let (frame, to) = (&mut self.frames[packet.at()], A::narrowed(self.choice.address_bits(member)));
        let lane = self.lane.as_mut();
        let port = lane.and_then(|lane| lane.take_closer(frame, packet.is_plain, member.place(), to));
        self.exits[packet.at()] = match port {
            Some(port) => port.0,
            None if to == A::ZERO => NOWHERE,
            None => {
                A::lead(frame, to);
                ON
            }
        };
    }
}
