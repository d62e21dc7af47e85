//! A balancer on one worker: finds the packets of services, and sends each to its member.
use super::answers::{ReplyClassifier, ServiceContext};
use super::arguments::{build_shortcut, build_table, check_ports, is_nat, nat_flows};
use super::checks::HealthChecks;
use super::chooser::{AssignmentSink, BatchPacket, MemberChooser};
use super::exchange::{self, FlowExchange};
use super::flow_records::FlowAccounts;
use super::follow::Followed;
use super::known::FamilyFlows;
use super::leading::{FrameRedirector, NOWHERE, TO_FORWARDER};
use super::look::{
    FoundPacket, bare_packet, packet_in_checked_frame, packet_in_frame, record_service_packets,
};
use super::placement::Placement;
use super::shared::SharedBalancer;
use super::tally::BalancerCounters;
use super::translate::{PacketEnd, translate_packet};
use artery_common::ip_header;
use artery_engine::{
    ArgError, Args, Batch, Context, DropReason, Element, Interest, Level, Packet, StartError, anno,
};
use artery_flow::balance::{Balancer, Choice, Local, Member, MemberId};
use artery_flow::{Flow4, Flow6};
use artery_forward::fast_path::LINK;
use artery_forward::shortcut::Shortcut;
use artery_wire::{Ipv4, Ipv6};
use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The outputs, where packets are no frames.
const MEMBERS: usize = 0;
const OTHERS: usize = 1;
const ANSWERS: usize = 2;

/// How often flows are maintained while no packet comes.
const PERIOD: Duration = Duration::from_millis(100);
/// Shortest time between two maintenance runs while packets come.
const PAUSE: Duration = Duration::from_micros(500);

/// A balancer on one worker.
pub(super) struct FlowBalancer {
    pub(super) shared: Arc<SharedBalancer>,
    /// Reads the published choice of members. None only while a batch is processed.
    balancer: Option<Balancer>,
    is_nat: bool,
    takes_frames: bool,
    /// When flows were last maintained.
    maintained: Duration,
    answers: ReplyClassifier,
    pub(super) local: Local,
    pub(super) followed: Followed,
    pub(super) accounts: FlowAccounts,
    pub(super) exchange: FlowExchange,
    pub(super) v4: FamilyFlows<Flow4>,
    pub(super) v6: FamilyFlows<Flow6>,
    /// The owner of each packet in a batch.
    owners: Vec<PacketOwner>,
    /// The output of each frame in a batch.
    outputs: Vec<u16>,
    shortcut: Option<Shortcut>,
    /// The output of the router's first port.
    first_port: usize,
    pub(super) counters: BalancerCounters,
    has_others: bool,
    /// Of the one copy of all workers that checks members.
    checks: Option<HealthChecks>,
    is_first: bool,
}

/// The owner of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketOwner {
    /// It is not for a service.
    Others,
    /// It is for a service, and no member can take it.
    Nobody,
    Member(MemberId),
}

impl FlowBalancer {
    pub(super) fn new(args: &mut Args<'_>) -> Result<FlowBalancer, ArgError> {
        let (is_nat, takes_frames) = (is_nat(args)?, args.read("FRAMES")?);
        let shared = match args.already_shared::<SharedBalancer>() {
            Some(shared) => shared,
            None => {
                let nat = if is_nat { Some(nat_flows(args)?) } else { None };
                let shared = SharedBalancer::new(args, nat)?;
                args.shared_value(|| shared)
            }
        };
        if is_nat && shared.services.len() > 1 {
            return Err(ArgError::wrong("with FORWARD nat there is one SERVICE: answers could be of any"));
        }
        let balancer = FlowBalancer {
            balancer: Some(shared.balancer()),
            v4: FamilyFlows::new(|has_service| build_table(args, has_service), &shared.services)?,
            v6: FamilyFlows::new(|has_service| build_table(args, has_service), &shared.services)?,
            shared,
            is_nat,
            takes_frames,
            maintained: Duration::ZERO,
            answers: ReplyClassifier::default(),
            local: Local::new(args.worker().0),
            followed: Followed::default(),
            accounts: FlowAccounts::new(args.resource(), is_nat),
            exchange: FlowExchange::default(),
            owners: Vec::new(),
            outputs: Vec::new(),
            shortcut: build_shortcut(args, takes_frames, is_nat)?,
            first_port: args.inputs(),
            counters: BalancerCounters::default(),
            has_others: args.outputs() > OTHERS,
            checks: None,
            is_first: args.copy_index().0 == 0,
        };
        check_ports(args, takes_frames, balancer.shortcut.as_ref())?;
        Ok(balancer)
    }

