//! The slow path of a router: whatever is more than plain forwarding, of one worker.
//!
//! A packet is judged first, which changes nothing, and then dealt with. What the router says itself is judged and sent
//! like any other packet. Packets that wait for a neighbor are judged anew when the wait is over.
use super::claims::{ClaimAction, Claims};
use super::events::{AddressEvent, Event};
use super::flow::Flows;
use super::held::{Held, Neighbor};
use super::icmp::{self, Silence, Speaker};
use super::judge::{Own, judge};
use super::led;
use super::limits::{Bucket, Limits, Rate};
use super::local::{Fragments, no_fragments};
use super::order::UpTo;
use super::shared::SharedRouter;
use super::together::{Counters, Together, locked};
use super::verdict::{Came, Leave, Message, Origin, Told, Verdict, View};
use super::waiting::{self, Waiting};
use artery_engine::{Batch, Context, DropReason, Packet, Time, anno};
use artery_rcu::Turn;
use artery_table::neighbor::Link;
use artery_table::neighbor::claim::ClaimEffect;
use artery_table::path::{Decision, Outcome};
use artery_table::router::{PortAction, PortView};
use artery_table::{PortId, router::Tables};
use artery_wire::{EtherAddr, EtherType, Ethernet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes of the link header.
pub(super) const LINK: usize = 14;
/// How the slow path behaves.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The host's station, if there is a host.
    pub(super) host: Option<EtherAddr>,
    /// Whether each port has an interface of its own on the host.
    pub(super) has_host_ports: bool,
    /// Most packets that wait for one neighbor, on each worker.
    pub(super) hold: usize,
    /// Errors, redirects and answers in all, and to one destination.
    pub(super) icmp: Rate,
    pub(super) icmp_each: Rate,
    /// Messages between neighbors that are looked at.
    pub(super) messages: Rate,
    /// Unknown neighbors that control is asked about.
    pub(super) asks: Rate,
}

/// What a call of the slow path works with.
pub(super) struct Job<'a, 'c> {
    pub(super) router: &'a SharedRouter,
    pub(super) cx: &'a mut Context<'c>,
    pub(super) turn: &'a Turn<'a>,
    pub(super) now: Duration,
}

impl<'a, 'c: 'a> Job<'a, 'c> {
    pub(super) fn new(router: &'a SharedRouter, cx: &'a mut Context<'c>) -> Job<'a, 'c> {
        let (turn, now) = (cx.turn(), cx.now().since_epoch());
        Job { router, cx, turn, now }
    }
    /// The router's ports and ways, in this turn.
    pub(super) fn view(&self) -> View<'a> {
        let readers = self.router.readers();
        View { ports: readers.ports.read(self.turn), v4: &readers.v4, v6: &readers.v6, turn: self.turn }
    }
    pub(super) fn port(&self, port: PortId) -> Option<&'a PortView> {
        self.view().port(port)
    }
    /// What is known of a neighbor.
    pub(super) fn link(&self, neighbor: &Neighbor) -> Link {
        waiting::link(neighbor, &self.view())
    }
    /// Tells control that a neighbor is used.
    pub(super) fn report_use(&self, (port, address): &Neighbor) {
        let View { v4, v6, turn, .. } = self.view();
        match address {
            IpAddr::V4(address) => v4.neighbor(turn, *port, address.to_bits()).map(|id| v4.report_use(id)),
            IpAddr::V6(address) => v6.neighbor(turn, *port, address.to_bits()).map(|id| v6.report_use(id)),
        };
    }
    /// Sends bytes as a frame by a port.
    pub(super) fn send(&mut self, port: PortId, frame: &[u8]) -> bool {
        match self.cx.pool().packet_from(frame) {
            Some(packet) => self.cx.send(port.0.into(), packet),
            None => {
                self.cx.count_discarded(DropReason::PoolEmpty, 1);
                return false;
            }
        }
        true
    }
}

