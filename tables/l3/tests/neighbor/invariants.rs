//! What holds in a table that is always full, whatever happens to it.
use super::model::{Op, kind_of, ops};
use super::rig::*;
use artery_l3::neighbor::arp::ArpProtocol;
use artery_l3::neighbor::nd::NdProtocol;
use artery_l3::neighbor::{
    Kind, L2Engine, Link, NeighborId, NeighborLimits, NeighborView, PortChange, Protocol,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Neighbors that fit; there are more.
const ROOM: usize = 3;
/// Words there are: no more than three neighbors can be in their grace period.
const WORDS: u32 = 6;

struct Crowd<P> {
    rig: Rig<u128, P>,
    is_down: bool,
    fixed: BTreeSet<u128>,
    pinned: BTreeMap<u128, (NeighborId, u32)>,
}

impl<P: Protocol + Default> Crowd<P> {
    fn new() -> Crowd<P> {
        let limits = NeighborLimits { entries: ROOM, per_second: 2, burst: 3 };
        let rig = Rig::with(P::default(), limits, WORDS as usize, WORDS as usize);
        Crowd { rig, is_down: false, fixed: BTreeSet::new(), pinned: BTreeMap::new() }
    }

    fn apply(&mut self, op: Op) {
        let now = self.rig.now;
        let table = &mut self.rig.table;
        match op {
            Op::Send(a) | Op::Resolve(a) => {
                self.rig.send(a.into());
            }
            Op::Hear(a, m, kind, for_us) => {
                table.learn_neighbor(a.into(), heard(mac(m.into()), kind_of(kind)), for_us, now);
            }
            Op::Set(a, m, kind) => {
                if table.set_neighbor(a.into(), mac(m.into()), kind, now).is_ok() {
                    match kind {
                        Kind::Temporary => self.fixed.remove(&a.into()),
                        _ => self.fixed.insert(a.into()),
                    };
                }
            }
            Op::Confirm(a) => table.confirm_neighbor(a.into(), now),
            Op::Delete(a) => {
                table.delete_neighbor(a.into(), now);
                self.fixed.remove(&a.into());
            }
            Op::Flush => {
                table.flush_neighbors(now);
            }
            Op::Pin(a) => {
                if let Ok(id) = table.pin_neighbor(a.into(), now) {
                    let pinned = self.pinned.entry(a.into()).or_insert((id, 0));
                    assert_eq!(pinned.0, id, "a pinned id stays");
                    pinned.1 += 1;
                }
            }
            Op::Unpin(a) => {
                table.unpin_neighbor(a.into(), now);
                if let Some(pinned) = self.pinned.get_mut(&a.into()) {
                    pinned.1 -= 1;
                }
                self.pinned.retain(|_, pinned| pinned.1 > 0);
            }
            Op::Port(change) => {
                table.port_changed(change, now);
                self.is_down = change == PortChange::Down || self.is_down && change != PortChange::Up;
            }
            Op::Wait(time) => self.rig.run_for(ms(time.into())),
        }
        self.rig.carry_out();
        self.check();
    }

    fn check(&mut self) {
        let views = self.rig.table.entries(self.rig.now);
        assert!(views.len() <= ROOM);
        assert_eq!((self.rig.table.len(), self.rig.places.in_use()), (views.len(), views.len()));
        let of = |address: u128| views.iter().find(|view| view.address == address);
        assert!(self.fixed.iter().all(|address| of(*address).is_some_and(|view| view.is_static)));
        for (address, (id, pins)) in &self.pinned {
            assert_eq!(of(*address).map(|view| (view.id, view.pins)), Some((*id, *pins)));
        }
        self.check_words(&views);
    }

    /// Every word is that of its neighbor, and words without a neighbor are clear.
    fn check_words(&mut self, views: &[NeighborView<u128>]) {
        for id in (0..WORDS).map(NeighborId::new) {
            let link = self.rig.links.get(id);
            match views.iter().find(|view| view.id == id) {
                Some(view) if !self.is_down => assert_eq!(link.address(), view.link),
                _ => assert_eq!(link, Link::UNKNOWN),
            }
        }
        let turn = self.rig.turns.turn();
        for address in 0..6 {
            let view = views.iter().find(|view| view.address == address);
            assert_eq!(self.rig.reader.find_neighbor(&turn, address), view.map(|view| view.id));
        }
    }
}

fn holds<P: Protocol + Default>(ops: Vec<Op>) {
    let mut crowd = Crowd::<P>::new();
    ops.into_iter().for_each(|op| crowd.apply(op));
}

proptest! {
    #[test]
    fn static_and_pinned_neighbors_stay_and_words_are_right_by_the_rules_of_arp(ops in ops()) {
        holds::<ArpProtocol>(ops);
    }

    #[test]
    fn static_and_pinned_neighbors_stay_and_words_are_right_by_the_rules_of_nd(ops in ops()) {
        holds::<NdProtocol>(ops);
    }
}