    /// Redirects frames to their members: by the shortcut, or by annotation.
    fn redirect_frames(&mut self, input: usize, batch: &mut Batch, choice: &Choice, cx: &mut Context<'_>) {
        let FlowBalancer { v4, v6, local, followed, shared, counters, outputs, shortcut, .. } = self;
        let addresses = (choice.generation(), choice.place_count());
        let open = shortcut.as_mut().and_then(|shortcut| shortcut.open_batch(input, addresses, cx.turn()));
        match &open {
            Some(open) => record_service_packets(
                v4,
                v6,
                batch,
                |frame| packet_in_checked_frame(frame, &open.gate),
                |_| (),
            ),
            None => record_service_packets(v4, v6, batch, packet_in_frame, |_| ()),
        }
        let (lane4, lane6) = open.map(|open| (open.v4, open.v6)).unzip();
        outputs.clear();
        outputs.resize(batch.len(), TO_FORWARDER);
        let now = cx.now().since_epoch();
        let mut by = MemberChooser { choice, local, followed, seed: &shared.seed, now };
        let frames = batch.iter_mut().into_slice();
        let mut leading = FrameRedirector { shortcut: lane4, frames, outputs, choice };
        v4.assign_members(&mut by, counters, &mut leading);
        v4.assign_others(&mut by, counters, &mut leading);
        let mut leading =
            FrameRedirector { shortcut: lane6, frames: leading.frames, outputs: leading.outputs, choice };
        v6.assign_members(&mut by, counters, &mut leading);
        v6.assign_others(&mut by, counters, &mut leading);
        let ours = v4.recorded_count() + v6.recorded_count();
        counters.balanced += ours as u64;
        counters.others += (batch.len() - ours) as u64;
    }

    /// Sends frames by the outputs that the choice has set.
    fn send_frames(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let first = self.outputs.first().copied().unwrap_or(TO_FORWARDER);
        let are_alike = self.outputs.iter().fold(0, |unlike, exit| unlike | exit ^ first) == 0;
        match first {
            TO_FORWARDER if are_alike => cx.send_all(input, batch),
            port if are_alike && port != NOWHERE => {
                cx.drop_monitored(Level::L3, batch);
                cx.send_all(self.first_port + usize::from(port), batch);
            }
            _ => self.send_each(input, batch, cx),
        }
    }
    fn send_each(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let exits = std::mem::take(&mut self.outputs);
        for (frame, exit) in batch.drain().zip(&exits) {
            match *exit {
                TO_FORWARDER => cx.send(input, frame),
                NOWHERE => {
                    self.counters.balanced -= 1;
                    self.handle_unassigned(frame, cx);
                }
                _ if cx.is_monitored_at(Level::L3, &frame) => cx.discard(frame, DropReason::Monitored),
                port => cx.send(self.first_port + usize::from(port), frame),
            }
        }
        self.outputs = exits;
    }

    /// Sends a packet of the service to its member.
    #[inline]
    fn direct_packet(&mut self, mut packet: Packet, member: &Member, cx: &mut Context<'_>) -> Option<Packet> {
        if self.is_nat {
            if self.takes_frames {
                mark_packet(&mut packet);
            }
            if !translate_packet(&mut packet, PacketEnd::Destination, member.address, member.port) {
                cx.discard(packet, DropReason::Malformed);
                return None;
            }
        }
        if let Some(nat) = &self.shared.nat {
            nat.record_packet(ip_header::bytes(&packet), cx.now().since_epoch());
        }
        match member.address {
            IpAddr::V4(address) => packet.set_dst_ip(address),
            IpAddr::V6(address) => packet.set_annotation(anno::DST_IP6, address.octets()),
        }
        self.counters.balanced += 1;
        Some(packet)
    }

    /// Passes a packet without a member to the others' output, or discards it.
    #[cold]
    fn handle_unassigned(&mut self, packet: Packet, cx: &mut Context<'_>) {
        self.counters.without_member += 1;
        match self.takes_frames {
            true => cx.discard(packet, DropReason::NoMember),
            false => self.pass_to_others(packet, DropReason::NoMember, cx),
        }
    }

    fn pass_to_others(&mut self, packet: Packet, reason: DropReason, cx: &mut Context<'_>) {
        if self.has_others { cx.send(OTHERS, packet) } else { cx.discard(packet, reason) }
    }

    /// Handles a packet that is not for a service. Frames pass unchanged, except answers of members.
    #[inline]
    fn handle_other_packet(
        &mut self,
        mut packet: Packet,
        choice: &Choice,
        cx: &mut Context<'_>,
    ) -> Option<Packet> {
        if self.takes_frames {
            let is_answer = self.is_nat && self.translate_reply(&mut packet, choice, cx);
            self.counters.answers += u64::from(is_answer);
            self.counters.others += u64::from(!is_answer);
            return Some(packet);
        }
        self.counters.others += 1;
        self.pass_to_others(packet, DropReason::NoMatch, cx);
        None
    }

