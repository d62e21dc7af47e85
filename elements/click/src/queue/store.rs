//! The common part of all Queue classes. They differ in their notifications and drop policies.
use artery_engine::{
    Arg, ArgError, Args, Batch, Context, DropReason, Element, Handler, HandlerError, Packet, Show, Signal,
    StartError, Write, parse_value,
};
use std::any::Any;
use std::collections::VecDeque;

/// CAPACITY, the one argument.
pub(super) static ARGS: &[Arg] = &[Arg::optional("CAPACITY", "packets", "1000", "most packets to hold")];

/// The handlers of every queue.
pub(super) static HANDLERS: &[Handler] = &[
    Handler::read("length", "packets held", &Show(|q: &mut Store| q.packets.len())).sum(),
    Handler::read("highwater_length", "most packets ever held", &Show(|q: &mut Store| q.highwater)).sum(),
    Handler::read("capacity", "CAPACITY", &Show(|q: &mut Store| q.capacity))
        .and_write(&Write(Store::write_capacity))
        .sets_argument("CAPACITY"),
    Handler::read("drops", "packets that found no room", &Show(|q: &mut Store| q.drops)).sum(),
    Handler::write(
        "reset_counts",
        "sets drops to zero and the highwater mark to the length",
        &Write(Store::reset_counts),
    )
    .button(),
    Handler::write("reset", "discards all packets held", &Write(Store::discard_all)).button(),
];

/// Which packet is dropped when the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// The one that arrives.
    DropNew,
    /// The one that has waited longest.
    DropOldest,
    /// On input 0 the one that arrives. Packets of input 1 go to the front, and the one at
    /// the end is dropped.
    Mixed,
}

/// The notifications of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tells {
    Nobody,
    /// Notifies downstream when packets come.
    Pullers,
    /// Also notifies upstream when there is room again.
    All,
}

/// Empty pulls after which the queue signals that it is empty: a nearly empty queue should not wake its
/// puller for every packet.
const EMPTY_PULLS: u32 = 9;

/// Most packets to reserve memory for at the start.
const RESERVE: usize = 1 << 16;

pub(super) struct Store {
    class: &'static str,
    policy: Policy,
    tells: Tells,
    packets: VecDeque<Packet>,
    /// What the user sees as capacity.
    capacity: usize,
    /// Number of copies on workers, each with its share of the capacity.
    copies: usize,
    drops: u64,
    highwater: usize,
    /// Vain pulls since the last packet.
    empty_pulls: u32,
}

impl Store {
    pub(super) fn build_queue(
        class: &'static str,
        policy: Policy,
        tells: Tells,
        args: &mut Args<'_>,
    ) -> Result<Box<dyn Element>, ArgError> {
        let capacity = args.read::<u32>("CAPACITY")? as usize;
        let copies = args.worker().1.max(1);
        let mut packets = VecDeque::new();
        packets.reserve(capacity.div_ceil(copies).min(RESERVE));
        let (drops, highwater, vain) = (0, 0, 0);
        Ok(Box::new(Store {
            class,
            policy,
            tells,
            packets,
            capacity,
            copies,
            drops,
            highwater,
            empty_pulls: vain,
        }))
    }

    /// The capacity of this copy.
    fn copy_limit(&self) -> usize {
        self.capacity.div_ceil(self.copies)
    }
    fn free_room(&self) -> usize {
        self.copy_limit().saturating_sub(self.packets.len())
    }
    fn signal_free_room(&self, cx: &mut Context<'_>) {
        if self.tells == Tells::All {
            cx.signal_room(self.free_room());
        }
    }
    fn signal_packets(&mut self, cx: &mut Context<'_>) {
        self.highwater = self.highwater.max(self.packets.len());
        if self.tells != Tells::Nobody && !self.packets.is_empty() {
            cx.set_signal(Signal::NonEmpty, true);
        }
        self.signal_free_room(cx);
    }

