//! The thread that keeps the host's routes in step with a router's tables. No packet waits for it.
//!
//! It looks at the tables' counts of changes ten times a second, and reads the routes only if there were
//! some. What the host has is read from the kernel at the start and whenever interfaces or addresses of the
//! host have changed, as the kernel takes routes along; otherwise it is known.
use super::wanted::{HostHop, MOST_PREFIXES, Reach, Wanted};
use crate::router::shared::SharedRouter;
use artery_device::{HostNews, HostRouteChange, HostRoutes, Interface, RouteByGateway};
use artery_table::PortId;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How often the tables are looked at.
const INTERVAL: Duration = Duration::from_millis(100);
/// Lines for the log that may wait for an element.
const MOST_LINES: usize = 16;

/// What keeps the routes by interfaces of the host; it ends with the last of these, and takes the routes
/// along.
pub(super) struct HostRouteFollower(Arc<Shared>);

/// Interfaces of the host by which it reaches a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Devices {
    /// One for all ports.
    One(String),
    /// Those of ports, each with the name of its port.
    Ports(Vec<(String, String)>),
}

/// Followers by what they are for. They outlive graphs, so that no route is missing while one takes
/// another's place.
#[derive(Default)]
pub(super) struct HostRouteFollowers(Mutex<HashMap<String, Weak<HostRouteFollower>>>);

/// What the thread shares with elements.
struct Shared {
    /// The router that is followed, and the interfaces by which the host reaches it.
    followed: Mutex<Option<(Weak<SharedRouter>, Devices)>>,
    status: Mutex<Status>,
    lines: Mutex<VecDeque<String>>,
    news: OwnedFd,
    is_over: AtomicBool,
}

/// What the host has.
#[derive(Clone, Copy, Default)]
pub(super) struct Status {
    pub(super) routes: usize,
    pub(super) refused: usize,
    pub(super) has_defaults_only: bool,
}

impl HostRouteFollower {
    /// The follower of this name: the one that is there, or a new one.
    pub(super) fn open(all: &HostRouteFollowers, name: &str) -> io::Result<Arc<HostRouteFollower>> {
        let mut followers = locked(&all.0);
        followers.retain(|_, follower| follower.strong_count() > 0);
        if let Some(follower) = followers.get(name).and_then(Weak::upgrade) {
            return Ok(follower);
        }
        let shared = Arc::new(Shared {
            followed: Mutex::default(),
            status: Mutex::default(),
            lines: Mutex::default(),
            news: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_over: AtomicBool::new(false),
        });
        let follower = Follower::new(shared.clone())?;
        std::thread::Builder::new().name("host-routes".into()).spawn(move || follower.run())?;
        let follower = Arc::new(HostRouteFollower(shared));
        followers.insert(name.to_string(), Arc::downgrade(&follower));
        Ok(follower)
    }

    /// Follows this router from now on, which the host reaches by these interfaces.
    pub(super) fn follow(&self, router: &Arc<SharedRouter>, devices: &Devices) {
        *locked(&self.0.followed) = Some((Arc::downgrade(router), devices.clone()));
    }

    pub(super) fn status(&self) -> Status {
        *locked(&self.0.status)
    }

    /// Readable when there are lines for the log.
    pub(super) fn news(&self) -> BorrowedFd<'_> {
        self.0.news.as_fd()
    }

    /// The lines for the log since the last call.
    pub(super) fn take_lines(&self) -> Vec<String> {
        let _ = rustix::io::read(&self.0.news, &mut [0; 8]);
        locked(&self.0.lines).drain(..).collect()
    }
}

impl Drop for HostRouteFollower {
    fn drop(&mut self) {
        self.0.is_over.store(true, Relaxed);
    }
}

impl Shared {
    fn say(&self, line: String) {
        let mut lines = locked(&self.lines);
        lines.push_back(line);
        if lines.len() > MOST_LINES {
            lines.pop_front();
        }
        drop(lines);
        // Full is as good: it is readable.
        let _ = rustix::io::write(&self.news, &1u64.to_ne_bytes());
    }
}

