//! Adopted interfaces: the mirror, the accelerator and the blockers working together.
mod bridges;
mod claims;
mod dead_path;
mod error;
mod established;
mod explain;
mod news;
mod returned;
mod routes;
mod tunnels;
mod vrfs;

pub use error::Error;
pub use established::{Established, EstablishedOptions};
pub use explain::{ExplainedStep, Explanation};
pub use news::{DeadPath, SessionNews, Shortage};

use self::claims::PortClaims;
use crate::blockers::{self, Blocker, BlockerWatch, Bridging, OwnHook, Port};
use crate::bridges::BridgeFollower;
use crate::connections::{ConnectionStatus, ConnectionTracker};
use crate::delivery::{self, DeliveryWatch};
use crate::drivers::{DriverSurvey, MOST_MTU_OF_A_BUFFER};
use crate::fast::{Accelerator, Mode, PortCounters, Withheld};
use crate::graph::{Graph, SinkPair};
use crate::heartbeat::Heartbeat;
use crate::keeper::NeighborRefresher;
use crate::kernel::Family;
use crate::mirror::{MirrorDriver, PollOutcome};
use crate::pace::{Lag, TurnTimes};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the session reports to the kernel which neighbors are in use.
const REFRESH: Duration = Duration::from_secs(1);

/// How long what memory or descriptors were lacking for waits until it is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// How long memory and descriptors must have sufficed for a shortage to be over.
const CALM: Duration = Duration::from_secs(2);

/// The adopted interfaces. When the session is dropped, or its process ends in any way, the
/// kernel forwards alone again.
pub struct Session {
    ports: Vec<Port>,
    driver: MirrorDriver,
    accelerator: Accelerator,
    graph: Option<Graph>,
    keeper: NeighborRefresher,
    watch: BlockerWatch,
    /// If established connections are forwarded past rules.
    tracker: Option<ConnectionTracker>,
    established: Established,
    follows_existing: bool,
    /// Why connections are not followed though there are rules, until it is reported.
    unfollowed: Option<String>,
    /// Since when there are no rules that connections could be forwarded past, while these are followed.
    without_rules: Option<Instant>,
    /// If a bridge is adopted.
    bridges: Option<BridgeFollower>,
    /// Members of bridges that the kernel took no program for, and why.
    refused: Vec<(Port, String)>,
    /// Tunnels whose header the kernel takes off, since programs have no room to look them up.
    unplaced_tunnels: BTreeSet<u32>,
    /// The ports and their VLANs when blockers were read last.
    named_ports: Vec<Port>,
    blockers: Vec<Blocker>,
    drivers: DriverSurvey,
    gone: BTreeSet<u32>,
    /// Interfaces with the names of those that are gone which could not be adopted.
    not_adopted: BTreeSet<u32>,
    deliveries: DeliveryWatch,
    /// When the delivery counters were last read.
    delivered: Instant,
    /// Those of which nothing left while all were by XDP, if these could not take another path.
    undelivered: BTreeSet<u32>,
    /// Whether blockers of XDP alone keep everything in the kernel.
    is_all_kept: bool,
    /// Whether no attempt to have all take another path has failed.
    can_leave_xdp: bool,
    /// Frames that were withheld from XDP at the last look, if that keeps everything with the kernel.
    withheld: Option<u64>,
    /// The numbers of the ports among those that have counters, also of those that are gone.
    numbers: BTreeMap<u32, u32>,
    refreshed: Instant,
    /// For how long it was to sleep, and did, since the last turn.
    slept: Cell<Duration>,
    /// From the first turn on.
    heartbeat: Option<Heartbeat>,
    pace: TurnTimes,
    lag: Lag,
    /// When memory or descriptors were lacking last, if that is not over.
    shortage: Option<Instant>,
    needs_resync: bool,
    /// Mode of all ports, except those of a graph.
    mode: Mode,
    broken_pair: Option<(String, String)>,
    /// Last, since programs leave their interfaces before these are given up.
    claims: PortClaims,
}

impl Session {
    /// Adopts interfaces, each by the mode that is chosen for it. From its return on packets are forwarded. A
    /// graph receives every change that the programs receive, and before them.
    pub fn open(ports: &[(Port, Mode)], graph: Option<Graph>, now: Instant) -> Result<Session, Error> {
        Session::open_with(ports, graph, EstablishedOptions::default(), now)
    }