    /// Counts packets dropped for lack of room, and reports the first.
    fn count_overflow(&mut self, packets: usize, cx: &mut Context<'_>) {
        if self.drops == 0 && self.capacity > 0 {
            let line = format!("{} :: {}: overflow", cx.name(), self.class);
            cx.print_message(&line);
        }
        self.drops += packets as u64;
    }
    fn drop_one(&mut self, packet: Packet, cx: &mut Context<'_>) {
        self.count_overflow(1, cx);
        cx.send_or_discard(1, packet, DropReason::QueueFull);
    }

    fn add_or_drop(&mut self, batch: &mut Batch, cx: &mut Context<'_>) {
        self.packets.extend(batch.drain_front(self.free_room()));
        if batch.is_empty() {
            return;
        }
        self.count_overflow(batch.len(), cx);
        if cx.outputs() > 1 { cx.send_all(1, batch) } else { cx.discard_all(batch, DropReason::QueueFull) }
    }
    fn add_dropping_oldest(&mut self, batch: &mut Batch, cx: &mut Context<'_>) {
        for packet in batch.drain() {
            self.packets.push_back(packet);
            if self.packets.len() > self.copy_limit()
                && let Some(oldest) = self.packets.pop_front()
            {
                self.drop_one(oldest, cx);
            }
        }
    }
    fn add_in_front(&mut self, batch: &mut Batch, cx: &mut Context<'_>) {
        for packet in batch.drain() {
            self.packets.push_front(packet);
            if self.packets.len() > self.copy_limit()
                && let Some(last) = self.packets.pop_back()
            {
                self.drop_one(last, cx);
            }
        }
    }

    fn write_capacity(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.capacity = parse_value::<u32>(text)? as usize;
        self.drop_excess(DropReason::QueueFull, cx);
        self.signal_free_room(cx);
        Ok(())
    }
    /// Drops packets beyond the capacity.
    fn drop_excess(&mut self, reason: DropReason, cx: &mut Context<'_>) {
        while self.packets.len() > self.copy_limit() {
            let excess = self.pop_excess();
            excess.into_iter().for_each(|packet| cx.discard(packet, reason));
        }
    }
    /// The packet to drop when the capacity shrinks.
    fn pop_excess(&mut self) -> Option<Packet> {
        if self.policy == Policy::DropOldest { self.packets.pop_front() } else { self.packets.pop_back() }
    }
    fn reset_counts(&mut self, _: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        (self.drops, self.highwater) = (0, self.packets.len());
        Ok(())
    }
    fn discard_all(&mut self, _: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.packets.drain(..).for_each(|packet| cx.send_or_discard(1, packet, DropReason::Discarded));
        self.signal_free_room(cx);
        Ok(())
    }
}

impl Element for Store {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        match (self.policy, input) {
            (Policy::DropNew, _) | (Policy::Mixed, 0) => self.add_or_drop(batch, cx),
            (Policy::DropOldest, _) => self.add_dropping_oldest(batch, cx),
            (Policy::Mixed, _) => self.add_in_front(batch, cx),
        }
        self.signal_packets(cx);
    }

    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        if max == 0 {
            return;
        }
        let n = max.min(self.packets.len());
        into.extend(self.packets.drain(..n));
        if n > 0 {
            self.empty_pulls = 0;
            self.signal_free_room(cx);
        } else if self.empty_pulls < EMPTY_PULLS {
            self.empty_pulls += 1;
        } else if self.tells != Tells::Nobody {
            cx.set_signal(Signal::NonEmpty, false);
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.signal_free_room(cx);
        Ok(())
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        let Some(old) = old.downcast_mut::<Store>() else { return };
        self.packets.append(&mut old.packets);
        if cx.is_replacing() {
            self.drop_excess(DropReason::Replaced, cx);
            self.highwater = 0;
        } else {
            // The same queue with another capacity.
            (self.drops, self.highwater) = (old.drops, old.highwater);
            self.drop_excess(DropReason::QueueFull, cx);
        }
        self.signal_packets(cx);
    }

    /// When the graph is replaced, discards what no successor took over. At the end of a run packets stay,
    /// for handlers to count.
    fn stop(&mut self, cx: &mut Context<'_>) {
        if cx.is_replacing() {
            self.packets.drain(..).for_each(|packet| cx.discard(packet, DropReason::Replaced));
        }
    }
}
