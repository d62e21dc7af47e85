//! Workers that remember ids while another thread frees, moves and forgets neighbors: the case in which
//! FreeBSD 5.4 sent to the link address of a neighbor that was freed under a cached route.
use super::rig::*;
use artery_l3::neighbor::arp::ArpProtocol;
use artery_l3::neighbor::{
    Kind, L2Engine, Link, Links, NeighborId, NeighborIds, NeighborLimits, NeighborReader, NeighborTable,
    NeighborUpdateKind, NudSettings, PortChange,
};
use artery_rcu::{Domain, Reader};
use artery_storage::Pages;
use artery_wire::EtherAddr;
use artery_wire::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::*};
use std::time::Duration;

const NEIGHBORS: u32 = 40;
/// The first ones are pinned, and their ids remembered for good.
const PINNED: u32 = 8;
const STEPS: u64 = 300_000;

/// A link address that tells whose it is and since when.
fn link_of(address: u32, version: u16) -> EtherAddr {
    let [a, b] = version.to_be_bytes();
    EtherAddr([2, a, b, 0, 0, address as u8])
}

/// For each neighbor, the version before which every link address is invalid.
struct Verifier(Vec<AtomicU16>);

impl Verifier {
    fn floor(&self, address: u32) -> u16 {
        self.0[address as usize].load(SeqCst)
    }

    /// A link that was loaded after the floor must be no older than it, and belong to the same neighbor.
    fn check(&self, address: u32, floor: u16, link: Link) -> bool {
        let Some(EtherAddr([_, a, b, _, _, whose])) = link.address() else { return false };
        assert_eq!(u32::from(whose), address, "a packet for {address} went to {whose}");
        let version = u16::from_be_bytes([a, b]);
        assert!(version >= floor, "a packet for {address} went to version {version}, freed before {floor}");
        true
    }
}

/// What one worker does: finds ids, then uses them again and again in the same turn, and pinned
/// ones in all turns.
fn work(
    reader: &NeighborReader<u32>,
    links: &Links,
    pinned: &[NeighborId],
    verifier: &Verifier,
    turns: &mut Reader,
) -> (u64, u64) {
    let turn = turns.turn();
    let (mut sent, mut kept) = (0, 0);
    let found: Vec<_> = (0..NEIGHBORS).filter_map(|n| Some((n, reader.find_neighbor(&turn, n)?))).collect();
    for _ in 0..4 {
        for (address, id) in &found {
            let floor = verifier.floor(*address);
            let link = links.get(*id);
            sent += u64::from(verifier.check(*address, floor, link));
            if link.wants_report() {
                links.report_use(*id);
            }
        }
        for (address, id) in (0..).zip(pinned) {
            let floor = verifier.floor(address);
            kept += u64::from(verifier.check(address, floor, links.get(*id)));
        }
    }
    (sent, kept)
}

/// Ends the workers, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// What control does meanwhile: one change, after which older versions must not be seen.
fn change(table: &mut NeighborTable<u32, ArpProtocol>, verifier: &Verifier, random: &mut Random, step: u64) {
    let (now, address) = (ms(step), random.below(NEIGHBORS.into()) as u32);
    let version = verifier.floor(address) + 1;
    let link = link_of(address, version);
    match random.below(100) {
        0..70 => table.learn_neighbor(address, heard(link, NeighborUpdateKind::Unsolicited), true, now),
        // All free ids may be in their grace period; then no old version exists, either.
        70..75 => drop(table.set_neighbor(address, link, Kind::Temporary, now)),
        75..98 => drop(table.delete_neighbor(address, now)),
        98 => drop(table.flush_neighbors(now)),
        _ => {
            table.port_changed(PortChange::Down, now);
            table.port_changed(PortChange::Up, now);
        }
    }
    verifier.0[address as usize].store(version, SeqCst);
    table.poll(now);
    table.drain_actions(&mut Vec::new());
}

#[test]
fn a_remembered_id_never_leads_to_a_freed_or_foreign_link_address() {
    let domain = Domain::new();
    // Few words, so that each is soon another neighbor's.
    let links = Arc::new(Links::new(&Pages, 64).unwrap());
    let places = NeighborIds::new(&domain, &links, 64);
    // Each message changes a link address at once.
    let settings = NudSettings { doubt: Duration::ZERO, ..NudSettings::arp() };
    let mut table =
        NeighborTable::<u32, _>::new(&places, ArpProtocol { settings }, NeighborLimits::default(), 1);
    let pinned: Vec<_> = (0..PINNED).map(|n| table.pin_neighbor(n, ms(0)).unwrap()).collect();
    let verifier = Verifier((0..NEIGHBORS).map(|_| AtomicU16::new(0)).collect());
    let (is_over, sent, kept) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (reader, mut turns) = (table.reader(), domain.reader());
            let (verifier, is_over, sent, kept) = (&verifier, &is_over, &sent, &kept);
            let (links, pinned) = (&links, &pinned);
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    let (by_find, by_id) = work(&reader, links, pinned, verifier, &mut turns);
                    sent.fetch_add(by_find, Relaxed);
                    kept.fetch_add(by_id, Relaxed);
                }
            });
        }
        let _stop = Stop(&is_over);
        let mut random = Random::new(7);
        (1..STEPS).for_each(|step| change(&mut table, &verifier, &mut random, step));
    });
    let (sent, kept) = (sent.into_inner(), kept.into_inner());
    assert!(sent > 10_000 && kept > 1000, "workers sent {sent} and {kept} packets");
}