    /// The same, and says what is done with established connections that rules keep in the kernel.
    pub fn open_with(
        ports: &[(Port, Mode)],
        graph: Option<Graph>,
        established: EstablishedOptions,
        now: Instant,
    ) -> Result<Session, Error> {
        let kernel = |doing| move |error| Error::Kernel(doing, error);
        let modes = ports;
        let own = |mode: &Mode| if mode.is_tc() { OwnHook::Tc } else { OwnHook::Xdp };
        // Bridges and tunnels have no programs of their own.
        let of_ours =
            |(port, mode): &(Port, Mode)| Port { own: port.has_program().then(|| own(mode)), ..port.clone() };
        let ports: Vec<Port> = ports.iter().map(of_ours).collect();
        let mut session = Session {
            driver: MirrorDriver::open().map_err(kernel("hearing of changes"))?,
            accelerator: Accelerator::new()?,
            graph,
            keeper: NeighborRefresher::open().map_err(kernel("opening a socket for neighbors"))?,
            watch: BlockerWatch::open(&ports).map_err(kernel("watching filters and settings"))?,
            tracker: None,
            established: established.which,
            follows_existing: established.existing,
            unfollowed: None,
            without_rules: None,
            bridges: None,
            refused: Vec::new(),
            unplaced_tunnels: BTreeSet::new(),
            named_ports: Vec::new(),
            blockers: Vec::new(),
            drivers: DriverSurvey::default(),
            gone: BTreeSet::new(),
            not_adopted: BTreeSet::new(),
            deliveries: DeliveryWatch::default(),
            delivered: now,
            undelivered: BTreeSet::new(),
            is_all_kept: false,
            can_leave_xdp: true,
            withheld: None,
            numbers: BTreeMap::new(),
            refreshed: now,
            slept: Cell::default(),
            heartbeat: None,
            pace: TurnTimes::default(),
            lag: Lag::default(),
            shortage: None,
            needs_resync: false,
            mode: modes.first().map_or(Mode::Tc, |(_, mode)| *mode),
            broken_pair: None,
            claims: PortClaims::default(),
            ports,
        };
        let has_rules = || blockers::survey(&session.ports).iter().any(blockers::is_passable);
        if session.established == Established::Forwarded || session.lacks_tracker() && has_rules() {
            session.begin_following(now);
        }
        session.follow_bridges()?;
        let has_none = |(port, _): &&(Port, Mode)| !port.has_program();
        let (without_programs, others): (Vec<_>, Vec<_>) = modes.iter().partition(has_none);
        for (port, mode) in without_programs.into_iter().chain(others) {
            let adopted = session.adopt_port(port, *mode);
            adopted.map_err(|error| Error::Fast(Some(port.name.clone()), error))?;
        }
        session.update_blockers();
        session.follow_balancing();
        let loaded = match &mut session.graph {
            Some(graph) => session.driver.load(now, &mut SinkPair(graph, &mut session.accelerator)),
            None => session.driver.load(now, &mut session.accelerator),
        };
        loaded.map_err(kernel("reading routes and neighbors"))?;
        session.follow_redirects();
        session.poll_bridges(now)?;
        session.follow_tunnels()?;
        session.complete_updates()?;
        session.numbers = session.accelerator.ports().collect();
        session.follow_ports();
        session.broken_pair = session.find_broken_pair();
        session.accelerator.lease().renew().map_err(kernel("renewing the lease of its programs"))?;
        Ok(session)
    }

    /// Does the pending work. Returns how long nothing more is due unless one
    /// of [`files`](Self::files) becomes readable.
    ///
    /// What can't be done for want of memory or descriptors is tried again; the kernel forwards
    /// meanwhile where that matters.
    pub fn poll(&mut self, now: Instant) -> Result<(Duration, SessionNews), Error> {
        let error = match self.try_turn(now) {
            Ok((wait, mut news)) => {
                if self.shortage.is_some_and(|last| now.saturating_duration_since(last) >= CALM) {
                    self.shortage = None;
                    news.shortage = Some(Shortage::Over);
                    news.guards = true;
                }
                return Ok((wait, news));
            }
            Err(error) => error,
        };
        if !error.is_shortage() {
            return Err(error);
        }
        let is_new = self.shortage.replace(now).is_none();
        let shortage = is_new.then(|| Shortage::Of(error.to_string()));
        Ok((RETRY, SessionNews { shortage, ..SessionNews::default() }))
    }

