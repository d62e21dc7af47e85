//! A third protocol: any that gives rules registers a table and has its neighbors found, kept and forgotten.
use super::rig::*;
use artery_l3::neighbor::{
    Action, Effect, Event, Happened, Kind, L2Engine, Limit, Links, NeighborCounters, NeighborEntry,
    NeighborId, NeighborIds, NeighborLimits, NeighborReader, NeighborTable, NeighborUpdate,
    NeighborUpdateKind, NeighborView, PortChange, Protocol, Resolution, SolicitTarget, State,
};
use artery_wire::EtherAddr;
use artery_wire::Random;
use std::sync::Arc;
use std::time::Duration;

/// Asks every two seconds, three times. What it hears is good for a minute, then sleeps for another until it
/// is used. Addresses are 16 bytes.
#[derive(Default)]
pub(crate) struct Toy;

impl Protocol for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn step(
        &self,
        entry: &mut NeighborEntry,
        event: Event,
        now: Duration,
        _: &mut Random,
        effects: &mut Vec<Effect>,
    ) {
        let state = match event {
            Event::Learned(NeighborUpdate { link: Some(link), .. }) if !entry.is_static => {
                effects.push(match entry.usable_link() {
                    None => Effect::Resolved,
                    Some(from) => Effect::Moved { from, to: link },
                });
                if entry.link == Some(link) {
                    effects.pop();
                }
                entry.link = Some(link);
                State::Reachable
            }
            Event::Packet if entry.state == State::Stale => State::Reachable,
            Event::Timer { .. } if entry.state == State::Reachable => State::Stale,
            Event::Timer { used: true } if entry.state == State::Stale => State::Reachable,
            Event::Timer { .. } if entry.state == State::Stale => return effects.push(Effect::Expired),
            Event::Timer { .. } | Event::Packet if entry.state == State::Incomplete => {
                return ask(entry, now, effects);
            }
            _ => return,
        };
        (entry.state, entry.asked, entry.deadline) = (state, 0, Some(now + secs(60)));
    }

    fn may_create(&self, heard: &NeighborUpdate, for_us: bool) -> bool {
        for_us && heard.link.is_some()
    }
}

fn ask(entry: &mut NeighborEntry, now: Duration, effects: &mut Vec<Effect>) {
    if entry.asked > 0 && !entry.is_due(now) {
        return;
    }
    if entry.asked == 3 {
        return effects.extend([Effect::Unreachable, Effect::Deleted]);
    }
    entry.asked += 1;
    entry.deadline = Some(now + secs(2));
    effects.push(Effect::Solicit(SolicitTarget::Multicast));
}

const A: u128 = 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10;

#[test]
fn a_third_protocol_resolves_fails_moves_and_expires() {
    let mut rig = Rig::<u128, Toy>::new(NeighborLimits::default());
    assert_eq!((rig.table.protocol().name(), rig.send(A)), ("toy", Sent::Waits));
    rig.run_to(secs(6));
    assert_eq!((rig.asked_at(A), rig.link(A)), ([0, 2, 4].map(secs).to_vec(), None));
    rig.there.insert(A, mac(1));
    assert_eq!((rig.send(A), rig.send(A)), (Sent::To(mac(1)), Sent::To(mac(1))));
    rig.hear(A, mac(2), NeighborUpdateKind::Unsolicited);
    // It sleeps after a minute; used, it wakes; unused, it goes.
    rig.run_for(secs(61));
    assert_eq!(rig.send(A), Sent::To(mac(2)));
    rig.run_for(secs(100));
    assert_eq!(rig.table.find_neighbor(A, rig.now).unwrap().state, "STALE");
    rig.run_for(secs(30));
    assert_eq!((rig.link(A), rig.table.len()), (None, 0));
    let names: Vec<&str> = rig.events_of(A).iter().map(|what| what.name()).collect();
    assert_eq!(names, ["failed", "timed-out", "resolved", "moved", "expired"]);
}

/// Hears of use by its timer alone, every ten seconds, and asks if there was some.
#[derive(Default)]
struct Patient;

impl Protocol for Patient {
    fn name(&self) -> &'static str {
        "patient"
    }

    fn step(
        &self,
        entry: &mut NeighborEntry,
        event: Event,
        now: Duration,
        _: &mut Random,
        effects: &mut Vec<Effect>,
    ) {
        match event {
            Event::Learned(heard) => (entry.state, entry.link) = (State::Unreachable, heard.link),
            Event::Timer { used: true } => effects.push(Effect::Solicit(SolicitTarget::Multicast)),
            Event::Timer { used: false } => effects.push(Effect::Expired),
            Event::Packet | Event::Confirmed => return,
        }
        entry.deadline = Some(now + secs(10));
    }

    fn may_create(&self, _: &NeighborUpdate, _: bool) -> bool {
        true
    }
}

