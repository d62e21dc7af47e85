//! Adopted interfaces: the mirror, the accelerator and the guards at work together.
use crate::fast::{self, Accelerator, Mode, PortCounters, Withheld};
use crate::graph::{Both, Graph};
use crate::guard::{self, Guard, Own, Port, Watch};
use crate::heartbeat::Heartbeat;
use crate::keeper::Keeper;
use crate::kernel::Family;
use crate::mirror::{Driver, Turn};
use crate::pace::Pace;
use artery_device::xdp_features;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// How often the kernel is told of neighbors in use.
const REFRESH: Duration = Duration::from_secs(1);

/// Why a session can't begin, or go on.
#[derive(Debug)]
pub enum Error {
    /// What was done with the kernel, and what it answered.
    Kernel(&'static str, io::Error),
    /// The programs, or their tables; with the interface, if it is about one.
    Fast(Option<String>, fast::Error),
    /// What the tables of a graph did not take.
    Graph(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Kernel(doing, error) => write!(f, "{doing}: {error}"),
            Error::Fast(Some(port), error) => write!(f, "{port}: {error}"),
            Error::Fast(None, error) => error.fmt(f),
            Error::Graph(error) => write!(f, "the graph's routes are not the kernel's any more: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<fast::Error> for Error {
    fn from(error: fast::Error) -> Error {
        Error::Fast(None, error)
    }
}

/// Adopted interfaces. When it is dropped, or its process ends however that may be, the kernel forwards alone again.
pub struct Session {
    ports: Vec<Port>,
    driver: Driver,
    accelerator: Accelerator,
    graph: Option<Graph>,
    keeper: Keeper,
    watch: Watch,
    guards: Vec<Guard>,
    deaf: BTreeSet<u32>,
    gone: BTreeSet<u32>,
    /// The numbers of the ports among those that have counters, also of those that are gone.
    numbers: BTreeMap<u32, u32>,
    refreshed: Instant,
    /// From the first turn on.
    heartbeat: Option<Heartbeat>,
    pace: Pace,
    is_doubtful: bool,
}

/// What a turn found.
#[derive(Debug, Default)]
pub struct News {
    /// Whether other guards keep traffic than before, or other ports are deaf or gone.
    pub guards: bool,
    /// Whether all of the kernel's tables have been looked at once more.
    pub everything: bool,
}

impl Session {
    /// Adopts interfaces, each by the mode that is chosen for it. From its return on packets are forwarded.
    /// Where there is a graph, that is told all that the programs are, and before them.
    pub fn open(ports: &[(Port, Mode)], graph: Option<Graph>, now: Instant) -> Result<Session, Error> {
        let kernel = |doing| move |error| Error::Kernel(doing, error);
        let modes = ports;
        let own = |mode: &Mode| if mode.is_tc() { Own::Tc } else { Own::Xdp };
        let of_ours = |(port, mode): &(Port, Mode)| Port { own: Some(own(mode)), ..port.clone() };
        let ports: Vec<Port> = ports.iter().map(of_ours).collect();
        let mut session = Session {
            driver: Driver::open().map_err(kernel("hearing of changes"))?,
            accelerator: Accelerator::new()?,
            graph,
            keeper: Keeper::open().map_err(kernel("opening a socket for neighbors"))?,
            watch: Watch::open(&ports).map_err(kernel("watching filters and settings"))?,
            guards: Vec::new(),
            deaf: BTreeSet::new(),
            gone: BTreeSet::new(),
            numbers: BTreeMap::new(),
            refreshed: now,
            heartbeat: None,
            pace: Pace::default(),
            is_doubtful: false,
            ports,
        };
        for (port, mode) in modes {
            let adopted = session.accelerator.adopt(port.index, *mode);
            adopted.map_err(|error| Error::Fast(Some(port.name.clone()), error))?;
        }
        session.look_at_guards();
        session.follow_balancing();
        let loaded = match &mut session.graph {
            Some(graph) => session.driver.load(now, &mut Both(graph, &mut session.accelerator)),
            None => session.driver.load(now, &mut session.accelerator),
        };
        loaded.map_err(kernel("reading routes and neighbors"))?;
        session.settle()?;
        session.numbers = session.accelerator.ports().collect();
        session.accelerator.lease().renew().map_err(kernel("renewing the lease of its programs"))?;
        Ok(session)
    }

    /// Does what is to be done, and says until when there is nothing more, unless one of [`files`](Self::files) can be read.
    pub fn turn(&mut self, now: Instant) -> Result<(Duration, News), Error> {
        let mut news = News::default();
        let is_time = now.saturating_duration_since(self.refreshed) >= REFRESH;
        let is_doubtful = std::mem::take(&mut self.is_doubtful);
        if self.watch.take() || is_doubtful || is_time && self.find_deaf() != self.deaf {
            news.guards = self.look_at_guards();
        }
        let (heard, looks, began) = (self.driver.changes(), self.driver.looks(), Instant::now());
        let turn = match &mut self.graph {
            Some(graph) => self.driver.turn(now, &mut Both(graph, &mut self.accelerator)),
            None => self.driver.turn(now, &mut self.accelerator),
        };
        let turn = turn.map_err(|error| Error::Kernel("following the kernel", error))?;
        self.settle()?;
        if self.driver.changes() != heard {
            self.pace.add(began.elapsed());
        }
        news.everything = self.driver.looks() != looks;
        if is_time {
            self.refreshed = now;
            self.follow_balancing();
            let mirror = self.driver.mirror();
            let used = self.accelerator.take_used().into_iter();
            let told = self.keeper.used(used.filter(|(link, address)| !mirror.is_given(*link, *address)));
            told.map_err(|error| Error::Kernel("refreshing neighbors", error))?;
        }
        self.beat(turn).map_err(|error| Error::Kernel("renewing the lease of its programs", error))?;
        let wait = match turn {
            Turn::Again => Duration::ZERO,
            Turn::Sleep(wait) => wait.min(REFRESH),
        };
        Ok((wait, news))
    }

    /// Waits until a turn is due, or `other` can be read, which it says.
    pub fn wait(&self, time: Duration, other: BorrowedFd<'_>) -> io::Result<bool> {
        let mut files = vec![PollFd::from_borrowed_fd(other, PollFlags::IN)];
        files.extend(self.files().map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)));
        let time = time.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut files, Some(&time)) {
            Ok(_) => Ok(!files[0].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// What can be read when a turn is due before its time.
    pub fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watch.files().chain([self.driver.as_fd()])
    }

    /// What keeps traffic with the kernel.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The adopted interfaces whose drivers don't send what programs redirect to them: what leaves there is the kernel's.
    pub fn deaf(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(|port| self.deaf.contains(&port.index))
    }

    /// The adopted interfaces that there are no more.
    pub fn gone(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(|port| self.gone.contains(&port.index))
    }

    /// What was counted of an adopted interface, also of one that is gone.
    pub fn counted(&self, port: &Port) -> Option<PortCounters> {
        let number = self.numbers.get(&port.index)?;
        self.accelerator.counters().ports.into_iter().nth(*number as usize)
    }

    /// The adopted interfaces.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// How long it took to follow changes.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Who forwards.
    pub fn accelerator(&self) -> &Accelerator {
        &self.accelerator
    }

    /// The same, to have it copy frames.
    pub fn accelerator_mut(&mut self) -> &mut Accelerator {
        &mut self.accelerator
    }

    /// The kernel's tables.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Looks at all of the kernel's tables, and at all guards, as soon as may be.
    pub fn doubt(&mut self) {
        self.driver.doubt();
        self.is_doubtful = true;
    }

    /// Reads the guards and has the accelerator heed them; says whether they are others than before.
    fn look_at_guards(&mut self) -> bool {
        // Where VLANs can't be read, nothing about interfaces can, which keeps everything.
        let ports = guard::with_vlans(&self.ports).unwrap_or_else(|_| self.ports.clone());
        let there = |port: &Port| ports.iter().find(|there| there.index == port.index);
        let had_gone = self.gone.len();
        // For good: one that comes back is another, though it may have the number and the name.
        self.gone.extend(self.ports.iter().filter(|port| there(port).is_none()).map(|port| port.index));
        let has_gone = self.gone.len() != had_gone;
        // One may have been renamed, and chains and settings go by names.
        self.ports.iter_mut().for_each(|port| *port = there(port).unwrap_or(port).clone());
        self.watch.set_ports(&ports);
        let mut guards = guard::survey(&ports);
        if !self.is_by_xdp() {
            guards.retain(|guard| !guard.is_met_by_tc(&ports));
        }
        guards.sort();
        let deaf = self.find_deaf();
        for port in &ports {
            for family in [Family::V4, Family::V6] {
                let from = guards.iter().any(|guard| guard.keeps_from(port, family));
                let is_deaf = deaf.contains(&port.vlan_on.unwrap_or(port.index));
                let to = match guards.iter().any(|guard| guard.keeps_to(port, family)) {
                    true => Some(Withheld::Policy),
                    false => is_deaf.then_some(Withheld::Deaf),
                };
                self.accelerator.withhold(family, port.index, from, to);
            }
        }
        let is_news = has_gone || guards != self.guards || deaf != self.deaf;
        (self.guards, self.deaf) = (guards, deaf);
        is_news
    }

    /// Lets programs forward on, by a thread which the first turn starts: who opens a session may give up rights before, which
    /// threads keep.
    fn beat(&mut self, turn: Turn) -> io::Result<()> {
        match &self.heartbeat {
            Some(heartbeat) => heartbeat.beat(matches!(turn, Turn::Sleep(_))),
            None => {
                self.heartbeat = Some(Heartbeat::start(self.accelerator.lease().clone())?);
                Ok(())
            }
        }
    }

    /// Chooses among next hops by what the kernel is set to choose by.
    fn follow_balancing(&mut self) {
        for family in [Family::V4, Family::V6] {
            self.accelerator.balance_by_ports(family, guard::balances_by_ports(family));
        }
    }

    /// The ports whose drivers don't send what programs redirect to them.
    fn find_deaf(&self) -> BTreeSet<u32> {
        // What a program of tc sends goes the way of all packets.
        let is_by_xdp = self.is_by_xdp();
        let sends = |port: &&Port| match xdp_features(port.index) {
            Ok(features) => features.sends_redirected,
            // A kernel that can't be asked: a driver that runs programs usually sends, too.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        let here = self.ports.iter().filter(|port| !self.gone.contains(&port.index));
        here.filter(|port| is_by_xdp && !sends(port)).map(|port| port.index).collect()
    }

    fn is_by_xdp(&self) -> bool {
        self.ports.iter().any(|port| self.accelerator.mode(port.index).is_some_and(|mode| !mode.is_tc()))
    }

    fn settle(&mut self) -> Result<(), Error> {
        if let Some(fault) = self.graph.as_ref().and_then(Graph::fault) {
            return Err(Error::Graph(fault.to_string()));
        }
        let own = self.driver.mirror().addresses().map(|own| own.address);
        self.accelerator.set_own(own);
        self.accelerator.demand(self.driver.mirror().reverse_paths());
        Ok(self.accelerator.settle()?)
    }
}