    /// Rewrites the source of a member's answer to the service. Returns whether it is one.
    fn translate_reply(&mut self, packet: &mut Packet, choice: &Choice, cx: &mut Context<'_>) -> bool {
        if self.takes_frames {
            if packet_in_frame(packet).version == 0 {
                return false;
            }
            mark_packet(packet);
        }
        let Some(flows) = &self.shared.nat else { return false };
        let (service, rule) = (&self.shared.services[0], &self.shared.answers);
        let placement = Placement { choice, seed: &self.shared.seed };
        self.answers.is_reply(
            ip_header::bytes(packet),
            ServiceContext { service, placement, flows, rule },
            cx.now().since_epoch(),
        ) && translate_packet(packet, PacketEnd::Source, service.address, service.port)
    }

    /// Sends answers of members on in the service's name.
    fn send_replies(&mut self, batch: &mut Batch, choice: &Choice, cx: &mut Context<'_>) {
        for mut packet in batch.drain() {
            if self.is_nat && self.translate_reply(&mut packet, choice, cx) {
                self.counters.answers += 1;
                cx.send(ANSWERS, packet);
            } else {
                self.counters.others += 1;
                self.pass_to_others(packet, DropReason::NoMatch, cx);
            }
        }
    }

    /// Sends each packet to its member.
    fn assign_packets(&mut self, batch: &mut Batch, choice: &Choice, cx: &mut Context<'_>) {
        let mut whose = std::mem::take(&mut self.owners);
        whose.clear();
        let tell = |is_ours| whose.push(if is_ours { PacketOwner::Nobody } else { PacketOwner::Others });
        let FlowBalancer { v4, v6, local, followed, shared, counters: tally, takes_frames, .. } = self;
        match takes_frames {
            true => record_service_packets(v4, v6, batch, packet_in_frame, tell),
            false => record_service_packets(v4, v6, batch, bare_packet, tell),
        }
        let now = cx.now().since_epoch();
        let mut by = MemberChooser { choice, local, followed, seed: &shared.seed, now };
        v4.assign_members(&mut by, tally, &mut whose);
        v6.assign_members(&mut by, tally, &mut whose);
        v4.assign_others(&mut by, tally, &mut whose);
        v6.assign_others(&mut by, tally, &mut whose);
        let mut of_packets = whose.iter();
        batch.filter_map(|packet| match of_packets.next() {
            Some(PacketOwner::Others) => self.handle_other_packet(packet, choice, cx),
            Some(PacketOwner::Member(id)) if let Some(member) = choice.member(id.action()) => {
                self.direct_packet(packet, member, cx)
            }
            _ => {
                self.handle_unassigned(packet, cx);
                None
            }
        });
        self.owners = whose;
    }

    /// Processes the packets of a batch that came by `input`.
    fn balance_batch(&mut self, input: usize, batch: &mut Batch, choice: &Choice, cx: &mut Context<'_>) {
        let now = cx.now().since_epoch();
        match (self.takes_frames, self.is_nat) {
            (true, false) => {
                self.redirect_frames(input, batch, choice, cx);
                self.send_frames(input, batch, cx);
            }
            (false, _) if input == 1 => return self.send_replies(batch, choice, cx),
            (takes_frames, _) => {
                self.assign_packets(batch, choice, cx);
                cx.send_all(if takes_frames { input } else { MEMBERS }, batch);
            }
        }
        if now.saturating_sub(self.maintained) >= PAUSE {
            self.maintain_flows(choice, now);
        } else if self.followed.is_on() {
            // A follower gets the event of a flow's end before the flow begins again.
            self.process_ended_flows(choice, now);
        }
    }

    /// Has records of flows made from now on, if flows are exported.
    fn begin_accounts(&mut self, now: Duration, cx: &mut Context<'_>) {
        if let Err(error) = self.accounts.begin(&mut self.v4, &mut self.v6, now) {
            let name = cx.name().to_string();
            cx.print_message(&format!(
                "{name}: flows are not exported: no memory for their accounts: {error}"
            ));
        }
    }

    /// Maintains the flows whose turn it is after this time.
    #[cold]
    fn maintain_flows(&mut self, choice: &Choice, now: Duration) {
        let since = now.saturating_sub(self.maintained);
        self.maintained = now;
        self.process_ended_flows(choice, now);
        self.v4.maintain_flows(now, since);
        self.v6.maintain_flows(now, since);
        self.process_ended_flows(choice, now);
        self.accounts.record_active(&self.v4.flows, &self.v6.flows, choice, now);
        self.accounts.flush(now);
        self.followed.all.stop_if_idle(now);
        self.followed.exceptions.stop_if_idle(now);
    }

