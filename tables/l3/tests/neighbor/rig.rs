//! A table, a sender that uses it as workers do, and a link on which some answer.
use artery_l3::neighbor::{
    Action, Happened, Key, L2Engine, Limit, Link, Links, NeighborIds, NeighborLimits, NeighborReader,
    NeighborTable, NeighborUpdate, NeighborUpdateKind, Protocol, Resolution, SolicitTarget,
};
use artery_rcu::{Domain, Reader};
use artery_storage::Pages;
use artery_wire::EtherAddr;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const REPLY: NeighborUpdateKind =
    NeighborUpdateKind::Advertisement { solicited: true, overrides: true };

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
/// The link address of this number.
pub(crate) fn mac(number: u32) -> EtherAddr {
    let [a, b, c, d] = number.to_be_bytes();
    EtherAddr([2, 0, a, b, c, d])
}
/// What a message says that gives a link address.
pub(crate) fn heard(link: EtherAddr, kind: NeighborUpdateKind) -> NeighborUpdate {
    NeighborUpdate { link: Some(link), kind, router: None }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    To(EtherAddr),
    Waits,
    Fails,
    Dropped(Limit),
}

pub(crate) struct Rig<A, P> {
    pub(crate) table: NeighborTable<A, P>,
    pub(crate) places: Arc<NeighborIds>,
    pub(crate) links: Arc<Links>,
    pub(crate) reader: NeighborReader<A>,
    pub(crate) turns: Reader,
    pub(crate) now: Duration,
    /// Neighbors that answer solicitations, and with which link address.
    pub(crate) there: HashMap<A, EtherAddr>,
    /// Solicitations and events, with their times.
    pub(crate) asks: Vec<(Duration, A, SolicitTarget)>,
    pub(crate) events: Vec<(Duration, A, Happened)>,
    /// How many packets took the slow path, and how many had to report use.
    pub(crate) resolved: usize,
    pub(crate) reports: usize,
}

impl<A: Key, P: Protocol + Default> Rig<A, P> {
    pub(crate) fn new(limits: NeighborLimits) -> Rig<A, P> {
        Rig::with(P::default(), limits, 1 << 18, 1 << 17)
    }
}

impl<A: Key, P: Protocol> Rig<A, P> {
    /// A rig with this many words, and a limit of neighbors in use.
    pub(crate) fn with(protocol: P, limits: NeighborLimits, words: usize, most: usize) -> Rig<A, P> {
        let domain = Domain::new();
        let links = Arc::new(Links::new(&Pages, words).unwrap());
        let places = NeighborIds::new(&domain, &links, most);
        let table = NeighborTable::new(&places, protocol, limits, 1);
        Rig {
            reader: table.reader(),
            table,
            places,
            links,
            turns: domain.reader(),
            now: Duration::ZERO,
            there: HashMap::new(),
            asks: Vec::new(),
            events: Vec::new(),
            resolved: 0,
            reports: 0,
        }
    }

    /// What a worker sees of a neighbor.
    pub(crate) fn link(&mut self, address: A) -> Option<Link> {
        let turn = self.turns.turn();
        self.reader.find_neighbor(&turn, address).map(|id| self.links.get(id))
    }

    /// Sends a packet, as a worker does.
    pub(crate) fn send(&mut self, address: A) -> Sent {
        let turn = self.turns.turn();
        let found = self.reader.find_neighbor(&turn, address).map(|id| (id, self.links.get(id)));
        match found {
            Some((id, link)) if link.is_ready() => {
                if link.wants_report() {
                    self.links.report_use(id);
                    self.reports += 1;
                }
                return Sent::To(link.address().unwrap());
            }
            Some((_, link)) if link.has_failed() => return Sent::Fails,
            _ => {}
        }
        self.resolved += 1;
        let resolution = self.table.resolve(address, self.now);
        self.carry_out();
        match resolution {
            Resolution::Ready(id) => Sent::To(self.links.get(id).address().unwrap()),
            // It may have been answered since.
            Resolution::Hold(id) => self.links.get(id).address().map_or(Sent::Waits, Sent::To),
            Resolution::Failed => Sent::Fails,
            Resolution::Refused(limit) => Sent::Dropped(limit),
        }
    }

    /// A message about a neighbor comes.
    pub(crate) fn hear(&mut self, address: A, link: EtherAddr, kind: NeighborUpdateKind) {
        self.table.learn_neighbor(address, heard(link, kind), true, self.now);
        self.carry_out();
    }

    /// Carries out what the table wants: whoever is there answers at once.
    pub(crate) fn carry_out(&mut self) {
        let mut actions = Vec::new();
        loop {
            self.table.drain_actions(&mut actions);
            if actions.is_empty() {
                return;
            }
            for action in actions.drain(..) {
                match action {
                    Action::Event(event) => self.events.push((self.now, event.address, event.what)),
                    Action::Ask { address, to } => {
                        self.asks.push((self.now, address, to));
                        if let Some(link) = self.there.get(&address) {
                            self.table.learn_neighbor(address, heard(*link, REPLY), true, self.now);
                        }
                    }
                }
            }
        }
    }

    /// Lets time pass, and the table work whenever it has said that it has to.
    pub(crate) fn run_to(&mut self, until: Duration) {
        loop {
            let next = self.table.poll(self.now);
            self.carry_out();
            match next {
                Some(next) if next <= until => self.now = self.now.max(next),
                _ => break,
            }
        }
        self.now = until;
    }
    pub(crate) fn run_for(&mut self, time: Duration) {
        self.run_to(self.now + time);
    }

    /// What happened to a neighbor.
    pub(crate) fn events_of(&self, address: A) -> Vec<Happened> {
        self.events.iter().filter(|(_, of, _)| *of == address).map(|(_, _, what)| *what).collect()
    }
    /// When a neighbor was solicited.
    pub(crate) fn asked_at(&self, address: A) -> Vec<Duration> {
        self.asks.iter().filter(|(_, of, _)| *of == address).map(|(at, _, _)| *at).collect()
    }
}
