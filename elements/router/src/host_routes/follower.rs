//! The thread that synchronizes the host's routes with a router's tables. No packet waits for it.
//!
//! It reads the tables' change counters ten times a second, and the routes only after a change. The host's
//! routes are read from the kernel at the start and whenever its interfaces or addresses have changed, since
//! the kernel then removes routes; otherwise they are known.
use super::wanted::{HostHop, MOST_PREFIXES, Reach, Wanted};
use crate::log_lines::LogLines;
use artery_device::{HostRouteChange, HostRoutes, Interface, InterfaceMonitor, RouteByGateway};
use artery_forward::shared::SharedRouter;
use artery_l3::PortId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd as _;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How often the change counters are read.
const INTERVAL: Duration = Duration::from_millis(100);
/// What the kernel wants an interface to carry that has IPv6 (RFC 8200 section 5), in bytes.
const LEAST_IPV6_MTU: u32 = 1280;

/// Keeps the routes by interfaces of the host. Dropping the last of these handles removes the routes.
pub(super) struct HostRouteFollower(Arc<Shared>);

/// Interfaces of the host by which it reaches a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Devices {
    /// One for all ports.
    One(String),
    /// Those of ports, each with the name of its port.
    Ports(Vec<(String, String)>),
}

/// Followers by interfaces. They outlive graphs, so that no route is missing while one replaces another.
#[derive(Default)]
pub(super) struct HostRouteFollowers(Mutex<HashMap<String, Weak<HostRouteFollower>>>);

/// What the thread shares with elements.
struct Shared {
    /// The router that is followed, and the interfaces by which the host reaches it.
    followed: Mutex<Option<(Weak<SharedRouter>, Devices)>>,
    status: Mutex<HostRouteStatus>,
    lines: LogLines,
    is_over: AtomicBool,
}

/// What the host has.
#[derive(Clone, Copy, Default)]
pub(super) struct HostRouteStatus {
    pub(super) routes: usize,
    pub(super) refused: usize,
    pub(super) has_defaults_only: bool,
}

impl HostRouteFollower {
    /// The follower of this name: the one that is there, or a new one.
    pub(super) fn open_follower(all: &HostRouteFollowers, name: &str) -> io::Result<Arc<HostRouteFollower>> {
        let mut followers = lock_mutex(&all.0);
        followers.retain(|_, follower| follower.strong_count() > 0);
        if let Some(follower) = followers.get(name).and_then(Weak::upgrade) {
            return Ok(follower);
        }
        let shared = Arc::new(Shared {
            followed: Mutex::default(),
            status: Mutex::default(),
            lines: LogLines::new()?,
            is_over: AtomicBool::new(false),
        });
        let follower = Follower::new(shared.clone())?;
        std::thread::Builder::new().name("host-routes".into()).spawn(move || follower.run_follower())?;
        let follower = Arc::new(HostRouteFollower(shared));
        followers.insert(name.to_string(), Arc::downgrade(&follower));
        Ok(follower)
    }

    /// Follows this router from now on, which the host reaches by these interfaces.
    pub(super) fn follow_router(&self, router: &Arc<SharedRouter>, devices: &Devices) {
        *lock_mutex(&self.0.followed) = Some((Arc::downgrade(router), devices.clone()));
    }

    pub(super) fn status(&self) -> HostRouteStatus {
        *lock_mutex(&self.0.status)
    }

    /// Lines for the log.
    pub(super) fn lines(&self) -> &LogLines {
        &self.0.lines
    }
}

impl Drop for HostRouteFollower {
    fn drop(&mut self) {
        self.0.is_over.store(true, Relaxed);
    }
}

struct Follower {
    shared: Arc<Shared>,
    news: [InterfaceMonitor; 2],
    hosts: Vec<Host>,
    /// What they are the interfaces of, and whether all are there.
    devices: Option<Devices>,
    is_complete: bool,
    /// What was read when: the router, by its address, and its tables' counts of changes.
    seen: Option<(usize, u64)>,
    version: Option<(usize, u64, u64)>,
    said: Option<String>,
    /// What the host refused the last time, as a line for the log.
    refusal: Option<String>,
    had_defaults_only: bool,
}