/// The thread.
struct Follower {
    shared: Arc<Shared>,
    news: [HostNews; 2],
    hosts: Vec<Host>,
    /// What they are the interfaces of, and whether all are there.
    devices: Option<Devices>,
    is_complete: bool,
    /// What was read when: the router, by its address, and its tables' counts of changes.
    seen: Option<(usize, u64)>,
    version: Option<(usize, u64, u64)>,
    said: Option<String>,
    had_defaults_only: bool,
}

/// An interface of the host, and what it has.
struct Host {
    name: String,
    /// The port that it stands for; none for the one to the router.
    port: Option<PortId>,
    routes: HostRoutes,
    has: HashSet<RouteByGateway>,
    /// Those that the host did not take.
    refused: HashSet<RouteByGateway>,
    link_local: Vec<Ipv6Addr>,
}

impl Follower {
    fn new(shared: Arc<Shared>) -> io::Result<Follower> {
        let news = [HostNews::of_links()?, HostNews::of_addresses()?];
        let (hosts, devices, seen, version, said) = Default::default();
        let (is_complete, had_defaults_only) = (false, false);
        Ok(Follower { shared, news, hosts, devices, is_complete, seen, version, said, had_defaults_only })
    }

    fn run(mut self) {
        while !self.shared.is_over.load(Relaxed) {
            if let Err(error) = self.step() {
                self.is_complete = false;
                self.say_once(format!("the host's routes by {}: {error}", self.names()));
            }
            self.wait();
        }
        for host in &mut self.hosts {
            // The interface may be gone with them.
            let _ = host.delete_unwanted(&Wanted::default());
        }
    }

