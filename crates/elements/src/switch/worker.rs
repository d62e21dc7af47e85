//! A batch of frames on its way through a switch.
use super::filter::{BLOCKED_IN, BLOCKED_OUT, FrameFilter, Passage, Spot};
use super::speak::send_all;
use super::tag;
use artery_engine::{Batch, Context, DropReason, Packet};
use artery_table::stp::{Outgoing, SpanningSwitch};
use artery_table::switch::counts::Counts;
use artery_table::switch::decide::{self, Cause, Change, Entered, Leaving, Many, Stop, Way};
use artery_table::switch::quick::{NOT_IP, ODD, Ways};
use artery_table::switch::{
    Audience, Direction, GroupView, Learned, MacKey, MacTable, Mark, Sight, Switch, View, seconds,
};
use artery_wire::membership::Membership;
use std::time::Duration;

/// What a way is without what is said of the frame beside it.
const WAY: u16 = NOT_IP - 1;

/// The switch for the time of a batch.
pub(super) struct Batches<'a> {
    pub(super) spanning: &'a SpanningSwitch,
    pub(super) view: &'a View,
    pub(super) table: &'a MacTable,
    pub(super) groups: &'a GroupView,
    pub(super) counts: &'a Counts,
    /// None if nothing is asked of it: there is no vport, no `link1`, or nothing that it would hold.
    pub(super) filter: Option<&'a mut (dyn FrameFilter + 'static)>,
    /// The port that frames come by.
    pub(super) port: u16,
    pub(super) now: Duration,
    /// Whether there was something for the spanning tree, or about groups.
    pub(super) has_heard: bool,
}

