//! Packets that wait: what all Queue classes share. They differ in whom they tell and what they drop.
use crate::value::value;
use artery_engine::{
    Arg, ArgError, Args, Batch, Context, DropReason, Element, Handler, HandlerError, Packet, Read, Signal,
    StartError, Write,
};
use std::any::Any;
use std::collections::VecDeque;

/// CAPACITY, the one argument.
pub(super) static ARGS: &[Arg] = &[Arg::optional("CAPACITY", "packets", "1000", "most packets to hold")];

/// The handlers of every queue.
pub(super) static HANDLERS: &[Handler] = &[
    Handler::read("length", "packets held", &Read(|q: &mut Store, _, _| Ok(q.packets.len().to_string())))
        .sum(),
    Handler::read(
        "highwater_length",
        "most packets ever held",
        &Read(|q: &mut Store, _, _| Ok(q.highwater.to_string())),
    )
    .sum(),
    Handler::read("capacity", "CAPACITY", &Read(|q: &mut Store, _, _| Ok(q.capacity.to_string())))
        .and_write(&Write(Store::write_capacity))
        .sets("CAPACITY"),
    Handler::read(
        "drops",
        "packets that found no room",
        &Read(|q: &mut Store, _, _| Ok(q.drops.to_string())),
    )
    .sum(),
    Handler::write(
        "reset_counts",
        "sets drops to zero and the highwater mark to the length",
        &Write(Store::reset_counts),
    )
    .button(),
    Handler::write("reset", "discards all packets held", &Write(Store::reset)).button(),
];

/// Which packet goes when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// The one that arrives.
    DropNew,
    /// The one that has waited longest.
    DropOldest,
    /// On input 0 the one that arrives. Packets of input 1 go to the front, and the one at the end is dropped.
    Mixed,
}

/// Whom a queue tells about what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tells {
    /// Nobody.
    Nobody,
    /// Whoever pulls, when packets come.
    Pullers,
    /// And whoever pushes, when there is room again.
    All,
}

/// How many vain pulls it takes to say that the queue is empty: one that hovers about empty should not wake its
/// puller for every packet.
const PATIENCE: u32 = 9;

/// Most packets to reserve memory for at the start.
const RESERVE: usize = 1 << 16;

/// A bounded queue.
pub(super) struct Store {
    class: &'static str,
    policy: Policy,
    tells: Tells,
    packets: VecDeque<Packet>,
    /// What the user sees as capacity.
    capacity: usize,
    /// Number of copies on workers, each of which holds its share.
    copies: usize,
    drops: u64,
    highwater: usize,
    /// Vain pulls since the last packet.
    vain: u32,
}

impl Store {
    pub(super) fn build(
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
        Ok(Box::new(Store { class, policy, tells, packets, capacity, copies, drops, highwater, vain }))
    }

    /// Most packets this copy holds.
    fn limit(&self) -> usize {
        self.capacity.div_ceil(self.copies)
    }
    fn room(&self) -> usize {
        self.limit().saturating_sub(self.packets.len())
    }
    fn note_room(&self, cx: &mut Context<'_>) {
        if self.tells == Tells::All {
            cx.signal_room(self.room());
        }
    }
    fn note_packets(&mut self, cx: &mut Context<'_>) {
        self.highwater = self.highwater.max(self.packets.len());
        if self.tells != Tells::Nobody && !self.packets.is_empty() {
            cx.signal(Signal::NonEmpty, true);
        }
        self.note_room(cx);
    }

    /// Takes note that packets find no room, and says so the first time.
    fn overflows(&mut self, packets: usize, cx: &mut Context<'_>) {
        if self.drops == 0 && self.capacity > 0 {
            let line = format!("{} :: {}: overflow", cx.name(), self.class);
            cx.say(&line);
        }
        self.drops += packets as u64;
    }
    fn drop_one(&mut self, packet: Packet, cx: &mut Context<'_>) {
        self.overflows(1, cx);
        cx.send_or_discard(1, packet, DropReason::QueueFull);
    }

    fn add_or_drop(&mut self, batch: &mut Batch, cx: &mut Context<'_>) {
        self.packets.extend(batch.drain_front(self.room()));
        if batch.is_empty() {
            return;
        }
        self.overflows(batch.len(), cx);
        if cx.outputs() > 1 { cx.send_all(1, batch) } else { cx.discard_all(batch, DropReason::QueueFull) }
    }
    fn add_dropping_oldest(&mut self, batch: &mut Batch, cx: &mut Context<'_>) {
        for packet in batch.drain() {
            self.packets.push_back(packet);
            if self.packets.len() > self.limit()
                && let Some(oldest) = self.packets.pop_front()
            {
                self.drop_one(oldest, cx);
            }
        }
    }
    fn add_in_front(&mut self, batch: &mut Batch, cx: &mut Context<'_>) {
        for packet in batch.drain() {
            self.packets.push_front(packet);
            if self.packets.len() > self.limit()
                && let Some(last) = self.packets.pop_back()
            {
                self.drop_one(last, cx);
            }
        }
    }

    fn write_capacity(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.capacity = value::<u32>(text)? as usize;
        self.shrink(DropReason::QueueFull, cx);
        self.note_room(cx);
        Ok(())
    }
    /// Gives up the packets that the capacity has no room for.
    fn shrink(&mut self, reason: DropReason, cx: &mut Context<'_>) {
        while self.packets.len() > self.limit() {
            let excess = self.pop_excess();
            excess.into_iter().for_each(|packet| cx.discard(packet, reason));
        }
    }
    /// The packet to give up when the capacity shrinks.
    fn pop_excess(&mut self) -> Option<Packet> {
        if self.policy == Policy::DropOldest { self.packets.pop_front() } else { self.packets.pop_back() }
    }
    fn reset_counts(&mut self, _: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        (self.drops, self.highwater) = (0, self.packets.len());
        Ok(())
    }
    fn reset(&mut self, _: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.packets.drain(..).for_each(|packet| cx.send_or_discard(1, packet, DropReason::Discarded));
        self.note_room(cx);
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
        self.note_packets(cx);
    }

    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        if max == 0 {
            return;
        }
        let n = max.min(self.packets.len());
        into.extend(self.packets.drain(..n));
        if n > 0 {
            self.vain = 0;
            self.note_room(cx);
        } else if self.vain < PATIENCE {
            self.vain += 1;
        } else if self.tells != Tells::Nobody {
            cx.signal(Signal::NonEmpty, false);
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.note_room(cx);
        Ok(())
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        let Some(old) = old.downcast_mut::<Store>() else { return };
        self.packets.append(&mut old.packets);
        if cx.is_replacing() {
            self.shrink(DropReason::Replaced, cx);
            self.highwater = 0;
        } else {
            // The same queue with another capacity.
            (self.drops, self.highwater) = (old.drops, old.highwater);
            self.shrink(DropReason::QueueFull, cx);
        }
        self.note_packets(cx);
    }

    /// What no heir took over is lost. At the end of a run packets stay, for handlers to count.
    fn stop(&mut self, cx: &mut Context<'_>) {
        if cx.is_replacing() {
            self.packets.drain(..).for_each(|packet| cx.discard(packet, DropReason::Replaced));
        }
    }
}