/// An interface of the host, and what it has.
struct Host {
    name: String,
    /// The port that it stands for; none for the one to the router.
    port: Option<PortId>,
    routes: HostRoutes,
    has: HashSet<RouteByGateway>,
    /// Routes that the host refused.
    refused: HashSet<RouteByGateway>,
    /// Whether its MTU is enough for the kernel to have IPv6 there.
    has_ipv6: bool,
    link_local: Vec<Ipv6Addr>,
}

impl Follower {
    fn new(shared: Arc<Shared>) -> io::Result<Follower> {
        let news = [InterfaceMonitor::of_links()?, InterfaceMonitor::of_addresses()?];
        let (hosts, devices, seen, version, said, refusal) = Default::default();
        let (is_complete, had_defaults_only) = (false, false);
        Ok(Follower {
            shared,
            news,
            hosts,
            devices,
            is_complete,
            seen,
            version,
            said,
            refusal,
            had_defaults_only,
        })
    }

    fn run_follower(mut self) {
        while !self.shared.is_over.load(Relaxed) {
            if let Err(error) = self.sync_routes() {
                self.is_complete = false;
                self.say_once(format!("the host's routes by {}: {error}", self.device_names()));
            }
            self.wait_for_news();
        }
        for host in &mut self.hosts {
            // The interface may have been removed with its routes.
            let _ = host.delete_unwanted(&Wanted::default());
        }
    }

    fn wait_for_news(&self) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: INTERVAL.subsec_nanos().into() };
        let mut files =
            self.news.each_ref().map(|news| PollFd::from_borrowed_fd(news.as_fd(), PollFlags::IN));
        // An interruption is harmless: it causes one extra check.
        let _ = poll(&mut files, Some(&timeout));
    }

    /// The interfaces, for messages.
    fn device_names(&self) -> String {
        match &self.devices {
            Some(Devices::One(name)) => name.clone(),
            _ => self.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(", "),
        }
    }

    /// Checks for changes, and applies them to the host.
    fn sync_routes(&mut self) -> io::Result<()> {
        // Both are emptied.
        if self.news.each_mut().map(InterfaceMonitor::has_changed) != [false, false] {
            self.is_complete = false;
        }
        let followed = lock_mutex(&self.shared.followed).clone();
        let Some((router, devices)) =
            followed.and_then(|(router, devices)| Some((router.upgrade()?, devices)))
        else {
            return Ok(());
        };
        if self.devices.as_ref() != Some(&devices) {
            (self.devices, self.is_complete) = (Some(devices.clone()), false);
        }
        let place = Arc::as_ptr(&router) as usize;
        if self.is_complete && self.seen == Some((place, router.change_count())) {
            return Ok(());
        }
        let version = {
            let tables = router.lock_tables();
            // Holding the tables counts as a change.
            self.seen = Some((place, router.change_count() + 1));
            (place, tables.routes_version(), tables.ports_version())
        };
        if self.is_complete && self.version == Some(version) {
            return Ok(());
        }
        if !self.is_complete {
            // There is none before the elements that create it have run, and after it was deleted.
            self.open_hosts(&router, &devices)?;
            if self.hosts.is_empty() {
                return Ok(());
            }
        }
        let reach = if matches!(devices, Devices::One(_)) { Reach::Router } else { Reach::Ports };
        let wanted = Wanted::from_router(&router, reach);
        self.version = Some(version);
        self.install_routes(&wanted)
    }

    /// Reads what the interfaces have that are there and up.
    fn open_hosts(&mut self, router: &SharedRouter, devices: &Devices) -> io::Result<()> {
        let all = match devices {
            Devices::One(name) => vec![(name.clone(), None)],
            Devices::Ports(names) => {
                let tables = router.lock_tables();
                let with_port =
                    |(port, name): &(String, String)| Some((name.clone(), Some(tables.find_port(port)?)));
                names.iter().filter_map(with_port).collect()
            }
        };
        self.hosts.clear();
        for (name, port) in &all {
            if let Some(interface) = Interface::find(name).ok().filter(|interface| interface.up) {
                self.hosts.push(Host::open_host(interface, *port)?);
            }
        }
        self.is_complete = self.hosts.len() == all.len();
        Ok(())
    }

    /// Routes that are not wanted go first: one that moves to another interface has the same metric there.
    fn install_routes(&mut self, wanted: &Wanted) -> io::Result<()> {
        for host in &mut self.hosts {
            host.delete_unwanted(wanted)?;
        }
        let mut refused = None;
        for host in &mut self.hosts {
            let of_host = host.add_missing(wanted)?;
            refused = refused.or(of_host.map(|(to, error)| (host.name.clone(), to, error)));
        }
        *lock_mutex(&self.shared.status) = HostRouteStatus {
            routes: self.hosts.iter().map(|host| host.has.len()).sum(),
            refused: self.hosts.iter().map(|host| host.refused.len()).sum(),
            has_defaults_only: wanted.has_defaults_only,
        };
        let refusal = refused.map(|(device, (address, len), error)| {
            format!("the host does not take the route {address}/{len} by {device}: {error}")
        });
        if refusal == self.refusal {
            refusal.into_iter().for_each(|line| self.say_once(line));
        } else {
            // Routes of an interface that is just being removed are in the way for a moment only, so this is
            // tried once more before it is said.
            self.is_complete &= refusal.is_none();
            self.refusal = refusal;
        }
        if wanted.has_defaults_only != self.had_defaults_only {
            self.had_defaults_only = wanted.has_defaults_only;
            let (device, many) =
                (self.device_names(), format!("the router has more than {MOST_PREFIXES} routes"));
            self.shared.lines.push_line(match wanted.has_defaults_only {
                true => format!("{many}: the host gets the default routes by {device} only"),
                false => format!("the host has each of the router's routes by {device} again"),
            });
        }
        Ok(())
    }

    /// Logs a line, unless it was the last one.
    fn say_once(&mut self, line: String) {
        if self.said.as_ref() != Some(&line) {
            self.shared.lines.push_line(line.clone());
            self.said = Some(line);
        }
    }
}

