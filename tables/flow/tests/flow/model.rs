//! A table against a slow list of flows that does what the rules say, under random operations.
use super::rig::*;
use artery_flow::{
    Flow4, Flow6, FlowId, FlowLimits, FlowRecord, FlowState, FlowTable, Full, IdleTimes, Imported,
    PacketInfo, RecordSource, Tick,
};
use artery_wire::{IpProtocol, TcpFlags};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;

/// Limit on young flows. Their queue has twice that, more than the operations of a run, so it is never full.
const YOUNG_ROOM: u32 = 400;

#[derive(Clone, Debug)]
enum Op {
    Packet { n: u32, kind: u8 },
    Batch { from: u32, count: u32 },
    Import { n: u32, newer: i16, is_young: bool },
    Remove { n: u32 },
    Pass { seconds: u64 },
    GoBack { seconds: u64 },
    Maintain { budget: usize },
    GoRound,
    Limit { flows: u32, young: u32 },
    Times { paper: bool },
}

fn op() -> impl Strategy<Value = Op> {
    let n = prop_oneof![0..40_u32, 0..600_u32];
    prop_oneof![
        30 => (n.clone(), 0..12_u8).prop_map(|(n, kind)| Op::Packet { n, kind }),
        4 => (0..500_u32, 1..200_u32).prop_map(|(from, count)| Op::Batch { from, count }),
        12 => (n.clone(), -1..2_i16, any::<bool>())
            .prop_map(|(n, newer, is_young)| Op::Import { n, newer, is_young }),
        6 => n.prop_map(|n| Op::Remove { n }),
        3 => prop_oneof![0..3_u64, 5..100_u64, 80_000..90_000_u64].prop_map(|seconds| Op::Pass { seconds }),
        1 => (1..200_u64).prop_map(|seconds| Op::GoBack { seconds }),
        4 => (1..100_usize).prop_map(|budget| Op::Maintain { budget }),
        1 => Just(Op::GoRound),
        1 => (1..500_u32, 1..200_u32).prop_map(|(flows, young)| Op::Limit { flows, young }),
        1 => any::<bool>().prop_map(|paper| Op::Times { paper }),
    ]
}

/// A flow, and what it has been seen to do.
#[derive(Clone, Debug)]
struct Known {
    n: u32,
    id: FlowId,
    state: FlowState,
    packets: u64,
    bytes: u64,
    is_young: bool,
    /// Its place among all that were young when they came.
    came: Option<usize>,
    seen: u64,
    /// Where no packet of it was seen: its place among all that were imported, and the version of its record.
    imported: Option<(usize, u16)>,
}

/// Flows in the order in which they came.
struct Model {
    known: Vec<Known>,
    limits: FlowLimits,
    idle: IdleTimes,
    /// Of flows that were imported, also such that were seen or have gone since, until that is found out.
    imported: VecDeque<usize>,
    imports: usize,
    /// The same of flows that were young when they came.
    young: VecDeque<usize>,
    youngs: usize,
}

/// Numbers below 300 are TCP.
fn protocol(n: u32) -> IpProtocol {
    if n < 300 { IpProtocol::TCP } else { IpProtocol::UDP }
}

fn sight(n: u32, kind: u8) -> PacketInfo {
    let flags = match kind {
        _ if n >= 300 => TcpFlags::default(),
        0..3 => TcpFlags::SYN,
        3 => TcpFlags::FIN | TcpFlags::ACK,
        4 => TcpFlags::RST,
        _ => TcpFlags::ACK,
    };
    PacketInfo { protocol: protocol(n), flags, bytes: 40 + u32::from(kind) }
}

fn state_after(state: FlowState, sight: &PacketInfo, packets: u64) -> FlowState {
    use FlowState::*;
    let has = |flag| sight.flags.intersects(flag);
    let (is_reset, is_end, is_begin) = (has(TcpFlags::RST), has(TcpFlags::FIN), has(TcpFlags::SYN));
    match (state, is_reset, is_end, is_begin) {
        (UdpSingle, ..) => {
            if packets > 2 {
                UdpStream
            } else {
                UdpSingle
            }
        }
        (UdpStream | Other, ..) => state,
        (_, true, _, _) => Closed,
        (_, _, true, _) => Fin,
        (Midway | Fin | Closed, _, _, true) => Opening,
        (_, _, _, true) => state,
        (Opening, ..) => Established,
        (Midway, ..) => {
            if packets > 2 {
                Established
            } else {
                Midway
            }
        }
        (Closed, ..) => Fin,
        (Fin | Established, ..) => state,
    }
}