#[test]
fn a_timer_is_told_of_all_use_since_the_last() {
    let mut rig = Rig::<u128, Patient>::new(NeighborLimits::default());
    rig.hear(A, mac(1), NeighborUpdateKind::Unsolicited);
    for round in 0..5 {
        // Soon after the timer, and again right before it; looks in between have seen the first.
        rig.run_to(secs(10 * round) + ms(200));
        assert_eq!(rig.send(A), Sent::To(mac(1)));
        if round % 2 == 0 {
            rig.run_to(secs(10 * round) + ms(9800));
            rig.send(A);
        }
    }
    rig.run_to(secs(59));
    assert_eq!(rig.asked_at(A), [10, 20, 30, 40, 50].map(secs));
    rig.run_to(secs(60));
    assert_eq!(rig.events_of(A), [Happened::Expired]);
}

/// The opposite kind of protocol: addresses of 16 bytes that contain the link address, so that
/// no solicitation is needed.
struct Embedded {
    inner: NeighborTable<u128, Toy>,
    actions: Vec<Action<u128>>,
}

fn contained(address: u128) -> EtherAddr {
    let [a, b, c, d, e, f, ..] = address.to_le_bytes();
    EtherAddr([a, b, c, d, e, f])
}

impl L2Engine<u128> for Embedded {
    fn resolve(&mut self, address: u128, now: Duration) -> Resolution {
        match self.inner.set_neighbor(address, contained(address), Kind::Temporary, now) {
            Ok(()) => self.inner.resolve(address, now),
            Err(limit) => Resolution::Refused(limit),
        }
    }
    fn pin_neighbor(&mut self, address: u128, now: Duration) -> Result<NeighborId, Limit> {
        self.inner.set_neighbor(address, contained(address), Kind::Static, now)?;
        self.inner.pin_neighbor(address, now)
    }
    fn unpin_neighbor(&mut self, address: u128, now: Duration) {
        self.inner.unpin_neighbor(address, now);
    }
    fn learn_neighbor(&mut self, _: u128, _: NeighborUpdate, _: bool, _: Duration) {}
    fn confirm_neighbor(&mut self, _: u128, _: Duration) {}
    fn set_neighbor(&mut self, _: u128, _: EtherAddr, _: Kind, _: Duration) -> Result<(), Limit> {
        Ok(())
    }
    fn delete_neighbor(&mut self, address: u128, now: Duration) -> bool {
        self.inner.delete_neighbor(address, now)
    }
    fn flush_neighbors(&mut self, now: Duration) -> usize {
        self.inner.flush_neighbors(now)
    }
    fn port_changed(&mut self, change: PortChange, now: Duration) {
        self.inner.port_changed(change, now);
    }
    fn poll(&mut self, now: Duration) -> Option<Duration> {
        self.inner.poll(now)
    }
    fn drain_actions(&mut self, into: &mut Vec<Action<u128>>) {
        self.inner.drain_actions(&mut self.actions);
        into.append(&mut self.actions);
    }
    fn reader(&self) -> NeighborReader<u128> {
        self.inner.reader()
    }
    fn find_neighbor(&self, address: u128, now: Duration) -> Option<NeighborView<u128>> {
        self.inner.find_neighbor(address, now)
    }
    fn entries(&self, now: Duration) -> Vec<NeighborView<u128>> {
        self.inner.entries(now)
    }
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn counters(&self) -> NeighborCounters {
        self.inner.counters()
    }
}

#[test]
fn engines_of_all_kinds_stand_side_by_side() {
    let domain = artery_rcu::Domain::new();
    let links = Arc::new(Links::new(&artery_storage::Pages, 1000).unwrap());
    let places = NeighborIds::new(&domain, &links, 1000);
    let limits = NeighborLimits::default();
    let nd = NeighborTable::new(&places, artery_l3::neighbor::nd::NdProtocol::default(), limits, 1);
    let toy = NeighborTable::new(&places, Toy, limits, 1);
    let embedded = Embedded { inner: NeighborTable::new(&places, Toy, limits, 1), actions: Vec::new() };
    let mut engines: [Box<dyn L2Engine<u128>>; 3] = [Box::new(nd), Box::new(toy), Box::new(embedded)];
    let mut turns = domain.reader();
    for engine in &mut engines {
        let mut resolution = engine.resolve(A, secs(1));
        if let Resolution::Hold(_) = resolution {
            engine.learn_neighbor(A, heard(contained(A), REPLY), true, secs(1));
            resolution = engine.resolve(A, secs(1));
        }
        let Resolution::Ready(id) = resolution else { panic!("{resolution:?}") };
        assert_eq!(engine.reader().find_neighbor(&turns.turn(), A), Some(id));
        assert_eq!(links.get(id).address(), Some(contained(A)));
    }
    assert_eq!(places.in_use(), 3);
}