    /// Records events of flows that have ended.
    pub(super) fn process_ended_flows(&mut self, choice: &Choice, now: Duration) {
        let nat = self.shared.nat.as_ref();
        let (local, followed, accounts) = (&mut self.local, &mut self.followed, &mut self.accounts);
        self.v4.process_ended_flows(local, (followed, accounts), nat, choice, now);
        self.v6.process_ended_flows(local, (followed, accounts), nat, choice, now);
    }

    /// Compares some flows with the members' table if that has changed and a client follows exceptions;
    /// returns whether that goes on at once.
    fn walk_exceptions(&mut self, choice: &Choice, now: Duration) -> bool {
        let placement = Placement { choice, seed: &self.shared.seed };
        self.followed.exceptions.walk_flows(&self.v4.flows, &self.v6.flows, placement, now)
    }
}

/// Records the owner of each packet.
impl AssignmentSink for Vec<PacketOwner> {
    fn on_assigned(&mut self, packet: BatchPacket, member: Option<MemberId>) {
        if let Some(whose) = self.get_mut(packet.index()) {
            *whose = member.map_or(PacketOwner::Nobody, PacketOwner::Member);
        }
    }
}

/// Marks where the packet of a frame begins.
fn mark_packet(frame: &mut Packet) {
    let header_len = match packet_in_frame(frame) {
        FoundPacket { version: 6, .. } => Ipv6::<&[u8]>::LEN,
        FoundPacket { bytes, .. } => Ipv4::new(bytes).map_or(0, |ip| ip.header_len()),
    };
    ip_header::mark_header(frame, LINK, header_len);
}

impl Element for FlowBalancer {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if let Some(check) = self.shared.check.clone().filter(|_| self.is_first) {
            let checks = HealthChecks::new(check);
            self.checks =
                Some(checks.map_err(|why| StartError::new(format!("members can't be checked: {why}")))?);
            cx.schedule();
        }
        let then = cx.now() + PERIOD;
        cx.wake_at(then);
        Ok(())
    }

    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        // Taken and put back: a clone would write a count that all workers share, with every batch.
        let Some(balancer) = self.balancer.take() else {
            return cx.discard_all(batch, DropReason::NoMember);
        };
        self.balance_batch(input, batch, balancer.choice_at(cx.turn()), cx);
        self.balancer = Some(balancer);
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let time = cx.now();
        let now = time.since_epoch();
        let balancer = self.shared.balancer();
        let choice = balancer.choice_at(cx.turn());
        self.begin_accounts(now, cx);
        self.maintain_flows(choice, now);
        if exchange::flush_step(self) {
            cx.schedule();
        }
        self.process_ended_flows(choice, now);
        if self.walk_exceptions(choice, now) {
            cx.schedule();
        }
        self.shared.lock_members().poll(now);
        let mut next = time + PERIOD;
        if let Some(checks) = &mut self.checks {
            let (due, said) = checks.run_checks(&self.shared, now);
            next = next.min(time + due.saturating_sub(now));
            let name = cx.name().to_string();
            said.iter().for_each(|line| cx.print_message(&format!("{name}: {line}")));
            cx.watch_file(checks.prober_fd(), Interest::Readable);
        }
        cx.wake_at(next);
        true
    }

    /// Restores the flows of a balancer with the same members.
    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<FlowBalancer>() {
            let now = cx.now().since_epoch();
            self.shared.take_over(&old.shared, now);
            if let (Some(checks), Some(old)) = (&mut self.checks, old.checks.take()) {
                checks.take_over(old, &self.shared, now);
            }
            let (ours, theirs) = (self.shared.balancer(), old.shared.balancer());
            let both = (ours.choice_at(cx.turn()), theirs.choice_at(cx.turn()));
            self.begin_accounts(now, cx);
            old.accounts.hand_over(now);
            let nat = self.shared.nat.as_ref();
            self.v4.restore_flows(&mut old.v4, &mut self.local, nat, both, now);
            self.v6.restore_flows(&mut old.v6, &mut self.local, nat, both, now);
            self.followed = std::mem::take(&mut old.followed);
            self.followed.exceptions.restart();
            self.counters = old.counters;
        }
    }

    /// Has flows recorded that go on.
    fn stop(&mut self, cx: &mut Context<'_>) {
        let now = cx.now().since_epoch();
        let balancer = self.shared.balancer();
        let choice = balancer.choice_at(cx.turn());
        self.process_ended_flows(choice, now);
        self.accounts.record_rest(&self.v4.flows, &self.v6.flows, choice, now);
    }
}