impl Model {
    fn place(&self, n: u32) -> Option<usize> {
        self.known.iter().position(|known| known.n == n)
    }

    fn is_idle(&self, known: &Known, now: u64) -> bool {
        now > known.seen && Duration::from_secs(now - known.seen) > self.idle.time_for(known.state)
    }

    fn touch(&mut self, place: usize, sight: &PacketInfo, now: u64) {
        let known = &mut self.known[place];
        known.packets += 1;
        known.bytes += u64::from(sight.bytes);
        known.state = state_after(known.state, sight, known.packets);
        known.seen = now;
        known.imported = None;
        let is_used = matches!(known.state, FlowState::Established | FlowState::UdpStream);
        known.is_young &= !(is_used || known.packets > 2 && known.state != FlowState::Opening);
    }

    fn young(&self) -> usize {
        self.known.iter().filter(|known| known.is_young).count()
    }

    fn still_young(&self, came: usize) -> Option<usize> {
        self.known.iter().position(|known| known.is_young && known.came == Some(came))
    }

    /// Takes those at the front of the queue that are young no more out of it, `most` of them.
    fn pass_over(&mut self, most: usize) {
        for _ in 0..most {
            match self.young.front() {
                Some(&came) if self.still_young(came).is_none() => self.young.pop_front(),
                _ => break,
            };
        }
    }

    fn displace_young(&mut self) -> bool {
        for _ in 0..64 {
            let Some(came) = self.young.pop_front() else { return false };
            if let Some(place) = self.still_young(came) {
                self.known.remove(place);
                return true;
            }
        }
        false
    }

    fn push_young(&mut self) -> usize {
        self.young.push_back(self.youngs);
        self.youngs += 1;
        self.youngs - 1
    }

    /// Makes room for a young flow as the rules say; says whether there is any.
    fn make_room(&mut self) -> bool {
        self.pass_over(2);
        let is_full = self.known.len() >= self.limits.flows as usize;
        let is_crowded = self.young() >= self.limits.young as usize;
        if !is_full && !is_crowded {
            return true;
        }
        self.displace_young() || !is_crowded && self.displace_imported()
    }

    /// The same for a flow that is imported.
    fn make_room_for_import(&mut self, is_young: bool) -> bool {
        if is_young {
            self.pass_over(2);
        }
        let is_full = self.known.len() >= self.limits.flows as usize;
        let is_crowded = is_young && self.young() >= self.limits.young as usize;
        !is_crowded && (!is_full || self.displace_imported())
    }

    fn unseen(&self, import: usize) -> Option<usize> {
        self.known.iter().position(|known| known.imported.is_some_and(|(own, _)| own == import))
    }

    fn displace_imported(&mut self) -> bool {
        for _ in 0..64 {
            let Some(import) = self.imported.pop_front() else { return false };
            if let Some(place) = self.unseen(import) {
                self.known.remove(place);
                return true;
            }
        }
        false
    }

    /// The version of a flow that was imported; one that no other flow has where it was not, so that none is
    /// taken for another that had its entry before.
    fn version(&self, n: u32) -> u16 {
        let known = self.place(n).and_then(|place| self.known[place].imported);
        known.map_or(30_000 + 3 * self.imports as u16, |(_, version)| version)
    }

    /// The result for a record, and for the flow if it is known.
    fn import(&mut self, record: &FlowRecord<u32>, now: u64) -> Outcome {
        let Some(place) = self.place(record.key) else {
            return if self.make_room_for_import(record.is_young) { Outcome::New } else { Outcome::Full };
        };
        let known = &mut self.known[place];
        match &mut known.imported {
            Some((_, version)) if record.version > *version => {
                *version = record.version;
                (known.state, known.packets, known.bytes) = (record.state, record.packets, record.bytes);
                (known.is_young, known.seen) = (false, now);
                Outcome::Newer(known.id)
            }
            Some((_, version)) if record.version == *version => {
                known.seen = known.seen.max(now);
                Outcome::Known(known.id)
            }
            _ => Outcome::Known(known.id),
        }
    }