impl Host {
    /// Reads what an interface has of ours.
    fn open_host(interface: Interface, port: Option<PortId>) -> io::Result<Host> {
        let mut routes = HostRoutes::open(interface.index)?;
        let has = routes.read()?.into_iter().collect();
        let (refused, link_local) = Default::default();
        let has_ipv6 = interface.mtu >= LEAST_IPV6_MTU;
        Ok(Host { name: interface.name, port, routes, has, refused, has_ipv6, link_local })
    }

    /// Deletes unwanted routes. A route whose gateway changes is deleted, too: for IPv6 two with one metric
    /// would become one with two gateways.
    fn delete_unwanted(&mut self, wanted: &Wanted) -> io::Result<()> {
        let port = self.port;
        let is_wanted = |(to, gateway): &RouteByGateway| {
            wanted.routes.get(to) == Some(&HostHop { port, gateway: *gateway })
        };
        let unwanted: Vec<RouteByGateway> =
            self.has.iter().copied().filter(|route| !is_wanted(route)).collect();
        let changes: Vec<_> = unwanted.iter().map(|route| HostRouteChange::Delete(*route)).collect();
        // A route that can't be deleted is gone already.
        self.routes.change(&changes)?;
        unwanted.iter().for_each(|route| _ = self.has.remove(route));
        Ok(())
    }

    /// Adds missing routes; returns one that the kernel refused, if there is one.
    fn add_missing(&mut self, wanted: &Wanted) -> io::Result<Option<((std::net::IpAddr, u8), io::Error)>> {
        if self.port.is_none() && self.has_ipv6 && self.link_local != wanted.link_local {
            self.routes.set_link_local(&wanted.link_local)?;
            self.link_local.clone_from(&wanted.link_local);
        }
        let missing: Vec<RouteByGateway> =
            wanted.routes_by_port(self.port).filter(|route| !self.has.contains(route)).collect();
        let changes: Vec<_> = missing.iter().map(|route| HostRouteChange::Add(*route)).collect();
        let refused = self.routes.change(&changes)?;
        self.has.extend(&missing);
        self.refused.clear();
        let mut first = None;
        for (at, error) in refused {
            self.has.remove(&missing[at]);
            self.refused.insert(missing[at]);
            first.get_or_insert((missing[at].0, error));
        }
        Ok(first)
    }
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