/// See the module.
pub(super) struct Slow {
    pub(super) settings: Settings,
    pub(super) together: Arc<Together>,
    pub(super) counters: Counters,
    /// Them, for others to read.
    told: Arc<Mutex<Counters>>,
    pub(super) held: Held<Waiting>,
    pub(super) limits: Limits,
    messages: Bucket,
    /// Those of neighbors that packets wait for.
    answers: Bucket,
    /// Those of neighbors that are known, from their stations.
    confirmations: Bucket,
    pub(super) asks: Bucket,
    flows: Flows,
    pub(super) fragments: Fragments,
    /// For the headers of what the router says.
    pub(super) ids: u32,
    pub(super) failures_seen: u64,
    /// The worker, for whose fast path it is said up to where this one has heard of neighbors that became known.
    pub(super) worker: usize,
    pub(super) heard: UpTo,
    /// When it is looked, whatever was heard, for whom packets need not wait any more.
    pub(super) next_look: Duration,
    /// When the tables and claims have something to do.
    due: Option<Duration>,
    /// What they want done; kept for their storage.
    actions: Vec<(PortId, PortAction)>,
    claim_actions: Vec<ClaimAction>,
}

impl Slow {
    /// That of a worker, of which there are so many.
    pub(super) fn new(
        settings: Settings,
        together: &Arc<Together>,
        (worker, workers): (usize, usize),
        ids: u32,
    ) -> Slow {
        let told = together.worker();
        Slow {
            counters: Counters::default(),
            told,
            held: Held::new(settings.hold, together.room()),
            limits: Limits::new(settings.icmp.share(workers), settings.icmp_each.share(workers)),
            messages: Bucket::new(settings.messages.share(workers)),
            answers: Bucket::new(settings.messages.share(workers)),
            confirmations: Bucket::new(settings.messages.share(workers)),
            asks: Bucket::new(settings.asks.share(workers)),
            flows: Flows::default(),
            fragments: no_fragments(),
            ids,
            failures_seen: 0,
            worker,
            heard: UpTo::NOTHING,
            next_look: Duration::ZERO,
            due: Some(Duration::ZERO),
            actions: Vec::new(),
            claim_actions: Vec::new(),
            together: together.clone(),
            settings,
        }
    }

    /// Takes a frame that a port received, or that the host sends.
    pub(super) fn take(&mut self, packet: Packet, from: Origin, job: &mut Job<'_, '_>) {
        let came = match job.view().came(packet.data(), from) {
            Ok(came) => came,
            Err(reason) => return job.cx.discard(packet, reason),
        };
        let kind = Ethernet::new(packet.data()).map(|ethernet| ethernet.ether_type());
        let came = Came { towards: kind.ok().and_then(|kind| led::towards(&packet, kind)), ..came };
        match (kind, from) {
            (Ok(EtherType::ARP), Origin::Port(port)) => self.take_message(packet, port, Message::Arp, job),
            (Ok(EtherType::ARP), _) => self.host_asks(packet, job),
            (Ok(EtherType::IPV6), Origin::Host) => self.take_from_host(packet, came, job),
            (Ok(EtherType::IPV4 | EtherType::IPV6), _) => self.deal(packet, came, job),
            (Ok(_), _) if self.is_for_host_port(came) => self.hand_to_host(packet, came, job),
            _ => job.cx.discard(packet, DropReason::UnknownEtherType),
        }
    }

    /// Judges a frame with an IP packet.
    fn judge(&mut self, packet: &Packet, came: Came, job: &Job<'_, '_>) -> Verdict {
        let has_host = self.has_host(job);
        let Slow { flows, together, .. } = self;
        let frame = packet.data();
        let longest = if packet.is_unfinished() { packet.segment_len(LINK) } else { usize::MAX };
        let own = Own { is_usable: &|port, address| together.is_usable(port, address), has_host };
        judge(frame, longest, came, &job.view(), own, &mut |method| flows.number(frame, method))
    }

    /// Does with a frame that holds an IP packet what is to be done.
    pub(super) fn deal(&mut self, packet: Packet, came: Came, job: &mut Job<'_, '_>) {
        let verdict = self.judge(&packet, came, job);
        if packet.is_unfinished() && !can_stay_so(&packet, &verdict) {
            return self.deal_when_finished(packet, came, job);
        }
        match verdict {
            Verdict::Forward(leave) => self.leave(packet, &leave, came, job),
            Verdict::Hold(leave) => self.hold(packet, &leave, came, job),
            Verdict::Answer => self.answer(packet, came, job),
            Verdict::Reassemble => self.reassemble(packet, came, job),
            Verdict::Host => self.hand_to_host(packet, came, job),
            Verdict::Neighbor(message) => match came.from {
                Origin::Port(port) => self.take_message(packet, port, message, job),
                _ => self.host_asks(packet, job),
            },
            Verdict::Error(told, reason) => {
                self.tell(told, packet.data().get(LINK..).unwrap_or_default(), came, job);
                job.cx.discard(packet, reason);
            }
            Verdict::Discard(reason) => job.cx.discard(packet, reason),
        }
    }