    fn insert_imported(&mut self, record: &FlowRecord<u32>, id: FlowId, now: u64) {
        for _ in 0..2 {
            if self.imported.front().is_some_and(|import| self.unseen(*import).is_none()) {
                self.imported.pop_front();
            }
        }
        self.imported.push_back(self.imports);
        let imported = Some((self.imports, record.version));
        self.imports += 1;
        let FlowRecord { key: n, state, packets, bytes, is_young, .. } = *record;
        let came = is_young.then(|| self.push_young());
        self.known.push(Known { n, id, state, packets, bytes, is_young, came, seen: now, imported });
    }

    fn insert(&mut self, n: u32, id: FlowId, sight: &PacketInfo, now: u64) {
        let (state, bytes) = (FlowState::of_first(sight), sight.bytes.into());
        let came = Some(self.push_young());
        let (packets, is_young, seen, imported) = (1, true, now, None);
        self.known.push(Known { n, id, state, packets, bytes, is_young, came, seen, imported });
    }
}

/// Result of importing a record.
enum Outcome {
    New,
    Newer(FlowId),
    Known(FlowId),
    Full,
}

/// A record of a flow: of an attempt, or of one in use.
fn record(n: u32, version: u16, is_young: bool) -> FlowRecord<u32> {
    let is_tcp = protocol(n) == IpProtocol::TCP;
    let state = match (is_tcp, is_young) {
        (true, true) => FlowState::Opening,
        (true, false) => FlowState::Established,
        (false, true) => FlowState::UdpSingle,
        (false, false) => FlowState::UdpStream,
    };
    let (packets, bytes) = if is_young { (1, 40) } else { (5, 500) };
    let idle = Duration::ZERO;
    FlowRecord {
        key: n,
        answer: answer(n),
        state,
        idle,
        packets,
        bytes,
        version,
        is_young,
        is_pinned: false,
        is_imported: false,
        epoch: 0,
    }
}

struct Pair<K> {
    table: FlowTable<K>,
    model: Model,
    now: u64,
}

impl<K: Numbered> Pair<K> {
    fn new() -> Pair<K> {
        let table = table(1000, YOUNG_ROOM);
        let (limits, idle) = (table.limits(), table.settings().idle);
        let (imported, young) = (VecDeque::new(), VecDeque::new());
        let model = Model { known: Vec::new(), limits, idle, imported, imports: 0, young, youngs: 0 };
        // Not far from where ticks wrap.
        Pair { table, model, now: 429_490 }
    }

    fn tick(&self) -> Tick {
        at(self.now)
    }