    fn try_turn(&mut self, now: Instant) -> Result<(Duration, SessionNews), Error> {
        self.start_heartbeat().map_err(|error| Error::Kernel("renewing the lease of its programs", error))?;
        let mut news = SessionNews::default();
        // Before blockers, which take longer to read.
        let has_more = self.poll_bridges(now)?;
        let is_time = now.saturating_duration_since(self.refreshed) >= REFRESH;
        let is_doubtful = std::mem::take(&mut self.needs_resync);
        let is_unread = self.blockers.iter().any(|guard| guard.kind == blockers::BlockerKind::Unreadable);
        if self.watch.has_changed()
            || is_doubtful
            || is_time && (is_unread || self.has_new_vrf_blockers() || self.survey_drivers() != self.drivers)
        {
            news.guards = self.update_blockers();
        }
        let (heard, looks, began) = (self.driver.changes(), self.driver.resyncs(), Instant::now());
        let turn = match &mut self.graph {
            Some(graph) => self.driver.poll(now, &mut SinkPair(graph, &mut self.accelerator)),
            None => self.driver.poll(now, &mut self.accelerator),
        };
        let turn = turn.map_err(|error| Error::Kernel("following the kernel", error))?;
        news.lags = self.follow_lag();
        // Members may have come with what was read meanwhile.
        let has_more = self.poll_bridges(now)? || has_more;
        if is_time || self.driver.changes() != heard || self.driver.resyncs() != looks {
            self.follow_tunnels()?;
        }
        self.report_progress();
        self.complete_updates()?;
        self.report_progress();
        let tracked = self.follow_connections(now)?;
        if self.driver.changes() != heard {
            self.tracker.iter_mut().for_each(|tracker| tracker.note_routes(now));
            self.pace.record_turn(began.elapsed());
        }
        news.everything = self.driver.resyncs() != looks;
        self.claims.renew();
        news.returned = self.adopt_returned(now);
        if now.saturating_duration_since(self.delivered) >= delivery::INTERVAL {
            self.delivered = now;
            news.left_xdp = self.leave_dead_path(now);
        }
        news.unfollowed = self.unfollowed.take();
        news.late_connections = self.suspend_late_connections();
        news.uncompared = self.tracker.as_mut().and_then(ConnectionTracker::drain_failure);
        news.guards |= !news.returned.is_empty() || news.left_xdp.is_some();
        if is_time {
            self.refreshed = now;
            self.end_following(now);
            self.follow_balancing();
            self.follow_redirects();
            self.follow_ports();
            let mirror = self.driver.mirror();
            let used = self.accelerator.drain_used().into_iter();
            let told =
                self.keeper.report_used(used.filter(|(link, address)| !mirror.is_given(*link, *address)));
            told.map_err(|error| Error::Kernel("refreshing neighbors", error))?;
        }
        let beat = self
            .heartbeat
            .as_ref()
            .map_or(Ok(()), |heartbeat| heartbeat.report_turn(turn != PollOutcome::Again));
        beat.map_err(|error| Error::Kernel("renewing the lease of its programs", error))?;
        let wait = match turn {
            PollOutcome::Again => Duration::ZERO,
            _ if has_more => Duration::ZERO,
            PollOutcome::Sleep(wait) if self.is_by_xdp() => wait.min(delivery::INTERVAL),
            PollOutcome::Sleep(wait) => wait.min(REFRESH),
        };
        Ok((wait.min(tracked), news))
    }

    /// Follows connections, if any are to be forwarded past rules. Returns how long nothing is due.
    fn follow_connections(&mut self, now: Instant) -> Result<Duration, Error> {
        let slept = self.slept.take();
        let Some(tracker) = &mut self.tracker else { return Ok(Duration::MAX) };
        let wait = tracker.poll(now, slept, &mut self.accelerator);
        wait.map_err(|error| Error::Kernel("following connections", error))
    }

    /// Numbers of the connections, if any are to be forwarded past rules.
    pub fn connections(&self) -> Option<ConnectionStatus> {
        self.tracker.as_ref().map(ConnectionTracker::status)
    }

