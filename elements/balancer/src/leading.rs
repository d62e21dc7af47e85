//! Redirects frames to members: by the shortcut past the forwarders, or by annotation.
use super::chooser::{AssignmentSink, BatchPacket};
use artery_engine::Packet;
use artery_flow::balance::{Choice, MemberId};
use artery_forward::fast_path::ForwardFamily;
use artery_forward::shortcut::FamilyShortcut;

/// The output value of a frame that goes to the forwarders.
pub(super) const TO_FORWARDER: u16 = u16::MAX;
/// The output value of a frame that is dropped, since no member can take it. Smaller values are ports.
pub(super) const NOWHERE: u16 = u16::MAX - 1;

/// Redirects frames of a family to their members.
pub(super) struct FrameRedirector<'a, 't, A: ForwardFamily> {
    /// The shortcut, where it is open.
    pub(super) shortcut: Option<FamilyShortcut<'t, A>>,
    pub(super) frames: &'a mut [Packet],
    /// The output of each frame.
    pub(super) outputs: &'a mut [u16],
    pub(super) choice: &'a Choice,
}

impl<A: ForwardFamily> AssignmentSink for FrameRedirector<'_, '_, A> {
    #[inline(never)]
    fn on_assigned(&mut self, packet: BatchPacket, member: Option<MemberId>) {
        match member {
            Some(member) => self.on_known(packet, member),
            None => self.outputs[packet.index()] = NOWHERE,
        }
    }

    #[inline(always)]
    fn on_known(&mut self, packet: BatchPacket, member: MemberId) {
        if packet.is_fast_path
            && let Some(lane) = &self.shortcut
            && let Some(frame) = self.frames.get_mut(packet.index())
            && let Some(exit) = self.outputs.get_mut(packet.index())
            && let Some(port) = lane.forward_known(frame, member.place())
        {
            *exit = port.0;
        } else {
            self.redirect_closer(packet, member);
        }
    }
}

impl<A: ForwardFamily> FrameRedirector<'_, '_, A> {
    /// The same if the frame may not take the shortcut, or only after further checks.
    #[inline(never)]
    fn redirect_closer(&mut self, packet: BatchPacket, member: MemberId) {
        let (frame, to) = (&mut self.frames[packet.index()], A::from_wide(self.choice.address_bits(member)));
        let lane = self.shortcut.as_mut();
        let port =
            lane.and_then(|lane| lane.forward_or_resolve(frame, packet.is_fast_path, member.place(), to));
        self.outputs[packet.index()] = match port {
            Some(port) => port.0,
            None if to == A::ZERO => NOWHERE,
            None => {
                A::redirect_packet(frame, to);
                TO_FORWARDER
            }
        };
    }
}
