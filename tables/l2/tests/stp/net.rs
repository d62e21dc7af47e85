//! A network of bridges: links that take time, and a look for circles whenever a port changes its state.

use artery_l2::stp::{Action, Bridge, Link, PortSettings, PortState, Settings};
use artery_wire::EtherAddr;
use artery_wire::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// A port: of which bridge, and its number.
pub(crate) type End = (usize, u16);

pub(crate) struct Cable {
    pub(crate) ends: Vec<End>,
    pub(crate) is_up: bool,
    /// Frames of an earlier life of the cable are lost.
    life: u32,
    pub(crate) delay: Duration,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    arrival: Duration,
    order: u64,
    cable: usize,
    life: u32,
    to: End,
    frame: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct Net {
    pub(crate) bridges: Vec<Bridge>,
    pub(crate) cables: Vec<Cable>,
    pub(crate) now: Duration,
    /// Per bridge, by port number.
    pub(crate) states: Vec<Vec<PortState>>,
    pub(crate) flushes: Vec<(Duration, End)>,
    pub(crate) sent: u64,
    flights: BinaryHeap<Reverse<Flight>>,
    order: u64,
    /// Ends whose frames are dropped, so that the bridge there receives nothing.
    pub(crate) deaf: Vec<End>,
    /// How often there was a circle, if that is not an error.
    pub(crate) circles: Option<u64>,
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Net {
    pub(crate) fn new() -> Net {
        Net { now: seconds(100), ..Net::default() }
    }

    /// So many bridges of equal settings; the first has the lowest address.
    pub(crate) fn of(count: usize, settings: Settings) -> Net {
        let mut net = Net::new();
        (0..count).for_each(|_| net.add(settings));
        net
    }

    pub(crate) fn add(&mut self, settings: Settings) {
        let last = self.bridges.len() as u8 + 1;
        self.bridges.push(Bridge::new(EtherAddr([2, 0, 0, 0, 0, last]), settings).unwrap());
        self.states.push(vec![PortState::Discarding]);
    }

    /// Gives a bridge its next port.
    pub(crate) fn port(&mut self, bridge: usize, settings: PortSettings) -> End {
        let number = self.states[bridge].len() as u16;
        let address = EtherAddr([2, 0, 0, 1, bridge as u8, number as u8]);
        self.bridges[bridge].add_port(number, address, settings).unwrap();
        self.states[bridge].push(PortState::Discarding);
        (bridge, number)
    }

    /// Lays a cable between new ports; it is down.
    pub(crate) fn cable(&mut self, ends: &[usize], delay: Duration) -> usize {
        let ends = ends.iter().map(|bridge| self.port(*bridge, PortSettings::default())).collect();
        self.cable_between(ends, delay)
    }

    pub(crate) fn cable_between(&mut self, ends: Vec<End>, delay: Duration) -> usize {
        self.cables.push(Cable { ends, is_up: false, life: 0, delay });
        self.cables.len() - 1
    }

    pub(crate) fn up(&mut self, cable: usize) {
        self.cables[cable].is_up = true;
        let ends = self.cables[cable].ends.clone();
        let link = Link { full_duplex: ends.len() <= 2, ..Link::GIGABIT };
        for end in ends {
            self.act(end.0, |bridge, now, actions| bridge.link_up(end.1, link, now, actions).unwrap());
        }
    }

    pub(crate) fn all_up(&mut self) {
        (0..self.cables.len()).for_each(|cable| self.up(cable));
    }

    pub(crate) fn down(&mut self, cable: usize) {
        self.cables[cable].is_up = false;
        self.cables[cable].life += 1;
        for end in self.cables[cable].ends.clone() {
            self.act(end.0, |bridge, now, actions| bridge.link_down(end.1, now, actions).unwrap());
        }
    }

    /// All cables of a bridge go down at once.
    pub(crate) fn fail(&mut self, bridge: usize) {
        let of_it = |cable: &usize| self.cables[*cable].ends.iter().any(|end| end.0 == bridge);
        let cables: Vec<usize> = (0..self.cables.len()).filter(of_it).collect();
        cables.into_iter().for_each(|cable| self.down(cable));
    }

    /// Has a bridge do something, and does what it asks for.
    pub(crate) fn act(&mut self, bridge: usize, what: impl FnOnce(&mut Bridge, Duration, &mut Vec<Action>)) {
        let mut actions = Vec::new();
        what(&mut self.bridges[bridge], self.now, &mut actions);
        for action in actions {
            match action {
                Action::Send { port, frame } => self.send((bridge, port), &frame),
                Action::State { port, state } => {
                    self.states[bridge][usize::from(port)] = state;
                    self.look_for_circles();
                }
                Action::Flush { port } => self.flushes.push((self.now, (bridge, port))),
            }
        }
    }

    pub(crate) fn send(&mut self, from: End, frame: &[u8]) {
        self.sent += 1;
        let is_on = |cable: &(usize, &Cable)| cable.1.is_up && cable.1.ends.contains(&from);
        let Some((at, cable)) = self.cables.iter().enumerate().find(is_on) else { return };
        for to in cable.ends.iter().filter(|end| **end != from || cable.ends.len() == 1) {
            self.order += 1;
            self.flights.push(Reverse(Flight {
                arrival: self.now + cable.delay,
                order: self.order,
                cable: at,
                life: cable.life,
                to: *to,
                frame: frame.to_vec(),
            }));
        }
    }

    /// Lets time pass, with all deliveries that fall due.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.next_event().filter(|next| *next <= end) {
            self.now = next;
            self.deliver();
            for bridge in 0..self.bridges.len() {
                self.act(bridge, |it, now, actions| it.tick(now, actions));
            }
        }
        self.now = end;
    }