    fn wait(&self) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: INTERVAL.subsec_nanos().into() };
        let mut files =
            self.news.each_ref().map(|news| PollFd::from_borrowed_fd(news.as_fd(), PollFlags::IN));
        // Interrupted is as good: it is looked once too often.
        let _ = poll(&mut files, Some(&timeout));
    }

    /// The interfaces, for messages.
    fn names(&self) -> String {
        match &self.devices {
            Some(Devices::One(name)) => name.clone(),
            _ => self.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(", "),
        }
    }

    /// Looks, and does what follows.
    fn step(&mut self) -> io::Result<()> {
        // Both are emptied.
        if self.news.each_mut().map(HostNews::take) != [false, false] {
            self.is_complete = false;
        }
        let followed = locked(&self.shared.followed).clone();
        let Some((router, devices)) =
            followed.and_then(|(router, devices)| Some((router.upgrade()?, devices)))
        else {
            return Ok(());
        };
        if self.devices.as_ref() != Some(&devices) {
            (self.devices, self.is_complete) = (Some(devices.clone()), false);
        }
        let place = Arc::as_ptr(&router) as usize;
        if self.is_complete && self.seen == Some((place, router.changes())) {
            return Ok(());
        }
        let version = {
            let tables = router.tables();
            // Holding the tables counts as a change.
            self.seen = Some((place, router.changes() + 1));
            (place, tables.routes_version(), tables.ports_version())
        };
        if self.is_complete && self.version == Some(version) {
            return Ok(());
        }
        if !self.is_complete {
            // Until the elements that make them have done so, and when they were deleted, there are none.
            self.open_hosts(&router, &devices)?;
            if self.hosts.is_empty() {
                return Ok(());
            }
        }
        let reach = if matches!(devices, Devices::One(_)) { Reach::Router } else { Reach::Ports };
        let wanted = Wanted::of(&router, reach);
        self.version = Some(version);
        self.put(&wanted)
    }

    /// Reads what the interfaces have that are there and up.
    fn open_hosts(&mut self, router: &SharedRouter, devices: &Devices) -> io::Result<()> {
        let all = match devices {
            Devices::One(name) => vec![(name.clone(), None)],
            Devices::Ports(names) => {
                let tables = router.tables();
                let with_port =
                    |(port, name): &(String, String)| Some((name.clone(), Some(tables.port(port)?)));
                names.iter().filter_map(with_port).collect()
            }
        };
        self.hosts.clear();
        for (name, port) in &all {
            if let Some(interface) = Interface::find(name).ok().filter(|interface| interface.up) {
                self.hosts.push(Host::open(interface, *port)?);
            }
        }
        self.is_complete = self.hosts.len() == all.len();
        Ok(())
    }

    /// Routes that are not wanted go first: one that moves to another interface has the same metric there.
    fn put(&mut self, wanted: &Wanted) -> io::Result<()> {
        for host in &mut self.hosts {
            host.delete_unwanted(wanted)?;
        }
        let mut refused = None;
        for host in &mut self.hosts {
            let of_host = host.add_missing(wanted)?;
            refused = refused.or(of_host.map(|(to, error)| (host.name.clone(), to, error)));
        }
        *locked(&self.shared.status) = Status {
            routes: self.hosts.iter().map(|host| host.has.len()).sum(),
            refused: self.hosts.iter().map(|host| host.refused.len()).sum(),
            has_defaults_only: wanted.has_defaults_only,
        };
        if let Some((device, (address, len), error)) = refused {
            self.say_once(format!("the host does not take the route {address}/{len} by {device}: {error}"));
        }
        if wanted.has_defaults_only != self.had_defaults_only {
            self.had_defaults_only = wanted.has_defaults_only;
            let (device, many) = (self.names(), format!("the router has more than {MOST_PREFIXES} routes"));
            self.shared.say(match wanted.has_defaults_only {
                true => format!("{many}: the host gets the default routes by {device} only"),
                false => format!("the host has each of the router's routes by {device} again"),
            });
        }
        Ok(())
    }

    /// Says something, unless it is what was said last.
    fn say_once(&mut self, line: String) {
        if self.said.as_ref() != Some(&line) {
            self.shared.say(line.clone());
            self.said = Some(line);
        }
    }
}

impl Host {
    /// Reads what an interface has of ours.
    fn open(interface: Interface, port: Option<PortId>) -> io::Result<Host> {
        let mut routes = HostRoutes::open(interface.index)?;
        let has = routes.read()?.into_iter().collect();
        let (refused, link_local) = Default::default();
        Ok(Host { name: interface.name, port, routes, has, refused, link_local })
    }

    /// Deletes what is not wanted. A route whose gateway changes is deleted, too: two of one metric
    /// would be one with two gateways for IPv6.
    fn delete_unwanted(&mut self, wanted: &Wanted) -> io::Result<()> {
        let port = self.port;
        let is_wanted = |(to, gateway): &RouteByGateway| {
            wanted.routes.get(to) == Some(&HostHop { port, gateway: *gateway })
        };
        let unwanted: Vec<RouteByGateway> =
            self.has.iter().copied().filter(|route| !is_wanted(route)).collect();
        let changes: Vec<_> = unwanted.iter().map(|route| HostRouteChange::Delete(*route)).collect();
        // Routes that can't be deleted are gone already.
        self.routes.change(&changes)?;
        unwanted.iter().for_each(|route| _ = self.has.remove(route));
        Ok(())
    }

    /// Adds what is missing; gives one of the routes that the kernel refused, if it did.
    fn add_missing(&mut self, wanted: &Wanted) -> io::Result<Option<((std::net::IpAddr, u8), io::Error)>> {
        if self.port.is_none() && self.link_local != wanted.link_local {
            self.routes.set_link_local(&wanted.link_local)?;
            self.link_local.clone_from(&wanted.link_local);
        }
        let missing: Vec<RouteByGateway> =
            wanted.routes(self.port).filter(|route| !self.has.contains(route)).collect();
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
