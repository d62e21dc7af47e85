//! Switches a batch of frames.
use super::speak::send_all;
use super::tag;
use artery_common::frame_filter::{FilterContext, FilterPoint, FrameFilter};
use artery_engine::{Batch, Context, DropReason, Packet};
use artery_l2::counts::Counts;
use artery_l2::decide::{self, Cause, Egress, EgressRewrite, FloodKind, Ingress, Stop, TagRewrite};
use artery_l2::quick::{BatchLookup, Target};
use artery_l2::stp::{Outgoing, SpanningSwitch};
use artery_l2::{
    Audience, Direction, FrameView, GroupView, Learned, MacKey, MacTable, Mark, Switch, View, seconds,
};
use artery_wire::membership::Membership;
use std::time::Duration;

/// The switch for the time of a batch.
pub(super) struct BatchSwitch<'a> {
    pub(super) spanning: &'a SpanningSwitch,
    pub(super) view: &'a View,
    pub(super) table: &'a MacTable,
    pub(super) groups: &'a GroupView,
    pub(super) counts: &'a Counts,
    /// None if no frame needs a filter: without a vport, without `link1`, or without rules that could block.
    pub(super) filter: Option<&'a mut (dyn FrameFilter + 'static)>,
    /// The port that received the frames.
    pub(super) port: u16,
    pub(super) now: Duration,
    /// Whether a frame was for the spanning tree, or about groups.
    pub(super) needs_wake: bool,
}

impl<'a> BatchSwitch<'a> {
    fn switch_itself(&self) -> &Switch {
        self.spanning.switch()
    }

    /// Switches frames: together where only the MAC table is needed, and the rest one by one.
    #[inline]
    pub(super) fn switch_batch(&mut self, batch: &mut Batch, found: &mut BatchLookup, cx: &mut Context<'_>) {
        let Some(counts) = self.counts.ports.get(usize::from(self.port)) else {
            return cx.discard_all(batch, DropReason::NotAPort);
        };
        counts.received[0].add(batch.len() as u64);
        let bytes = bytes_of(batch);
        counts.received[1].add(bytes);
        match self.view.is_fast_path(self.port) {
            true => self.switch_plain(batch, bytes, found, cx),
            false => batch.drain().for_each(|frame| self.switch_frame(frame, cx)),
        }
    }

    fn switch_plain(
        &mut self,
        batch: &mut Batch,
        mut bytes: u64,
        found: &mut BatchLookup,
        cx: &mut Context<'_>,
    ) {
        let now = seconds(self.now);
        found.lookup_batch((self.view, self.table), self.port, now, batch.iter().map(Packet::data));
        let is_filtered = self.filter.is_some()
            && (self.view.is_filtered_at(self.port)
                || found.targets_mut().iter().any(|target| self.leads_to_vport(*target)));
        if is_filtered && let Some(filter) = &mut self.filter {
            filter.test_batch(batch, self.view, self.port, found.targets_mut(), cx);
        }
        found.refresh_sources(self.table, now, |target| !target.is_blocked_in());
        let mut targets = found.targets_mut();
        if is_filtered {
            let left = self.retain_unblocked(targets, batch, cx);
            targets = &mut targets[..left];
            bytes = bytes_of(batch);
        }
        if let Some(to) = Target::common_port(targets) {
            self.count_sent(to, batch.len() as u64, bytes);
            return cx.send_all(usize::from(to), batch);
        }
        for (frame, target) in batch.drain().zip(targets) {
            match target.port() {
                Some(to) => self.send_frame(frame, to, cx),
                None => self.switch_frame(frame, cx),
            }
        }
    }

    fn leads_to_vport(&self, target: Target) -> bool {
        target.filtered_port().is_some_and(|to| self.view.is_vport(to))
    }

    /// Drops the frames that a filter has blocked, and moves the targets of the rest to the front. Returns
    /// how many are left.
    fn retain_unblocked(&mut self, targets: &mut [Target], batch: &mut Batch, cx: &mut Context<'_>) -> usize {
        if !Target::is_any_blocked(targets) {
            return targets.len();
        }
        let (mut next, mut left) = (0, 0);
        batch.filter_map(|frame| {
            let target = targets[next];
            next += 1;
            if !target.is_blocked() {
                targets[left] = target;
                left += 1;
                return Some(frame);
            }
            let port = target.port().filter(|_| !target.is_blocked_in()).unwrap_or(self.port);
            self.drop_frame(frame, port, Cause::Filter, cx);
            None
        });
        left
    }