    /// Waits until a turn is due, or `other` can be read, which it says.
    pub fn wait(&self, time: Duration, other: BorrowedFd<'_>) -> io::Result<bool> {
        let mut files = vec![PollFd::from_borrowed_fd(other, PollFlags::IN)];
        files.extend(self.files().map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)));
        let (began, limit) = (Instant::now(), time.try_into().map_err(|_| io::ErrorKind::InvalidInput)?);
        let polled = poll(&mut files, Some(&limit));
        // Beyond its time it was not woken.
        self.slept.set(self.slept.get() + began.elapsed().min(time));
        match polled {
            Ok(_) => Ok(!files[0].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// What can be read when a turn is due before its time.
    pub fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watch
            .files()
            .chain([self.driver.as_fd()])
            .chain(self.tracker.iter().map(AsFd::as_fd))
            .chain(self.accelerator.candidates_file())
            .chain(self.bridges.iter().map(AsFd::as_fd))
    }

    /// What keeps traffic with the kernel.
    pub fn blockers(&self) -> &[Blocker] {
        &self.blockers
    }

    /// The adopted interfaces whose drivers don't send what programs redirect to them: what leaves
    /// there is the kernel's.
    pub fn without_redirect(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(|port| self.drivers.without_redirect.contains(&port.index))
    }

    /// The adopted interfaces whose frames may be too long for one buffer, and whose drivers don't send such
    /// frames that programs redirect to them: those that would leave there are the kernel's.
    pub fn without_multi_buffer(&self) -> impl Iterator<Item = &Port> {
        let mirror = self.driver.mirror();
        let is_long = |port: &Port| {
            mirror.links().any(|link| link.index == port.index && link.mtu > MOST_MTU_OF_A_BUFFER)
        };
        let keeps = |port: &&Port| {
            self.is_by_xdp()
                && port.has_program()
                && !self.gone.contains(&port.index)
                && !self.drivers.without_redirect.contains(&port.index)
                && !self.drivers.multi_buffer.contains(&port.vlan_on.unwrap_or(port.index))
        };
        self.ports.iter().filter(keeps).filter(move |port| is_long(port))
    }

    /// The adopted interfaces that there are no more.
    pub fn gone(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(|port| self.gone.contains(&port.index))
    }

    /// Two adopted interfaces between which no frame was forwarded by XDP when that was tried at the start:
    /// one that it came by, and the one whose driver did not take it.
    pub fn broken_pair(&self) -> Option<(&str, &str)> {
        self.broken_pair.as_ref().map(|(from, to)| (from.as_str(), to.as_str()))
    }

    /// Whether an interface that comes back with the name of one that is gone is adopted.
    /// A graph's ports are not.
    pub fn adopts_returned(&self) -> bool {
        self.graph.is_none()
    }

    /// What was counted of an adopted interface, also of one that is gone.
    pub fn port_counters(&self, port: &Port) -> Option<PortCounters> {
        let number = self.numbers.get(&port.index)?;
        Some(self.accelerator.port_counters(*number))
    }

    /// The adopted interfaces, as the kernel has them now.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// How long it took to follow changes.
    pub fn pace(&self) -> &TurnTimes {
        &self.pace
    }

    /// How late changes of the kernel are followed.
    pub fn lag(&self) -> Lag {
        self.lag
    }

    /// The programs and their tables.
    pub fn accelerator(&self) -> &Accelerator {
        &self.accelerator
    }

    /// The same, to have it copy frames.
    pub fn accelerator_mut(&mut self) -> &mut Accelerator {
        &mut self.accelerator
    }

    /// The mirror of the kernel's tables.
    pub fn driver(&self) -> &MirrorDriver {
        &self.driver
    }

    /// Requests that all tables of the kernel, and all blockers, are read again soon.
    pub fn request_resync(&mut self) {
        self.driver.request_resync();
        self.needs_resync = true;
    }

    /// Follows how late changes of the kernel are read. Says so when that becomes too late, or no longer is.
    fn follow_lag(&mut self) -> Option<bool> {
        let is_new = self.lag.follow(self.driver.lag(Instant::now()).unwrap_or_default());
        is_new.then_some(self.lag.is_too_long)
    }

    /// Reads the blockers and applies them to the accelerator; returns whether they differ from before.
    fn update_blockers(&mut self) -> bool {
        self.follow_members();
        // Where VLANs can't be read, nothing about interfaces can, which keeps everything.
        let ports = blockers::with_vlans(&self.ports).unwrap_or_else(|_| self.ports.clone());
        let there = |port: &Port| ports.iter().find(|there| there.index == port.index);
        let had_gone = self.gone.len();
        // One that comes back is another, though it may have the number and the name; see `adopt_returned`.
        self.gone.extend(self.ports.iter().filter(|port| there(port).is_none()).map(|port| port.index));
        let has_gone = self.gone.len() != had_gone;
        // One may have been renamed, and chains and settings go by names.
        self.ports.iter_mut().for_each(|port| *port = there(port).unwrap_or(port).clone());
        self.watch.set_ports(&ports);
        let mut guards = blockers::survey_in_steps(&ports, || self.report_progress());
        if !self.is_by_xdp() {
            guards.retain(|guard| !guard.is_met_by_tc(&ports));
        }
        guards.extend(self.refused.iter().map(|(port, why)| blockers::refused_member(port, why)));
        if guards.iter().any(blockers::is_passable) && self.lacks_tracker() {
            self.begin_following(Instant::now());
        }
        let (policy, consent) = self.pass_established(&mut guards);
        guards.extend(self.find_vrf_blockers(&ports, &consent));
        guards.extend(self.find_tunnel_blockers(&ports));
        guards.sort();
        let drivers = self.survey_drivers();
        let deaf = &drivers.without_redirect;
        self.is_all_kept = self.is_by_xdp() && dead_path::blocks_all(&guards, &ports, deaf);
        self.accelerator.set_multi_buffer(drivers.multi_buffer.clone());
        // Families are never forwarded as a whole while rules are passed.
        for (family, consent) in [Family::V4, Family::V6].into_iter().zip(consent) {
            if consent.is_given {
                self.accelerator.set_established(family, true);
            }
        }
        self.withhold_members(&ports, &guards, deaf);
        self.withhold_tunnels(&ports, &guards);
        let is_routed = |port: &&Port| !matches!(port.bridging, Bridging::Member(_)) && !port.is_tunnel();
        for port in ports.iter().filter(is_routed) {
            for family in [Family::V4, Family::V6] {
                let mut guards = guards.iter().filter(|guard| !guard.is_passed);
                let from = guards.clone().any(|guard| guard.blocks_from(port, family));
                let is_deaf = deaf.contains(&port.vlan_on.unwrap_or(port.index));
                let to = match guards.any(|guard| guard.blocks_to(port, family)) {
                    true => Some(Withheld::Policy),
                    false => is_deaf.then_some(Withheld::NoRedirect),
                };
                self.accelerator.set_withheld(family, port.index, from, to);
            }
        }
        for (family, consent) in [Family::V4, Family::V6].into_iter().zip(consent) {
            self.accelerator.set_established(family, consent.is_given);
        }
        self.named_ports = ports;
        self.follow_ports();
        if let Some(tracker) = &mut self.tracker {
            tracker.set_consent(consent, Arc::new(policy), &mut self.accelerator);
        }
        let is_news = has_gone || guards != self.blockers || drivers != self.drivers;
        (self.blockers, self.drivers) = (guards, drivers);
        is_news
    }

    /// Reports progress within a turn: what is done at once may take long on a slow machine.
    fn report_progress(&self) {
        self.heartbeat.iter().for_each(Heartbeat::report_progress);
    }

    /// Lets programs forward on, by a thread which the first turn starts: who opens a session may give up
    /// rights before, which threads keep.
    fn start_heartbeat(&mut self) -> io::Result<()> {
        if self.heartbeat.is_none() {
            self.heartbeat = Some(Heartbeat::start(self.accelerator.lease().clone())?);
        }
        Ok(())
    }

    /// Lets IPv4 leave by the interface that it came by where the kernel sends no redirects for it.
    fn follow_redirects(&mut self) {
        for link in self.driver.mirror().links() {
            if self.accelerator.port(link.index).is_some() {
                self.accelerator.set_returning(link.index, !blockers::sends_redirects(&link.name));
            }
        }
    }

    /// Chooses among next hops by what the kernel is set to choose by.
    fn follow_balancing(&mut self) {
        for family in [Family::V4, Family::V6] {
            self.accelerator.balance_by_ports(family, blockers::balances_by_ports(family));
        }
    }

    /// What the drivers of the ports send of what XDP redirects to them.
    fn survey_drivers(&self) -> DriverSurvey {
        if !self.is_by_xdp() {
            return DriverSurvey::default();
        }
        let is_here = |port: &&Port| port.has_program() && !self.gone.contains(&port.index);
        let here = self.ports.iter().filter(is_here);
        DriverSurvey::of(here.map(|port| port.index), &self.undelivered)
    }

    /// Whether a port is adopted by XDP.
    pub fn is_by_xdp(&self) -> bool {
        self.ports.iter().any(|port| self.accelerator.mode(port.index).is_some_and(|mode| !mode.is_tc()))
    }

    fn complete_updates(&mut self) -> Result<(), Error> {
        if let Some(fault) = self.graph.as_ref().and_then(Graph::fault) {
            return Err(Error::Graph(fault.to_string()));
        }
        let own = self.driver.mirror().addresses().map(|own| (own.address, own.link));
        self.accelerator.set_own(own);
        self.accelerator.set_reverse_paths(self.driver.mirror().reverse_paths());
        Ok(self.accelerator.complete_updates()?)
    }
}