    /// Deals with what a packet is when all is done that its sender left.
    fn deal_when_finished(&mut self, packet: Packet, came: Came, job: &mut Job<'_, '_>) {
        let mut packets = job.cx.spare();
        packets.push(packet);
        job.cx.finish(&mut packets);
        packets.drain().for_each(|packet| self.deal(packet, came, job));
        job.cx.give_spare(packets);
    }

    /// Tells the sender of a packet, given from its IP header on, what became of it.
    pub(super) fn tell(&mut self, told: Told, packet: &[u8], came: Came, job: &mut Job<'_, '_>) {
        if came.from == Origin::Router {
            return;
        }
        let is_usable = |port, address| self.is_usable(port, address);
        let from = Speaker { ports: job.view().ports, port: came.from.port(), is_usable: &is_usable };
        let error = match icmp::error(told, packet, came.to.is_many(), from) {
            Ok(error) => error,
            Err(Silence::Forbidden(_)) => return self.counters.errors_forbidden += 1,
            Err(Silence::NoAddress) => return,
        };
        // Only now is it made: a flood of packets that ask for errors costs no more than to see that there are too many.
        if !self.limits.take(error.to(), job.now) {
            return self.counters.errors_limited += 1;
        }
        self.counters.errors += 1;
        let error = error.packet(packet, self.next_id());
        self.say(&error, came, job);
    }

    /// An identification for the header of what the router says.
    pub(super) fn next_id(&mut self) -> u16 {
        self.ids = self.ids.wrapping_add(1);
        self.ids as u16
    }

    /// Sends a packet of the router's own about one that came so.
    pub(super) fn say(&mut self, packet: &[u8], about: Came, job: &mut Job<'_, '_>) {
        let kind = if packet[0] >> 4 == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let mut frame = vec![0; LINK];
        frame[12..].copy_from_slice(&kind.0.to_be_bytes());
        frame.extend(packet);
        let Some(packet) = job.cx.pool().packet_from(&frame) else {
            return job.cx.count_discarded(DropReason::PoolEmpty, 1);
        };
        self.send_own(packet, about, job);
    }

    /// Sends a frame of the router's own, whose link header is still to be made: to the host if it answers that, by the
    /// port if it is for someone on its link only, else by the routes.
    pub(super) fn send_own(&mut self, packet: Packet, about: Came, job: &mut Job<'_, '_>) {
        let to = packet.data().get(LINK..).and_then(icmp::ends).map(|(_, to)| to);
        match (about.from, to) {
            (Origin::Host, _) => self.hand_to_host(packet, about, job),
            (Origin::Port(port), Some(IpAddr::V6(to))) if to.is_unicast_link_local() => {
                self.send_on_link(packet, port, to.into(), job);
            }
            _ => self.deal(packet, Came::FROM_US, job),
        }
    }

    /// Sends frames of the router's own elements, each by the port that its paint names.
    pub(super) fn take_own(&mut self, batch: &mut Batch, job: &mut Job<'_, '_>) {
        // Who sends may have changed the tables.
        self.hurry();
        self.poll(job);
        for packet in batch.drain() {
            let [port] = packet.annotation(anno::PAINT);
            let port = PortId(port.into());
            match packet.data().get(LINK..).and_then(icmp::ends) {
                None => job.cx.discard(packet, DropReason::Malformed),
                Some((from, _)) if !self.is_usable(port, from) => {
                    job.cx.discard(packet, DropReason::Unclaimed)
                }
                Some((_, to)) => self.send_on_link(packet, port, to, job),
            }
        }
    }

    /// Sends a frame of the router's own to a neighbor, whatever routes say.
    pub(super) fn send_on_link(&mut self, packet: Packet, port: PortId, to: IpAddr, job: &mut Job<'_, '_>) {
        match self.on_link(port, to, job) {
            Some(leave) if leave.decision.link.is_ready() => self.leave(packet, &leave, Came::FROM_US, job),
            Some(leave) => self.hold(packet, &leave, Came::FROM_US, job),
            None => job.cx.discard(packet, DropReason::PortDown),
        }
    }

    /// The way to a neighbor.
    fn on_link(&self, port: PortId, to: IpAddr, job: &Job<'_, '_>) -> Option<Leave> {
        let view = job.port(port).filter(|port| port.is_up)?;
        let link = job.link(&(port, to));
        let outcome = if link.is_ready() { Outcome::Forward } else { Outcome::Unresolved };
        let decision = Decision { link, port, mtu: view.mtu, outcome };
        Some(Leave { decision, next_hop: to, is_hop: false, is_cut: false, redirect: None })
    }

