//! What happens to packets that are followed, and where: kept in the session of a trace.
use super::session::TracePoint;
use super::{TraceEvent, Tracer};
use crate::handover::PortRef;
use crate::layout::Layout;
use crate::reason::DropReason;
use artery_packet::{Mark, Packet, Time};

/// Where and when something happens to packets.
pub(crate) struct Scene<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) tracer: &'a Tracer,
    pub(crate) worker: usize,
    pub(crate) time: Time,
}

impl Scene<'_> {
    /// Packets are sent by an element without inputs.
    pub(super) fn begin_packets(&self, node: usize, output: usize, packets: &mut [Packet]) {
        if !self.tracer.wants_more() {
            return;
        }
        let mut session = self.tracer.lock_session();
        if !session.begins_at(self.layout.name(node), false) {
            return;
        }
        for packet in packets {
            let Some(id) = session.mark_packet(packet) else { break };
            session.record_event(self, id, node, TraceEvent::Began(output as u16), Some(packet));
        }
        self.tracer.set_missing(session.missing_count());
    }

    /// Packets are about to be handed to an element.
    pub(super) fn record_entry(&self, (node, input): PortRef, packets: &mut [Packet]) {
        let wants_more = self.tracer.wants_more();
        if !wants_more && !packets.iter().any(Packet::is_marked) {
            return;
        }
        let node = node as usize;
        let mut session = self.tracer.lock_session();
        let begins = wants_more && session.begins_at(self.layout.name(node), true);
        for packet in packets {
            let id = session.identify_packet(self, TracePoint::Input(node, input), packet);
            let id = id.or_else(|| if begins { session.mark_packet(packet) } else { None });
            let Some(id) = id else { continue };
            let (_, output) = session.last_element(self, id, node, input);
            session.record_event(self, id, node, TraceEvent::Entered(input, output), Some(packet));
        }
        self.tracer.set_missing(session.missing_count());
    }

    /// A packet ends in an element.
    pub(super) fn record_drop(&self, node: usize, packet: &mut Packet, reason: DropReason) {
        let mut session = self.tracer.lock_session();
        if let Some(id) = session.identify_packet(self, TracePoint::Element(node), packet) {
            session.record_event(self, id, node, TraceEvent::Dropped(reason), Some(packet));
        }
    }

    /// The packet that bore this mark has ended in an element.
    pub(super) fn record_end(&self, node: usize, mark: Mark, event: TraceEvent) {
        let mut session = self.tracer.lock_session();
        if let Some(id) = session.under_way(mark) {
            session.record_event(self, id, node, event, None);
        }
    }
}