impl Batches<'_> {
    fn switch_itself(&self) -> &Switch {
        self.spanning.switch()
    }

    /// Switches frames: all at once what meets nothing but the table, and the rest one by one.
    #[inline]
    pub(super) fn switch(&mut self, batch: &mut Batch, ways: &mut Ways, cx: &mut Context<'_>) {
        let Some(counts) = self.counts.ports.get(usize::from(self.port)) else {
            return cx.discard_all(batch, DropReason::NotAPort);
        };
        counts.received[0].add(batch.len() as u64);
        let bytes = bytes_of(batch);
        counts.received[1].add(bytes);
        match self.view.is_plain(self.port) {
            true => self.switch_plain(batch, bytes, ways, cx),
            false => batch.drain().for_each(|frame| self.one(frame, cx)),
        }
    }

    fn switch_plain(&mut self, batch: &mut Batch, mut bytes: u64, found: &mut Ways, cx: &mut Context<'_>) {
        let now = seconds(self.now);
        found.find((self.view, self.table), self.port, now, batch.iter().map(Packet::data));
        let is_filtered = self.filter.is_some()
            && (self.view.is_filtered_at(self.port)
                || found.each().iter().any(|way| self.view.is_vport(*way)));
        if is_filtered && let Some(filter) = &mut self.filter {
            filter.test_all(batch, self.view, self.port, found.each(), cx);
        }
        found.refresh(self.table, now, |way| way & BLOCKED_IN == 0);
        let mut ways = found.each();
        if is_filtered {
            let left = self.keep_unblocked(ways, batch, cx);
            ways = &mut ways[..left];
            bytes = bytes_of(batch);
        }
        let Some(first) = ways.first().map(|way| way & WAY) else { return };
        // All are compared, as that is quicker than to stop at the first that differs.
        if first < ODD && ways.iter().fold(0, |differ, way| differ | (way ^ first)) & WAY == 0 {
            self.count_sent(first, batch.len() as u64, bytes);
            return cx.send_all(usize::from(first), batch);
        }
        for (frame, way) in batch.drain().zip(ways) {
            match *way & WAY {
                to if to < ODD => self.send(frame, to, cx),
                _ => self.one(frame, cx),
            }
        }
    }

    /// Drops what a filter has blocked, and moves the ways of the rest to the front; says how many are left.
    fn keep_unblocked(&mut self, ways: &mut [u16], batch: &mut Batch, cx: &mut Context<'_>) -> usize {
        const BLOCKED: u16 = BLOCKED_IN | BLOCKED_OUT;
        if ways.iter().fold(0, |all, way| all | way) & BLOCKED == 0 {
            return ways.len();
        }
        let (mut next, mut left) = (0, 0);
        batch.filter_map(|frame| {
            let way = ways[next];
            next += 1;
            if way & BLOCKED == 0 {
                ways[left] = way;
                left += 1;
                return Some(frame);
            }
            let port = if way & BLOCKED_IN != 0 { self.port } else { way & WAY };
            self.drop(frame, port, Cause::Filter, cx);
            None
        });
        left
    }

    /// Switches a frame, step by step.
    fn one(&mut self, mut frame: Packet, cx: &mut Context<'_>) {
        let Some(sight) = Sight::new(frame.data()) else {
            return self.drop(frame, self.port, Cause::TooShort, cx);
        };
        if sight.is_for_bridges() && self.view.is_up() && self.hear(&frame, cx) {
            return cx.discard(frame, DropReason::Consumed);
        }
        if let Err(stop) = decide::meet(self.view, self.port, &sight) {
            return self.stop(frame, stop, cx);
        }
        self.copy(&frame, cx);
        let sight = Sight::new(frame.data()).unwrap_or(sight);
        let entered = match decide::enter(self.view, self.port, &sight, |key| self.find(key)) {
            Ok(entered) => entered,
            Err(cause) => return self.drop(frame, self.port, cause, cx),
        };
        let key = decide::learns(self.view, &sight, &entered);
        if entered.is_filtered
            && !self.passes(&mut frame, (Spot::Port(self.port), Direction::In), &entered, None, cx)
        {
            return self.drop(frame, self.port, Cause::Filter, cx);
        }
        key.into_iter().for_each(|key| self.learn(key));
        self.go(frame, &entered, cx);
    }

    /// Hands a frame for all bridges to the spanning tree, and sends what it says to that; says whether it took it.
    #[cold]
    fn hear(&mut self, frame: &Packet, cx: &mut Context<'_>) -> bool {
        let mut outgoing = Outgoing::new();
        let is_heard = self.spanning.receive(self.port, frame.data(), self.now, &mut outgoing);
        self.has_heard |= is_heard;
        send_all(&outgoing, self.counts, cx);
        is_heard
    }

    /// Hears what a frame says of groups, if it says anything.
    fn hear_of_groups(&mut self, sight: &Sight<'_>, entered: &Entered) {
        let (ether_type, packet) = sight.carried(entered.is_tagged());
        if let Some(message) = Membership::read(ether_type, packet).transpose() {
            let place = (self.port, entered.place.vlan);
            let heard = self.switch_itself().hear(self.view, place, message, self.now);
            self.counts.groups[heard as usize].add(1);
            self.has_heard = true;
        }
    }

    /// Sends a frame that was taken in where it goes.
    fn go(&mut self, frame: Packet, entered: &Entered, cx: &mut Context<'_>) {
        let Some(sight) = Sight::new(frame.data()) else {
            return self.drop(frame, self.port, Cause::TooShort, cx);
        };
        let to = match decide::way(self.view, &sight, entered, |key| self.find(key)) {
            Ok(Way::One(to)) => to,
            Ok(Way::Many(many)) => return self.flood(frame, entered, many, cx),
            Err(cause) => return self.drop(frame, self.port, cause, cx),
        };
        let leaving = match decide::leave(self.view, &sight, entered, to, None) {
            Ok(leaving) => leaving,
            Err(cause) => return self.drop(frame, to, cause, cx),
        };
        let is_filtered = decide::is_filtered_out(self.view, entered, to);
        self.leave_if_passed(frame, (to, leaving), entered, is_filtered, cx);
    }

    /// Sends a frame, or a copy, that goes to many.
    fn leave_as_one(
        &mut self,
        frame: Packet,
        (to, leaving): (u16, Leaving),
        entered: &Entered,
        cx: &mut Context<'_>,
    ) {
        let is_filtered = decide::is_filtered_out_as_one(self.view, entered, to);
        self.leave_if_passed(frame, (to, leaving), entered, is_filtered, cx);
    }

    /// Sends a frame by a port, if the packet filter lets it where it is asked.
    fn leave_if_passed(
        &mut self,
        mut frame: Packet,
        (to, leaving): (u16, Leaving),
        entered: &Entered,
        is_filtered: bool,
        cx: &mut Context<'_>,
    ) {
        let (at, mark) = ((Spot::Port(to), Direction::Out), leaving.mark.as_ref());
        match !is_filtered || self.passes(&mut frame, at, entered, mark, cx) {
            true => self.leave(frame, to, leaving.change, cx),
            false => self.drop(frame, to, Cause::Filter, cx),
        }
    }

    /// Sends a frame to all ports that may have it: copies, and the frame itself to the last one.
    fn flood(&mut self, mut frame: Packet, entered: &Entered, many: Many, cx: &mut Context<'_>) {
        if !self.switch_itself().may_flood(self.view, self.port, many, self.now) {
            return self.drop(frame, self.port, Cause::Storm, cx);
        }
        let is_filtered = entered.is_filtered && self.view.has_filter();
        if is_filtered && !self.passes(&mut frame, (Spot::Switch, Direction::Out), entered, None, cx) {
            return self.drop(frame, self.port, Cause::Filter, cx);
        }
        let Some(sight) = Sight::new(frame.data()) else {
            return self.drop(frame, self.port, Cause::TooShort, cx);
        };
        let mut audience = Audience::All;
        if many == Many::Multicast && self.view.snoops() {
            self.hear_of_groups(&sight, entered);
            audience = self.groups.audience(self.view, &sight, entered);
        }
        let many = Some(many).filter(|_| audience == Audience::All);
        let mut last: Option<(u16, Leaving)> = None;
        for to in (0..self.view.len() as u16).filter(|to| audience.has(self.view, *to)) {
            let Some(sight) = Sight::new(frame.data()) else { continue };
            match decide::leave(self.view, &sight, entered, to, many) {
                Ok(leaving) => {
                    if let Some(target) = last.replace((to, leaving))
                        && let Some(copy) = cx.duplicate(&frame)
                    {
                        self.leave_as_one(copy, target, entered, cx);
                    }
                }
                Err(cause @ (Cause::Protected | Cause::Rule | Cause::NonIp)) => self.count_stop(to, cause),
                Err(_) => {}
            }
        }
        self.counts.flooded.add(1);
        match last {
            Some(target) => self.leave_as_one(frame, target, entered, cx),
            // What hosts say of their groups has been heard, also where nobody else wants to know.
            None if matches!(audience, Audience::Routers(_)) => cx.discard(frame, DropReason::Consumed),
            None => self.drop(frame, self.port, Cause::Nowhere, cx),
        }
    }

    /// What is known of an address, if that isn't too old.
    fn find(&self, key: MacKey) -> Option<artery_table::switch::Entry> {
        let entry = self.table.find(self.table.place(key))?;
        (!entry.is_old(seconds(self.now), self.view.timeout())).then_some(entry)
    }

    /// Learns that an address is here: without a lock where that is known, or can't be learned.
    fn learn(&self, key: MacKey) {
        let learned = match self.table.find(self.table.place(key)) {
            Some(entry) if entry.port() == self.port => {
                self.table.refresh(entry, seconds(self.now));
                return;
            }
            Some(entry) if entry.is_static() => Learned::Stays,
            None if self.switch_itself().is_full() => Learned::Full,
            _ => self.switch_itself().learn(key, self.port, self.view.is_sticky(self.port), self.now),
        };
        self.counts.learned[learned as usize].add(1);
    }

    /// Sends copies to the ports that get them.
    fn copy(&self, frame: &Packet, cx: &mut Context<'_>) {
        for to in self.view.spans() {
            if let Some(copy) = cx.duplicate(frame) {
                self.counts.copied.add(1);
                self.send(copy, *to, cx);
            }
        }
    }

    fn leave(&self, mut frame: Packet, to: u16, change: Change, cx: &mut Context<'_>) {
        match tag::change(&mut frame, change) {
            true => self.send(frame, to, cx),
            false => cx.discard(frame, DropReason::NoRoom),
        }
    }

    #[inline]
    fn send(&self, frame: Packet, to: u16, cx: &mut Context<'_>) {
        self.count_sent(to, 1, frame.len() as u64);
        cx.send(usize::from(to), frame);
    }

    #[inline]
    fn count_sent(&self, to: u16, frames: u64, bytes: u64) {
        if let Some(counts) = self.counts.ports.get(usize::from(to)) {
            counts.sent[0].add(frames);
            counts.sent[1].add(bytes);
        }
    }

    /// Whether the packet filter lets a frame pass; `mark` is what rules gave it just now.
    fn passes(
        &mut self,
        frame: &mut Packet,
        (spot, direction): (Spot, Direction),
        entered: &Entered,
        mark: Option<&Mark>,
        cx: &mut Context<'_>,
    ) -> bool {
        let was_asked = direction == Direction::Out && entered.is_filtered;
        let plain = Passage::plain(self.view, spot, direction, self.port);
        // The filter knows the mark that a frame had where it was asked before, and may have changed it there.
        let mark = mark.or(entered.mark.as_ref().filter(|_| !was_asked));
        let passage = Passage { was_asked, mark: mark.map(|mark| &**mark), ..plain };
        self.filter.as_mut().is_none_or(|filter| filter.test(frame, &passage, cx))
    }

    fn stop(&self, frame: Packet, stop: Stop, cx: &mut Context<'_>) {
        match stop {
            Stop::Drop(cause) => self.drop(frame, self.port, cause, cx),
            Stop::Host(cause) if cx.outputs() > self.view.len() => {
                self.count_stop(self.port, cause);
                cx.send_or_discard(self.view.len() + usize::from(self.port), frame, reason(cause));
            }
            Stop::Host(cause) => self.drop(frame, self.port, cause, cx),
        }
    }

    #[cold]
    fn drop(&self, frame: Packet, port: u16, cause: Cause, cx: &mut Context<'_>) {
        self.count_stop(port, cause);
        cx.discard(frame, reason(cause));
    }

    fn count_stop(&self, port: u16, cause: Cause) {
        self.counts.ports.get(usize::from(port)).into_iter().for_each(|counts| counts.stop(cause));
    }
}