    /// Switches a frame, step by step.
    fn switch_frame(&mut self, mut frame: Packet, cx: &mut Context<'_>) {
        let Some(sight) = FrameView::new(frame.data()) else {
            return self.drop_frame(frame, self.port, Cause::TooShort, cx);
        };
        if sight.is_for_bridges() && self.view.is_up() && self.receive_bpdu(&frame, cx) {
            return cx.discard(frame, DropReason::Consumed);
        }
        if let Err(stop) = decide::admit(self.view, self.port, &sight) {
            return self.stop_frame(frame, stop, cx);
        }
        self.copy_to_spans(&frame, cx);
        let sight = FrameView::new(frame.data()).unwrap_or(sight);
        let entered = match decide::ingress(self.view, self.port, &sight, |key| self.lookup_entry(key)) {
            Ok(entered) => entered,
            Err(cause) => return self.drop_frame(frame, self.port, cause, cx),
        };
        let key = decide::learned_key(self.view, &sight, &entered);
        if entered.is_filtered
            && !self.passes_filter(
                &mut frame,
                (FilterPoint::Port(self.port), Direction::In),
                &entered,
                None,
                cx,
            )
        {
            return self.drop_frame(frame, self.port, Cause::Filter, cx);
        }
        key.into_iter().for_each(|key| self.learn_address(key));
        self.forward_frame(frame, &entered, cx);
    }

    /// Passes a frame for all bridges to the spanning tree, and sends the frames that follow. Returns whether
    /// the tree accepted it.
    #[cold]
    fn receive_bpdu(&mut self, frame: &Packet, cx: &mut Context<'_>) -> bool {
        let mut outgoing = Outgoing::new();
        let is_heard = self.spanning.receive_frame(self.port, frame.data(), self.now, &mut outgoing);
        self.needs_wake |= is_heard;
        send_all(&outgoing, self.counts, cx);
        is_heard
    }

    /// Snoops a frame for membership messages.
    fn snoop_membership(&mut self, sight: &FrameView<'_>, entered: &Ingress) {
        let (ether_type, packet) = sight.inner_payload(entered.is_tagged());
        if let Some(message) = Membership::parse_packet(ether_type, packet).transpose() {
            let place = (self.port, entered.place.vlan);
            let heard = self.switch_itself().snoop_message(self.view, place, message, self.now);
            self.counts.groups[heard as usize].add(1);
            self.needs_wake = true;
        }
    }

    /// Forwards a frame that passed ingress.
    fn forward_frame(&mut self, frame: Packet, entered: &Ingress, cx: &mut Context<'_>) {
        let Some(sight) = FrameView::new(frame.data()) else {
            return self.drop_frame(frame, self.port, Cause::TooShort, cx);
        };
        let to = match decide::lookup(self.view, &sight, entered, |key| self.lookup_entry(key)) {
            Ok(Egress::Unicast(to)) => to,
            Ok(Egress::Flood(many)) => return self.flood_frame(frame, entered, many, cx),
            Err(cause) => return self.drop_frame(frame, self.port, cause, cx),
        };
        let leaving = match decide::egress(self.view, &sight, entered, to, None) {
            Ok(leaving) => leaving,
            Err(cause) => return self.drop_frame(frame, to, cause, cx),
        };
        let is_filtered = decide::is_filtered_out(self.view, entered, to);
        self.egress_if_passed(frame, (to, leaving), entered, is_filtered, cx);
    }

    /// Sends a flooded frame, or a copy of it.
    fn egress_flooded(
        &mut self,
        frame: Packet,
        (to, leaving): (u16, EgressRewrite),
        entered: &Ingress,
        cx: &mut Context<'_>,
    ) {
        let is_filtered = decide::is_filtered_out_as_one(self.view, entered, to);
        self.egress_if_passed(frame, (to, leaving), entered, is_filtered, cx);
    }

    /// Sends a frame by a port, unless the packet filter blocks it there.
    fn egress_if_passed(
        &mut self,
        mut frame: Packet,
        (to, leaving): (u16, EgressRewrite),
        entered: &Ingress,
        is_filtered: bool,
        cx: &mut Context<'_>,
    ) {
        let (at, mark) = ((FilterPoint::Port(to), Direction::Out), leaving.mark.as_ref());
        match !is_filtered || self.passes_filter(&mut frame, at, entered, mark, cx) {
            true => self.egress_frame(frame, to, leaving.change, cx),
            false => self.drop_frame(frame, to, Cause::Filter, cx),
        }
    }

    /// Sends a frame to all ports that may have it: copies, and the frame itself to the last one.
    fn flood_frame(&mut self, mut frame: Packet, entered: &Ingress, many: FloodKind, cx: &mut Context<'_>) {
        if !self.switch_itself().may_flood(self.view, self.port, many, self.now) {
            return self.drop_frame(frame, self.port, Cause::Storm, cx);
        }
        let is_filtered = entered.is_filtered && self.view.has_filter();
        if is_filtered
            && !self.passes_filter(&mut frame, (FilterPoint::Switch, Direction::Out), entered, None, cx)
        {
            return self.drop_frame(frame, self.port, Cause::Filter, cx);
        }
        let Some(sight) = FrameView::new(frame.data()) else {
            return self.drop_frame(frame, self.port, Cause::TooShort, cx);
        };
        let audience = self.find_audience(&sight, entered, many);
        let many = Some(many).filter(|_| audience == Audience::All);
        let mut last: Option<(u16, EgressRewrite)> = None;
        for to in (0..self.view.len() as u16).filter(|to| audience.contains_port(self.view, *to)) {
            let Some(sight) = FrameView::new(frame.data()) else { continue };
            match decide::egress(self.view, &sight, entered, to, many) {
                Ok(leaving) => {
                    if let Some(target) = last.replace((to, leaving))
                        && let Some(copy) = cx.duplicate_packet(&frame)
                    {
                        self.egress_flooded(copy, target, entered, cx);
                    }
                }
                Err(cause @ (Cause::Protected | Cause::Rule | Cause::NonIp)) => self.count_stop(to, cause),
                Err(_) => {}
            }
        }
        self.counts.flooded.add(1);
        match last {
            Some(target) => self.egress_flooded(frame, target, entered, cx),
            // Group reports were already processed, even if no port needs them.
            None if matches!(audience, Audience::Routers(_)) => cx.discard(frame, DropReason::Consumed),
            None => self.drop_frame(frame, self.port, Cause::Nowhere, cx),
        }
    }