    /// Changes something in the tables or the claims, and does what follows.
    pub(super) fn change<T>(
        &mut self,
        job: &mut Job<'_, '_>,
        what: impl FnOnce(&mut Tables, &mut Claims, &mut Vec<ClaimAction>) -> T,
    ) -> T {
        let mut actions = std::mem::take(&mut self.actions);
        let mut claim_actions = std::mem::take(&mut self.claim_actions);
        let done = {
            let mut tables = job.router.tables();
            let mut claims = self.together.claims();
            let done = what(&mut tables, &mut claims, &mut claim_actions);
            if claims.is_news(tables.ports_version()) {
                claims.follow(tables.port_views(), job.now, &mut claim_actions);
                job.router.tell_ports(job.now, &tables, tables.port_views());
            }
            let due = [tables.poll(job.now), claims.poll(job.now, &mut claim_actions)];
            self.due = due.into_iter().flatten().min();
            tables.take_actions(&mut actions);
            self.together.note_failures(&actions);
            actions.iter().for_each(|(port, action)| job.router.tell_action(job.now, &tables, *port, action));
            self.together.note(&claims);
            tell_claims(&claim_actions, &claims, job);
            done
        };
        actions.drain(..).for_each(|(port, action)| self.act(port, &action, job));
        claim_actions.drain(..).for_each(|action| self.act_on_claim(&action, job));
        (self.actions, self.claim_actions) = (actions, claim_actions);
        done
    }

    /// Does what is due: for the tables, the claims, packets that wait, and fragments.
    pub(super) fn poll(&mut self, job: &mut Job<'_, '_>) {
        if self.due.is_some_and(|due| due <= job.now) {
            self.change(job, |_, _, _| ());
            self.next_look = Duration::ZERO;
        }
        self.look(job);
        self.forget_fragments(job);
    }

    /// Has tables and claims do next what they have to do, whatever they said.
    pub(super) fn hurry(&mut self) {
        self.due = Some(Duration::ZERO);
    }

    /// Ends a call: tells what was counted, and when there is something to do next.
    pub(super) fn wake(&self, job: &mut Job<'_, '_>) {
        *locked(&self.told) = self.counters;
        let holds = !self.held.is_empty();
        job.router.order().heard(self.worker, holds.then_some(self.heard));
        let look = holds.then_some(self.next_look);
        let next = [self.due, look, self.fragments.due()].into_iter().flatten().min();
        // At the time that is due, not just before: timers compare.
        job.cx.wake_at(next.map_or(Time::NEVER, |next| Time::ZERO + next));
    }

    /// Whether a message from a neighbor may be looked at. Those that packets wait for, and those that come from the
    /// station that they are known to have, are limited each for themselves: among others they would get lost, and what
    /// says to be one need not be.
    pub(super) fn may_look(&mut self, from: Option<Neighbor>, is_known: bool, now: Duration) -> bool {
        let is_waited_for = from.is_some_and(|neighbor| self.held.has(&neighbor));
        is_waited_for && self.answers.take(now)
            || is_known && self.confirmations.take(now)
            || self.messages.take(now)
    }

    pub(super) fn is_usable(&self, port: PortId, address: IpAddr) -> bool {
        self.together.is_usable(port, address)
    }
}

/// Whether a packet need not be finished for what is to become of it: what is held, cut, quoted or answered is a packet
/// as it goes over a wire.
fn can_stay_so(packet: &Packet, verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Forward(leave) => !leave.is_cut && leave.redirect.is_none(),
        Verdict::Host => packet.unfinished().is_some_and(|left| left.segments.is_some()),
        Verdict::Discard(_) => true,
        _ => false,
    }
}

/// Tells whoever watches what has become of the router's addresses.
fn tell_claims(actions: &[ClaimAction], claims: &Claims, job: &Job<'_, '_>) {
    for ClaimAction { port, address, effect } in actions.iter().copied() {
        let what = match effect {
            ClaimEffect::Usable => AddressEvent::Claimed,
            ClaimEffect::Conflict { with } if claims.is_usable((port, address)) => {
                AddressEvent::Defended(Some(with))
            }
            ClaimEffect::Conflict { with } => AddressEvent::Duplicate(Some(with)),
            _ => continue,
        };
        job.router.tell(job.now, Event::Address { port, address, what });
    }
}