    fn next_event(&self) -> Option<Duration> {
        let deadlines = self.bridges.iter().filter_map(|bridge| bridge.next_deadline(self.now));
        deadlines.chain(self.flights.peek().map(|flight| flight.0.arrival)).min()
    }

    fn deliver(&mut self) {
        while self.flights.peek().is_some_and(|flight| flight.0.arrival <= self.now) {
            let Some(Reverse(flight)) = self.flights.pop() else { return };
            let cable = &self.cables[flight.cable];
            if cable.is_up && cable.life == flight.life && !self.deaf.contains(&flight.to) {
                self.act(flight.to.0, |bridge, now, actions| {
                    bridge.receive_frame(flight.to.1, &flight.frame, now, actions).unwrap();
                });
            }
        }
    }

    fn look_for_circles(&mut self) {
        let mut groups = Groups::new(self.bridges.len() + self.cables.len());
        let joined = |(at, end): (usize, End)| groups.join(end.0, self.bridges.len() + at);
        if self.forwarding_ends().all(joined) {
            return;
        }
        match &mut self.circles {
            Some(count) => *count += 1,
            None => panic!("{:?}: frames go in circles:\n{}", self.now, self.describe()),
        }
    }

    fn forwarding_ends(&self) -> impl Iterator<Item = (usize, End)> {
        let up = self.cables.iter().enumerate().filter(|(_, cable)| cable.is_up);
        let ends = up.flat_map(|(at, cable)| cable.ends.iter().map(move |end| (at, *end)));
        ends.filter(|(_, end)| self.state(*end) == PortState::Forwarding)
    }

    /// Whether frames reach every bridge from every other that cables reach.
    pub(crate) fn is_whole(&self) -> bool {
        let all = self.bridges.len() + self.cables.len();
        let (mut possible, mut actual) = (Groups::new(all), Groups::new(all));
        let up = self.cables.iter().enumerate().filter(|(_, cable)| cable.is_up);
        for (at, end) in up.flat_map(|(at, cable)| cable.ends.iter().map(move |end| (at, *end))) {
            possible.join(end.0, self.bridges.len() + at);
        }
        for (at, end) in self.forwarding_ends() {
            actual.join(end.0, self.bridges.len() + at);
        }
        (0..self.bridges.len()).all(|bridge| {
            let (root, other) = (possible.find(bridge), actual.find(bridge));
            (0..bridge).all(|it| (possible.find(it) == root) == (actual.find(it) == other))
        })
    }

    pub(crate) fn state(&self, end: End) -> PortState {
        self.states[end.0][usize::from(end.1)]
    }

    pub(crate) fn describe(&self) -> String {
        let bridges = self.bridges.iter().map(|bridge| {
            let view = bridge.view();
            let ports: Vec<String> = view.ports.iter().map(|port| format!("    {port}\n")).collect();
            format!("bridge {} (root {:?})\n{}", view.id, view.root, ports.concat())
        });
        let cables = self.cables.iter().map(|cable| format!("{:?} up: {}\n", cable.ends, cable.is_up));
        bridges.chain(cables).collect()
    }
}

/// Sets that grow together.
struct Groups(Vec<usize>);

impl Groups {
    fn new(count: usize) -> Groups {
        Groups((0..count).collect())
    }

    fn find(&self, mut at: usize) -> usize {
        while self.0[at] != at {
            at = self.0[at];
        }
        at
    }

    /// Says whether they were apart.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a] = b;
        a != b
    }
}

/// Bridges and cables at random: connected or not, with more than one cable between two, and
/// loops of one bridge.
pub(crate) fn random_net(random: &mut Random, shared: bool) -> Net {
    let mut net = Net::new();
    let bridges = 2 + random.below(7) as usize;
    for _ in 0..bridges {
        net.add(Settings { priority: 4096 * random.below(4) as u16, ..Settings::default() });
    }
    for _ in 0..bridges + random.below(8) as usize {
        let ends = if shared && random.percent(20) { 3 + random.below(2) } else { 2 };
        let ends: Vec<_> = (0..ends)
            .map(|_| {
                let cost = random.percent(50).then(|| 1 + random.below(50_000) as u32);
                let priority = 16 * random.below(16) as u8;
                let settings = PortSettings { cost, priority, ..PortSettings::default() };
                net.port(random.below(bridges as u64) as usize, settings)
            })
            .collect();
        net.cable_between(ends, Duration::from_micros(10 + random.below(1000)));
    }
    net
}
