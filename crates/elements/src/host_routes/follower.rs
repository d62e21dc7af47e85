//! The thread that keeps the host's routes in step with a router's tables. No packet waits for it.
//!
//! It looks at the tables' counts of changes ten times a second, and reads the routes only if there were
//! some. What the host has is read from the kernel at the start and whenever interfaces or addresses of the
//! host have changed, as the kernel takes routes along; otherwise it is known.
use super::wanted::{MOST_PREFIXES, Wanted};
use crate::router::shared::SharedRouter;
use artery_device::{HostNews, HostRouteChange, HostRoutes, Interface, RouteByGateway};
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

/// What keeps the routes by one interface of the host; it ends with the last of these, and takes the routes
/// along.
pub(super) struct HostRouteFollower(Arc<Shared>);

/// Followers by the host's interfaces. They outlive graphs, so that no route is missing while one takes
/// another's place.
#[derive(Default)]
pub(super) struct HostRouteFollowers(Mutex<HashMap<String, Weak<HostRouteFollower>>>);

/// What the thread shares with elements.
struct Shared {
    device: String,
    /// The router that is followed.
    router: Mutex<Weak<SharedRouter>>,
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
    /// The follower for an interface: the one that is there, or a new one.
    pub(super) fn open(all: &HostRouteFollowers, device: &str) -> io::Result<Arc<HostRouteFollower>> {
        let mut followers = locked(&all.0);
        followers.retain(|_, follower| follower.strong_count() > 0);
        if let Some(follower) = followers.get(device).and_then(Weak::upgrade) {
            return Ok(follower);
        }
        let shared = Arc::new(Shared {
            device: device.to_string(),
            router: Mutex::default(),
            status: Mutex::default(),
            lines: Mutex::default(),
            news: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_over: AtomicBool::new(false),
        });
        let follower = Follower::new(shared.clone())?;
        std::thread::Builder::new().name("host-routes".into()).spawn(move || follower.run())?;
        let follower = Arc::new(HostRouteFollower(shared));
        followers.insert(device.to_string(), Arc::downgrade(&follower));
        Ok(follower)
    }

    /// Follows this router from now on.
    pub(super) fn follow(&self, router: &Arc<SharedRouter>) {
        *locked(&self.0.router) = Arc::downgrade(router);
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
    host: Option<Host>,
    /// What was read when: the router, by its address, and its tables' counts of changes.
    seen: Option<(usize, u64)>,
    version: Option<(usize, u64, u64)>,
    said: Option<String>,
    had_defaults_only: bool,
}

/// The host's interface, and what it has.
struct Host {
    routes: HostRoutes,
    has: HashSet<RouteByGateway>,
    /// Those that the host did not take.
    refused: HashSet<RouteByGateway>,
    link_local: Vec<Ipv6Addr>,
}

impl Follower {
    fn new(shared: Arc<Shared>) -> io::Result<Follower> {
        let news = [HostNews::of_links()?, HostNews::of_addresses()?];
        let (host, seen, version, said) = Default::default();
        Ok(Follower { shared, news, host, seen, version, said, had_defaults_only: false })
    }

    fn run(mut self) {
        while !self.shared.is_over.load(Relaxed) {
            if let Err(error) = self.step() {
                self.host = None;
                self.say_once(format!("the host's routes by {}: {error}", self.shared.device));
            }
            self.wait();
        }
        if let Some(host) = &mut self.host {
            // The interface may be gone with them.
            let _ = host.put(&Wanted::default());
        }
    }

    fn wait(&self) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: INTERVAL.subsec_nanos().into() };
        let mut files =
            self.news.each_ref().map(|news| PollFd::from_borrowed_fd(news.as_fd(), PollFlags::IN));
        // Interrupted is as good: it is looked once too often.
        let _ = poll(&mut files, Some(&timeout));
    }

    /// Looks, and does what follows.
    fn step(&mut self) -> io::Result<()> {
        // Both are emptied.
        if self.news.each_mut().map(HostNews::take) != [false, false] {
            self.host = None;
        }
        let Some(router) = locked(&self.shared.router).upgrade() else { return Ok(()) };
        let place = Arc::as_ptr(&router) as usize;
        if self.host.is_some() && self.seen == Some((place, router.changes())) {
            return Ok(());
        }
        let version = {
            let tables = router.tables();
            // Holding the tables counts as a change.
            self.seen = Some((place, router.changes() + 1));
            (place, tables.routes_version(), tables.ports_version())
        };
        if self.host.is_some() && self.version == Some(version) {
            return Ok(());
        }
        if self.host.is_none() {
            // Until the element that makes it has done so, and when it was deleted, there is none.
            let Ok(interface) = Interface::find(&self.shared.device) else { return Ok(()) };
            if !interface.up {
                return Ok(());
            }
            self.host = Some(Host::open(interface.index)?);
        }
        let wanted = Wanted::of(&router);
        self.version = Some(version);
        self.put(&wanted)
    }

    fn put(&mut self, wanted: &Wanted) -> io::Result<()> {
        let Some(host) = &mut self.host else { return Ok(()) };
        let refused = host.put(wanted)?;
        *locked(&self.shared.status) = Status {
            routes: host.has.len(),
            refused: host.refused.len(),
            has_defaults_only: wanted.has_defaults_only,
        };
        let device = self.shared.device.clone();
        if let Some(((address, len), error)) = refused {
            self.say_once(format!("the host does not take the route {address}/{len} by {device}: {error}"));
        }
        if wanted.has_defaults_only != self.had_defaults_only {
            self.had_defaults_only = wanted.has_defaults_only;
            let many = format!("the router has more than {MOST_PREFIXES} routes");
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
    /// Reads what the interface has of ours.
    fn open(index: u32) -> io::Result<Host> {
        let mut routes = HostRoutes::open(index)?;
        let has = routes.read()?.into_iter().collect();
        Ok(Host { routes, has, refused: HashSet::new(), link_local: Vec::new() })
    }

    /// Makes what is wanted of what there is; gives one of the routes that the kernel refused, if it did.
    fn put(&mut self, wanted: &Wanted) -> io::Result<Option<((std::net::IpAddr, u8), io::Error)>> {
        if self.link_local != wanted.link_local {
            self.routes.set_link_local(&wanted.link_local)?;
            self.link_local.clone_from(&wanted.link_local);
        }
        let is_wanted = |(to, gateway): &RouteByGateway| wanted.routes.get(to) == Some(gateway);
        let unwanted: Vec<RouteByGateway> =
            self.has.iter().copied().filter(|route| !is_wanted(route)).collect();
        // A route whose gateway changes is deleted first: two of one metric would be one with two gateways
        // for IPv6.
        let changes: Vec<HostRouteChange> = (unwanted.iter().map(|route| HostRouteChange::Delete(*route)))
            .chain(wanted.routes().filter(|route| !self.has.contains(route)).map(HostRouteChange::Add))
            .collect();
        let refused = self.routes.change(&changes)?;
        self.has = wanted.routes().collect();
        self.refused.clear();
        let mut first = None;
        for (at, error) in refused {
            // Routes that can't be deleted are gone already.
            if let HostRouteChange::Add(route) = changes[at] {
                self.has.remove(&route);
                self.refused.insert(route);
                first.get_or_insert((route.0, error));
            }
        }
        Ok(first)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
