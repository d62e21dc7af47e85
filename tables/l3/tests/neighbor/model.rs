//! The table against an obvious model: a list of entries, all looked through at every step.
use super::rig::*;
use super::toy::Toy;
use artery_l3::neighbor::arp::ArpProtocol;
use artery_l3::neighbor::{
    Action, Effect, Event, Happened, Kind, L2Engine, Link, NeighborEntry, NeighborLimits, NeighborUpdate,
    NeighborUpdateKind, PortChange, Protocol, Resolution, State,
};
use artery_wire::Random;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

type Address = u128;

#[derive(Default)]
struct Neighbor {
    entry: Option<NeighborEntry>,
    pins: u32,
    untried: bool,
    /// What workers have said since they were asked to, and what was seen of it since the last timer.
    reported: bool,
    was_used: bool,
    link: Option<Link>,
}

impl Neighbor {
    fn should_show(&self) -> Link {
        match &self.entry {
            Some(entry) => match entry.usable_link() {
                Some(link) if entry.wants_report() || self.untried => Link::ready(link).with_report(),
                Some(link) => Link::ready(link),
                None if entry.has_failed() => Link::UNREACHABLE,
                None => Link::UNKNOWN,
            },
            None => Link::UNKNOWN,
        }
    }
    fn is_watched(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| {
            let is_asleep = matches!(entry.state, State::Stale | State::Unreachable);
            entry.usable_link().is_some() && !entry.is_static && (is_asleep || self.untried)
        })
    }
}

#[derive(Default)]
struct Model<P> {
    protocol: P,
    neighbors: BTreeMap<Address, Neighbor>,
    next_look: Duration,
    is_down: bool,
    actions: Vec<String>,
}

fn event(address: Address, what: Happened) -> String {
    format!("{address} {what:?}")
}

impl<P: Protocol> Model<P> {
    fn happened(&mut self, address: Address, what: Happened) {
        self.actions.push(event(address, what));
    }

    fn settle(&mut self, address: Address) {
        let is_down = self.is_down;
        let Some(neighbor) = self.neighbors.get_mut(&address) else { return };
        let link = if is_down { Link::UNKNOWN } else { neighbor.should_show() };
        if link.wants_report() && !neighbor.link.is_some_and(Link::wants_report) {
            neighbor.reported = false;
        }
        neighbor.link = Some(link);
        if neighbor.entry.is_none() && neighbor.pins == 0 {
            self.neighbors.remove(&address);
        }
    }

    fn forget(&mut self, address: Address) {
        if let Some(neighbor) = self.neighbors.get_mut(&address) {
            (neighbor.entry, neighbor.untried, neighbor.was_used) = (None, false, false);
        }
        self.settle(address);
    }

    fn step(&mut self, address: Address, event: Event, now: Duration) {
        let Some(neighbor) = self.neighbors.get_mut(&address) else { return };
        let Some(entry) = &mut neighbor.entry else { return };
        let mut effects = Vec::new();
        self.protocol.step(entry, event, now, &mut Random::new(0), &mut effects);
        let usable = entry.usable_link();
        for effect in &effects {
            let what = match *effect {
                Effect::Solicit(to) => {
                    self.actions.push(format!("{address} ask {to:?}"));
                    continue;
                }
                Effect::Resolved => Happened::Resolved(usable.unwrap()),
                Effect::Moved { from, to } => Happened::Moved { from, to },
                Effect::Doubted { kept, offered } => Happened::Contested { kept, heard: offered },
                Effect::Refused { kept, offered } => Happened::Refused { kept, heard: offered },
                Effect::Unreachable => Happened::Failed,
                Effect::Deleted => Happened::TimedOut,
                Effect::Expired => Happened::Expired,
                Effect::NoLongerRouter => Happened::NoLongerRouter,
            };
            self.happened(address, what);
        }
        if effects.iter().any(|effect| effect.is_end()) {
            self.forget(address);
        }
        self.settle(address);
    }

