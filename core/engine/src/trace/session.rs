//! One trace: which packets it follows, and what it recorded of each.
use super::scene::Scene;
use super::{MOST_COPIES, MOST_RECORDS, SNAPSHOT, Snapshot, TraceEvent, TraceRecord};
use artery_packet::{Mark, Packet, anno};
use std::time::{Duration, Instant};

/// Bits of a mark's number for the copy, the packet, and the trace; so that marks of an
/// earlier trace mean nothing.
const COPY_BITS: u32 = 6;
const PACKET_BITS: u32 = 10;
const SESSIONS: u32 = 1 << (31 - COPY_BITS - PACKET_BITS);
const _: () = assert!(MOST_COPIES < 1 << COPY_BITS && super::MOST_PACKETS <= 1 << PACKET_BITS);

/// A packet that is followed, and all that is made from it.
#[derive(Clone, Debug, Default)]
pub(super) struct Traced {
    pub(super) records: Vec<TraceRecord>,
    /// Records and copies that there was no room for.
    pub(super) lost: u64,
    /// Copies so far, with the packet itself.
    copies: u8,
    /// Which of them have not ended.
    open: u64,
}

#[derive(Default)]
pub(super) struct Session {
    number: u32,
    wanted: usize,
    /// The element at which packets begin; none for all without inputs.
    from: Option<String>,
    pub(super) packets: Vec<Traced>,
    last_event: Option<Instant>,
}

/// How far a trace is.
pub(super) struct TraceState {
    pub(super) number: u32,
    pub(super) wanted: usize,
    pub(super) seen: usize,
    pub(super) under_way: u32,
}

/// Where a packet is met.
#[derive(Clone, Copy)]
pub(super) enum TracePoint {
    /// On its way into this input of an element.
    Input(usize, u16),
    /// While this element had it.
    Element(usize),
}

/// A packet of the trace: its number from 0, and which copy it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TracedId {
    packet: usize,
    copy: u8,
}

impl Session {
    pub(super) fn begin_session(&mut self, wanted: usize, from: Option<String>) {
        let number = (self.number + 1) % SESSIONS;
        *self = Session { number, wanted, from, ..Session::default() };
    }

    /// Follows no further packets, and none any further. The records stay.
    pub(super) fn end_session(&mut self) {
        self.wanted = self.packets.len();
        self.packets.iter_mut().for_each(|traced| traced.open = 0);
    }

    pub(super) fn state(&self) -> TraceState {
        TraceState {
            number: self.number,
            wanted: self.wanted,
            seen: self.packets.len(),
            under_way: self.packets.iter().map(|traced| traced.open.count_ones()).sum(),
        }
    }

    /// Whether all packets have ended, the last one so long ago.
    pub(super) fn is_over(&self, aftermath: Duration) -> bool {
        let TraceState { wanted, seen, under_way, .. } = self.state();
        let is_quiet = self.last_event.is_none_or(|last| last.elapsed() >= aftermath);
        seen == wanted && under_way == 0 && is_quiet
    }

    /// How many packets are still to be marked.
    pub(super) fn missing_count(&self) -> usize {
        self.wanted - self.packets.len()
    }

    /// Whether packets begin at an element.
    pub(super) fn begins_at(&self, element: &str, has_inputs: bool) -> bool {
        match &self.from {
            Some(from) => from == element,
            None => !has_inputs,
        }
    }

    /// Marks a packet that no trace follows, if one more is wanted.
    pub(super) fn mark_packet(&mut self, packet: &mut Packet) -> Option<TracedId> {
        if self.missing_count() == 0 {
            return None;
        }
        self.packets.push(Traced { copies: 1, open: 1, ..Traced::default() });
        let id = TracedId { packet: self.packets.len() - 1, copy: 0 };
        packet.set_mark(self.mark_number(id));
        Some(id)
    }

    /// Which packet of this trace this is, that is in an element or on its way there. A copy that is met for
    /// the first time is followed from now on; a mark that means nothing any more is taken away.
    pub(super) fn identify_packet(
        &mut self,
        scene: &Scene<'_>,
        at: TracePoint,
        packet: &mut Packet,
    ) -> Option<TracedId> {
        let mark = packet.mark()?;
        let id = match mark.is_copy {
            false => self.under_way(mark),
            true => self.id_of_mark(mark).and_then(|of| self.follow_copy(scene, at, of, packet)),
        };
        match id {
            Some(id) if mark.is_copy => packet.set_mark(self.mark_number(id)),
            Some(_) => {}
            None => packet.unmark(),
        }
        id
    }