    /// The ports that get a flooded frame, whose membership messages are snooped.
    fn find_audience(&mut self, sight: &FrameView<'_>, entered: &Ingress, many: FloodKind) -> Audience<'a> {
        if many != FloodKind::Multicast || !self.view.snoops() {
            return Audience::All;
        }
        self.snoop_membership(sight, entered);
        self.groups.find_audience(self.view, sight, entered)
    }

    /// The MAC table entry of an address, unless it has expired.
    fn lookup_entry(&self, key: MacKey) -> Option<artery_l2::MacEntry> {
        let entry = self.table.find_entry(self.table.probe_key(key))?;
        (!entry.is_old(seconds(self.now), self.view.timeout())).then_some(entry)
    }

    /// Learns that an address is at this port: without a lock if it is known, or can't be learned.
    fn learn_address(&self, key: MacKey) {
        let learned = match self.table.find_entry(self.table.probe_key(key)) {
            Some(entry) if entry.port() == self.port => {
                self.table.refresh_entry(entry, seconds(self.now));
                return;
            }
            Some(entry) if entry.is_static() => Learned::Stays,
            None if self.switch_itself().is_full() => Learned::Full,
            _ => self.switch_itself().learn_address(key, self.port, self.view.is_sticky(self.port), self.now),
        };
        self.counts.learned[learned as usize].add(1);
    }

    /// Sends copies to the ports that get them.
    fn copy_to_spans(&self, frame: &Packet, cx: &mut Context<'_>) {
        for to in self.view.spans() {
            if let Some(copy) = cx.duplicate_packet(frame) {
                self.counts.copied.add(1);
                self.send_frame(copy, *to, cx);
            }
        }
    }

    fn egress_frame(&self, mut frame: Packet, to: u16, change: TagRewrite, cx: &mut Context<'_>) {
        match tag::rewrite_tag(&mut frame, change) {
            true => self.send_frame(frame, to, cx),
            false => cx.discard(frame, DropReason::NoRoom),
        }
    }

    #[inline]
    fn send_frame(&self, frame: Packet, to: u16, cx: &mut Context<'_>) {
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

    /// Whether the packet filter passes a frame; `mark` is what rules gave it just now.
    fn passes_filter(
        &mut self,
        frame: &mut Packet,
        (spot, direction): (FilterPoint, Direction),
        entered: &Ingress,
        mark: Option<&Mark>,
        cx: &mut Context<'_>,
    ) -> bool {
        let was_asked = direction == Direction::Out && entered.is_filtered;
        let plain = FilterContext::new(self.view, spot, direction, self.port);
        // The filter knows the mark from an earlier test, and may have changed it there.
        let mark = mark.or(entered.mark.as_ref().filter(|_| !was_asked));
        let passage = FilterContext { was_filtered_in: was_asked, mark: mark.map(|mark| &**mark), ..plain };
        self.filter.as_mut().is_none_or(|filter| filter.test_frame(frame, &passage, cx))
    }

    fn stop_frame(&self, frame: Packet, stop: Stop, cx: &mut Context<'_>) {
        match stop {
            Stop::Drop(cause) => self.drop_frame(frame, self.port, cause, cx),
            Stop::Host(cause) if cx.outputs() > self.view.len() => {
                self.count_stop(self.port, cause);
                cx.send_or_discard(self.view.len() + usize::from(self.port), frame, drop_reason(cause));
            }
            Stop::Host(cause) => self.drop_frame(frame, self.port, cause, cx),
        }
    }

    #[cold]
    fn drop_frame(&self, frame: Packet, port: u16, cause: Cause, cx: &mut Context<'_>) {
        self.count_stop(port, cause);
        cx.discard(frame, drop_reason(cause));
    }

    fn count_stop(&self, port: u16, cause: Cause) {
        self.counts.ports.get(usize::from(port)).into_iter().for_each(|counts| counts.count_drop(cause));
    }
}

fn bytes_of(batch: &Batch) -> u64 {
    batch.iter().map(|frame| frame.len() as u64).sum()
}

/// The reason under which the engine counts a frame.
fn drop_reason(cause: Cause) -> DropReason {
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