    /// What the table says when it is asked: "ready", "hold" or "failed".
    fn resolve(&mut self, address: Address, now: Duration) -> &'static str {
        if self.is_down {
            return "failed";
        }
        let neighbor = self.neighbors.entry(address).or_default();
        neighbor.untried = false;
        let entry = neighbor.entry.get_or_insert_with(NeighborEntry::new);
        if entry.usable_link().is_none() || entry.wants_report() {
            self.step(address, Event::Packet, now);
        }
        self.settle(address);
        match self.neighbors.get(&address).and_then(|neighbor| neighbor.entry.as_ref()) {
            Some(entry) if entry.usable_link().is_some() => "ready",
            Some(entry) if !entry.has_failed() => "hold",
            _ => "failed",
        }
    }

    fn hear(&mut self, address: Address, number: u32, kind: NeighborUpdateKind, for_us: bool, now: Duration) {
        let heard = heard(mac(number), kind);
        let is_known = self.neighbors.get(&address).is_some_and(|neighbor| neighbor.entry.is_some());
        if self.is_down || !is_known && !self.protocol.may_create(&heard, for_us) {
            return;
        }
        let neighbor = self.neighbors.entry(address).or_default();
        if !is_known {
            (neighbor.entry, neighbor.untried) = (Some(NeighborEntry::new()), neighbor.pins == 0);
        }
        self.step(address, Event::Learned(heard), now);
    }

    fn set(&mut self, address: Address, number: u32, kind: Kind, now: Duration) {
        let entry = match kind {
            Kind::Static => NeighborEntry::new_static(mac(number), false),
            Kind::Published => NeighborEntry::new_static(mac(number), true),
            Kind::Temporary => {
                let mut entry = NeighborEntry::new();
                for event in [Event::Learned(heard(mac(number), REPLY)), Event::Confirmed] {
                    self.protocol.step(&mut entry, event, now, &mut Random::new(0), &mut Vec::new());
                }
                entry
            }
        };
        let neighbor = self.neighbors.entry(address).or_default();
        let before = neighbor.entry.replace(entry).filter(|entry| entry.state != State::Unreachable);
        let before = before.and_then(|entry| entry.usable_link());
        neighbor.untried = false;
        self.settle(address);
        match before {
            None => self.happened(address, Happened::Resolved(mac(number))),
            Some(from) if from != mac(number) => {
                self.happened(address, Happened::Moved { from, to: mac(number) });
            }
            _ => {}
        }
    }

    fn delete(&mut self, address: Address) {
        if self.neighbors.get(&address).is_some_and(|neighbor| neighbor.entry.is_some()) {
            self.happened(address, Happened::Deleted);
            self.forget(address);
        }
    }

    fn flush(&mut self) {
        for address in self.addresses() {
            if self.neighbors[&address].entry.as_ref().is_some_and(|entry| !entry.is_static) {
                self.delete(address);
            }
        }
    }

    fn port(&mut self, change: PortChange) {
        match change {
            PortChange::Down => {
                self.is_down = true;
                self.flush();
            }
            PortChange::Up => self.is_down = false,
            PortChange::LinkAddress => {}
        }
        self.addresses().into_iter().for_each(|address| self.settle(address));
    }

    fn addresses(&self) -> Vec<Address> {
        self.neighbors.keys().copied().collect()
    }

    /// Does what is due, and says when more is.
    fn poll(&mut self, now: Duration) -> Option<Duration> {
        for address in self.addresses() {
            let neighbor = self.neighbors.get_mut(&address).unwrap();
            if neighbor.entry.as_ref().is_some_and(|entry| entry.is_due(now)) {
                let used = neighbor.reported || neighbor.was_used;
                (neighbor.reported, neighbor.was_used) = (false, false);
                self.step(address, Event::Timer { used }, now);
            }
        }
        if now >= self.next_look {
            self.next_look = now + secs(1);
            self.addresses().into_iter().for_each(|address| self.look(address, now));
        }
        let entries = self.neighbors.values().filter_map(|neighbor| neighbor.entry.as_ref());
        let look = self.neighbors.values().any(Neighbor::is_watched).then_some(self.next_look);
        entries.filter_map(|entry| entry.deadline).map(|due| due.max(now)).chain(look).min()
    }

    fn look(&mut self, address: Address, now: Duration) {
        let neighbor = self.neighbors.get_mut(&address).unwrap();
        if neighbor.is_watched() && std::mem::take(&mut neighbor.reported) {
            (neighbor.untried, neighbor.was_used) = (false, true);
            if neighbor.entry.as_ref().is_some_and(NeighborEntry::wants_report) {
                self.step(address, Event::Packet, now);
            }
            self.settle(address);
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Send(u8),
    Resolve(u8),
    Hear(u8, u8, u8, bool),
    Set(u8, u8, Kind),
    Confirm(u8),
    Delete(u8),
    Flush,
    Pin(u8),
    Unpin(u8),
    Port(PortChange),
    Wait(u32),
}

pub(crate) fn ops() -> impl Strategy<Value = Vec<Op>> {
    let address = 0..6u8;
    let kinds = prop_oneof![Just(Kind::Static), Just(Kind::Published), Just(Kind::Temporary)];
    let changes = prop_oneof![Just(PortChange::Down), Just(PortChange::Up), Just(PortChange::LinkAddress)];
    let hear = (address.clone(), 0..3u8, 0..4u8, any::<bool>()).prop_map(|(a, m, k, u)| Op::Hear(a, m, k, u));
    let op = prop_oneof![
        12 => address.clone().prop_map(Op::Send),
        4 => address.clone().prop_map(Op::Resolve),
        8 => hear,
        1 => (address.clone(), 0..3u8, kinds).prop_map(|(a, m, kind)| Op::Set(a, m, kind)),
        1 => address.clone().prop_map(Op::Confirm),
        1 => address.clone().prop_map(Op::Delete),
        1 => Just(Op::Flush),
        1 => address.clone().prop_map(Op::Pin),
        2 => address.prop_map(Op::Unpin),
        1 => changes.prop_map(Op::Port),
        3 => Just(Op::Port(PortChange::Up)),
        6 => (0..3000u32).prop_map(Op::Wait),
        4 => (0..1_500_000u32).prop_map(Op::Wait),
    ];
    prop::collection::vec(op, 1..150)
}

/// The kind of message of this number.
pub(crate) fn kind_of(number: u8) -> NeighborUpdateKind {
    let overrides = NeighborUpdateKind::Advertisement { solicited: false, overrides: true };
    [REPLY, overrides, NeighborUpdateKind::Solicitation, NeighborUpdateKind::Unsolicited][usize::from(number)]
}

struct Pair<P> {
    rig: Rig<Address, P>,
    model: Model<P>,
}

impl<P: Protocol + Default> Pair<P> {
    fn new() -> Pair<P> {
        let limits = NeighborLimits { per_second: 1_000_000, burst: 1_000_000, ..NeighborLimits::default() };
        Pair { rig: Rig::new(limits), model: Model::default() }
    }

    fn apply(&mut self, op: Op) {
        let now = self.rig.now;
        let (rig, model) = (&mut self.rig, &mut self.model);
        match op {
            Op::Send(a) => self.send(a.into()),
            Op::Resolve(a) => self.resolve(a.into()),
            Op::Hear(a, m, kind, for_us) => {
                let kind = kind_of(kind);
                rig.table.learn_neighbor(a.into(), heard(mac(m.into()), kind), for_us, now);
                model.hear(a.into(), m.into(), kind, for_us, now);
            }
            Op::Set(a, m, kind) => {
                rig.table.set_neighbor(a.into(), mac(m.into()), kind, now).unwrap();
                model.set(a.into(), m.into(), kind, now);
            }
            Op::Confirm(a) => {
                rig.table.confirm_neighbor(a.into(), now);
                if let Some(neighbor) = model.neighbors.get_mut(&a.into()) {
                    neighbor.untried = false;
                }
                model.step(a.into(), Event::Confirmed, now);
            }
            Op::Delete(a) => {
                rig.table.delete_neighbor(a.into(), now);
                model.delete(a.into());
            }
            Op::Flush => {
                rig.table.flush_neighbors(now);
                model.flush();
            }
            Op::Pin(a) => {
                rig.table.pin_neighbor(a.into(), now).unwrap();
                let neighbor = model.neighbors.entry(a.into()).or_default();
                (neighbor.pins, neighbor.untried) = (neighbor.pins + 1, false);
                model.settle(a.into());
            }
            Op::Unpin(a) => {
                rig.table.unpin_neighbor(a.into(), now);
                if let Some(neighbor) = model.neighbors.get_mut(&a.into()) {
                    neighbor.pins = neighbor.pins.saturating_sub(1);
                }
                model.settle(a.into());
            }
            Op::Port(change) => {
                rig.table.port_changed(change, now);
                model.port(change);
            }
            Op::Wait(time) => self.wait(ms(time.into())),
        }
        self.compare();
    }

    /// As a worker does.
    fn send(&mut self, address: Address) {
        let found = self.rig.reader.find_neighbor(&self.rig.turns.turn(), address);
        match found.map(|id| (id, self.rig.links.get(id))) {
            Some((id, link)) if link.is_ready() => {
                if link.wants_report() {
                    self.rig.links.report_use(id);
                    self.model.neighbors.get_mut(&address).unwrap().reported = true;
                }
            }
            _ => self.resolve(address),
        }
    }

    fn resolve(&mut self, address: Address) {
        let expected = self.model.resolve(address, self.rig.now);
        let resolution = match self.rig.table.resolve(address, self.rig.now) {
            Resolution::Ready(_) => "ready",
            Resolution::Hold(_) => "hold",
            Resolution::Failed => "failed",
            Resolution::Refused(limit) => limit.name(),
        };
        assert_eq!(resolution, expected);
    }

    fn wait(&mut self, time: Duration) {
        let until = self.rig.now + time;
        loop {
            let now = self.rig.now;
            let (next, expected) = (self.rig.table.poll(now), self.model.poll(now));
            assert_eq!(next, expected, "the next deadline at {now:?}");
            self.compare();
            match next {
                Some(next) if next <= until => self.rig.now = next,
                _ => break,
            }
        }
        self.rig.now = until;
    }

    /// Everything that can be seen is as in the model.
    fn compare(&mut self) {
        let mut actions = Vec::new();
        self.rig.table.drain_actions(&mut actions);
        let mut actions: Vec<String> = actions
            .into_iter()
            .map(|action| match action {
                Action::Ask { address, to } => format!("{address} ask {to:?}"),
                Action::Event(of) => event(of.address, of.what),
            })
            .collect();
        let mut expected = std::mem::take(&mut self.model.actions);
        // Actions due at one time may come in any order, except those of one neighbor.
        actions.sort_by_key(|action| action.split(' ').next().map(str::to_string));
        expected.sort_by_key(|action| action.split(' ').next().map(str::to_string));
        assert_eq!(actions, expected);

        let views = self.rig.table.entries(self.rig.now);
        assert_eq!(views.iter().map(|view| view.address).collect::<Vec<_>>(), self.model.addresses());
        assert_eq!((self.rig.table.len(), self.rig.places.in_use()), (views.len(), views.len()));
        for address in 0..6 {
            let neighbor = self.model.neighbors.get(&address);
            assert_eq!(self.rig.link(address), neighbor.and_then(|neighbor| neighbor.link), "{address}");
            assert_eq!(self.rig.table.entry(address), neighbor.and_then(|neighbor| neighbor.entry.as_ref()));
            let view = views.iter().find(|view| view.address == address);
            assert_eq!(view.map(|view| view.pins), neighbor.map(|neighbor| neighbor.pins));
        }
    }
}

/// The rules of ARP, where all times are drawn alike: the model draws in another order than the table.
#[derive(Default)]
struct Steady(ArpProtocol);

impl Protocol for Steady {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn step(
        &self,
        entry: &mut NeighborEntry,
        event: Event,
        now: Duration,
        _: &mut Random,
        effects: &mut Vec<Effect>,
    ) {
        self.0.step(entry, event, now, &mut Random::new(7), effects);
    }
    fn may_create(&self, heard: &NeighborUpdate, for_us: bool) -> bool {
        self.0.may_create(heard, for_us)
    }
}

fn agrees<P: Protocol + Default>(ops: Vec<Op>) {
    let mut pair = Pair::<P>::new();
    ops.into_iter().for_each(|op| pair.apply(op));
}

proptest! {
    #[test]
    fn a_table_does_what_the_model_does_by_the_rules_of_arp(ops in ops()) {
        agrees::<Steady>(ops);
    }

    #[test]
    fn a_table_does_what_the_model_does_by_the_rules_of_a_protocol_that_sleeps(ops in ops()) {
        agrees::<Toy>(ops);
    }
}