fn bytes_of(batch: &Batch) -> u64 {
    batch.iter().map(|frame| frame.len() as u64).sum()
}

/// The reason under which the engine counts a frame.
fn reason(cause: Cause) -> DropReason {
    match cause {
        Cause::Down => DropReason::SwitchDown,
        Cause::Detached => DropReason::NotAPort,
        Cause::Passthrough => DropReason::Passthrough,
        Cause::SpanInput => DropReason::SpanInput,
        Cause::TooShort => DropReason::TooShort,
        Cause::Reserved => DropReason::ReservedAddress,
        Cause::NonIp => DropReason::UnknownEtherType,
        Cause::Vlan => DropReason::VlanDenied,
        Cause::DoubleTag => DropReason::DoubleTag,
        Cause::Locked => DropReason::SourceLocked,
        Cause::Rule => DropReason::BlockedByRule,
        Cause::Filter => DropReason::Filtered,
        Cause::Blocked => DropReason::PortBlocked,
        Cause::SamePort => DropReason::SamePort,
        Cause::Protected => DropReason::ProtectedPort,
        Cause::LinkDown => DropReason::PortDown,
        Cause::NotDiscovered | Cause::NotFlooded | Cause::NotMember | Cause::Nowhere => DropReason::NoTarget,
        Cause::Storm => DropReason::Storm,
    }
}