    /// The packet that bears this mark and has not ended.
    pub(super) fn under_way(&self, mark: Mark) -> Option<TracedId> {
        let is_open = |id: &TracedId| self.packets[id.packet].open & 1 << id.copy != 0;
        self.id_of_mark(mark).filter(|id| !mark.is_copy && is_open(id))
    }

    fn id_of_mark(&self, mark: Mark) -> Option<TracedId> {
        let copy = (mark.number & ((1 << COPY_BITS) - 1)) as u8;
        let packet = (mark.number >> COPY_BITS & ((1 << PACKET_BITS) - 1)) as usize;
        let is_known = mark.number >> (COPY_BITS + PACKET_BITS) == self.number
            && self.packets.get(packet).is_some_and(|traced| copy < traced.copies);
        is_known.then_some(TracedId { packet, copy })
    }

    fn mark_number(&self, id: TracedId) -> u32 {
        (self.number << PACKET_BITS | id.packet as u32) << COPY_BITS | u32::from(id.copy)
    }

    /// Follows a copy from now on.
    fn follow_copy(
        &mut self,
        scene: &Scene<'_>,
        at: TracePoint,
        of: TracedId,
        packet: &Packet,
    ) -> Option<TracedId> {
        let (maker, output) = match at {
            TracePoint::Input(node, input) => self.last_element(scene, of, node, input),
            TracePoint::Element(node) => (node, None),
        };
        let traced = &mut self.packets[of.packet];
        if usize::from(traced.copies) > MOST_COPIES {
            traced.lost += 1;
            return None;
        }
        let id = TracedId { copy: traced.copies, ..of };
        traced.copies += 1;
        traced.open |= 1 << id.copy;
        self.record_event(scene, id, maker, TraceEvent::Copied(of.copy, output), Some(packet));
        Some(id)
    }

    /// The element that a packet left last on its way to `node`, as far as the records tell, and by which
    /// output if only one leads there; `node` itself when none does.
    pub(super) fn last_element(
        &self,
        scene: &Scene<'_>,
        id: TracedId,
        node: usize,
        input: u16,
    ) -> (usize, Option<u16>) {
        let edges = || scene.layout.edges().iter().filter(|edge| edge.to == (node, usize::from(input)));
        let mut records =
            self.packets[id.packet].records.iter().rev().filter(|record| record.copy == id.copy);
        let met =
            |record: &TraceRecord| edges().find(|edge| scene.layout.name(edge.from.0) == record.element);
        let Some(edge) = records.find_map(met) else { return (node, None) };
        let mut outputs = edges().filter(|other| other.from.0 == edge.from.0);
        let output = outputs.next().filter(|_| outputs.next().is_none());
        (edge.from.0, output.and_then(|edge| u16::try_from(edge.from.1).ok()))
    }

    /// Keeps an event, if there is room.
    pub(super) fn record_event(
        &mut self,
        scene: &Scene<'_>,
        id: TracedId,
        node: usize,
        event: TraceEvent,
        packet: Option<&Packet>,
    ) {
        let traced = &mut self.packets[id.packet];
        self.last_event = Some(Instant::now());
        if event.is_end() {
            traced.open &= !(1 << id.copy);
        } else if traced.records.len() >= MOST_RECORDS {
            traced.lost += 1;
            return;
        }
        traced.records.push(TraceRecord {
            copy: id.copy,
            time: scene.time,
            worker: scene.worker,
            event,
            element: scene.layout.name(node).to_string(),
            class: scene.layout.class_name(node),
            snapshot: packet.map(Snapshot::from_packet),
        });
    }
}

impl Snapshot {
    fn from_packet(packet: &Packet) -> Snapshot {
        Snapshot {
            length: packet.len(),
            in_port: packet.in_port(),
            network: packet.network_offset(),
            paint: packet.paint(),
            dst: packet.annotation(anno::DST_IP6),
            data: packet.data()[..packet.len().min(SNAPSHOT)].to_vec(),
        }
    }
}