    fn key(n: u32) -> K {
        K::numbered(n, protocol(n))
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Packet { n, kind } => self.packet(n, &sight(n, kind)),
            Op::Batch { from, count } => self.batch(from, count),
            Op::Import { n, newer, is_young } => {
                let version = self.model.version(n).wrapping_add_signed(newer);
                self.import(&record(n, version, is_young));
            }
            Op::Remove { n } => {
                if let Some(place) = self.model.place(n) {
                    assert!(self.table.remove(self.model.known.remove(place).id));
                }
            }
            // A table must be maintained to distinguish past from future.
            Op::Pass { seconds } => {
                self.now += seconds;
                if seconds > 1000 {
                    self.go_round();
                }
            }
            Op::GoBack { seconds } => {
                self.now -= seconds;
                self.go_round();
            }
            Op::Maintain { budget } => {
                let tick = self.tick();
                let forgotten = self.table.maintain_flows(tick, budget);
                self.follow(forgotten);
                self.model.pass_over(16);
            }
            Op::GoRound => self.go_round(),
            Op::Limit { flows, young } => {
                self.model.limits = FlowLimits { flows, young };
                self.table.set_limits(self.model.limits);
                self.go_round();
            }
            Op::Times { paper } => {
                self.model.idle = if paper { IdleTimes::PAPER } else { IdleTimes::default() };
                self.table.set_settings(artery_flow::FlowSettings { idle: self.model.idle, counts: true });
            }
        }
        self.check();
    }

    fn packet(&mut self, n: u32, sight: &PacketInfo) {
        let (key, found) = (Self::key(n), self.table.find(&Self::key(n)));
        match self.model.place(n) {
            Some(place) => {
                let id = self.model.known[place].id;
                assert_eq!(found, Some(id));
                // The fast touch returns nothing for packets that it does not record.
                let answered = self.table.touch_fast(id, sight, at(self.now));
                let answered = answered.or_else(|| self.table.touch_flow(id, sight, at(self.now)));
                assert_eq!(answered, Some(answer(n)));
                self.model.touch(place, sight, self.now);
            }
            None => {
                assert_eq!(found, None);
                let inserted = self.table.insert(&key, answer(n), sight, at(self.now));
                assert_eq!(inserted.is_ok(), self.model.make_room());
                if let Ok(id) = inserted {
                    self.model.insert(n, id, sight, self.now);
                }
            }
        }
    }

    fn import(&mut self, record: &FlowRecord<u32>) {
        let own = FlowRecord {
            key: Self::key(record.key),
            answer: record.answer,
            state: record.state,
            idle: record.idle,
            packets: record.packets,
            bytes: record.bytes,
            version: record.version,
            is_young: record.is_young,
            is_pinned: record.is_pinned,
            is_imported: false,
            epoch: 0,
        };
        let imported = self.table.import_record(&own, RecordSource::default(), self.tick());
        match (imported, self.model.import(record, self.now)) {
            (Ok(Imported::New(id)), Outcome::New) => self.model.insert_imported(record, id, self.now),
            (Ok(Imported::Newer(id)), Outcome::Newer(own))
            | (Ok(Imported::Known(id)), Outcome::Known(own)) => {
                assert_eq!(id, own);
            }
            (Err(Full), Outcome::Full) => {}
            (other, _) => panic!("{record:?}: {other:?}"),
        }
    }

    fn batch(&mut self, from: u32, count: u32) {
        let keys: Vec<K> = (from..from + count).map(Self::key).collect();
        let mut found = vec![None; 3];
        self.table.find_batch(&keys, &mut found);
        let expected =
            (from..from + count).map(|n| self.model.place(n).map(|place| self.model.known[place].id));
        assert_eq!(found, expected.collect::<Vec<_>>());
    }

    /// Forgets what the table has forgotten, which must have been idle, or too many young ones.
    fn follow(&mut self, forgotten: usize) {
        let too_many = self.model.young().saturating_sub(self.model.limits.young as usize);
        let (table, now) = (&mut self.table, self.now);
        let (kept, gone): (Vec<_>, Vec<_>) =
            self.model.known.drain(..).partition(|known| table.find(&Self::key(known.n)) == Some(known.id));
        self.model.known = kept;
        assert!(gone.iter().all(|known| self.model.is_idle(known, now) || known.is_young));
        let excess = gone.iter().filter(|known| !self.model.is_idle(known, now)).count();
        assert!(excess <= too_many);
        assert!(gone.len() >= forgotten);
    }

    fn go_round(&mut self) {
        let tick = self.tick();
        let forgotten = go_round(&mut self.table, tick);
        let now = self.now;
        self.model.known.iter_mut().for_each(|known| known.seen = known.seen.min(now));
        self.follow(forgotten);
        self.model.pass_over(usize::MAX);
        let idle = self.model.known.iter().find(|known| self.model.is_idle(known, now));
        assert!(idle.is_none(), "{idle:?} is kept at {now}");
        assert!(self.model.young() <= self.model.limits.young as usize);
    }

    fn check(&self) {
        assert_eq!(self.table.len() as usize, self.model.known.len());
        assert_eq!(self.table.stats().young as usize, self.model.young());
        for known in &self.model.known {
            let view = self.table.get(known.id).expect("the flow is there");
            let shown = (view.key(), view.state(), view.is_young(), view.packets(), view.bytes());
            let expected = (Self::key(known.n), known.state, known.is_young, known.packets, known.bytes);
            assert_eq!(shown, expected);
            assert_eq!((view.answer(), view.is_imported()), (answer(known.n), known.imported.is_some()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_table_does_what_a_list_of_flows_does(ops in prop::collection::vec(op(), 1..400)) {
        let mut four = Pair::<Flow4>::new();
        ops.iter().for_each(|op| four.run(op));
        let mut six = Pair::<Flow6>::new();
        ops.iter().for_each(|op| six.run(op));
    }
}
