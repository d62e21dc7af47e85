//! The thread that installs in a router the routes that daemons add to the host's main table, as far as these
//! use host ports. No packet waits for it.
//!
//! It follows the kernel's messages, and reads all routes at the start, after lost messages, and when a host
//! port appears or is brought up or down, as the kernel then removes IPv4 routes without a message.
use super::kernel_table::KernelTable;
use super::shared::{FollowedRouter, HostPortsShared};
use super::status::RouteStatus;
use crate::fpm::next_hops::{NextHops, ResolvedNextHop};
use crate::fpm::reason::RejectReason;
use crate::fpm::rib::Rib;
use crate::fpm::shared::engine_clock;
use artery_device::Interface;
use artery_lpm::load::AnyPrefix;
use artery_netlink::records::{ChangeMonitor, DumpProgress, ReadOutcome, RecordDump, RecordKind};
use artery_netlink::{Family, Manner, News, Path, Record, RouteHop, RouteKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd as _, BorrowedFd};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the list of host ports is checked.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long after a change everything is read again, so that several changes cause one reading.
const PAUSE: Duration = Duration::from_millis(200);
/// How long after a failure it is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Messages processed in a row, and routes changed under one lock of the tables.
const AT_ONCE: usize = 1024;
/// Bytes of changes that may wait to be read.
const BACKLOG: usize = 16 << 20;
/// How long reading a part may wait for a message of the kernel.
const SILENCE: Duration = Duration::from_secs(10);

pub(super) struct KernelRoutes {
    shared: Arc<HostPortsShared>,
    dump: RecordDump,
    follower: ChangeMonitor,
    table: KernelTable,
    /// The host ports, and whether they were brought up.
    links: HashMap<u32, bool>,
    /// When all is to be read.
    resync_at: Option<Instant>,
    dumps: u64,
    last_logged: Option<String>,
}

impl KernelRoutes {
    pub(super) fn new(shared: Arc<HostPortsShared>) -> io::Result<KernelRoutes> {
        Ok(KernelRoutes {
            shared,
            dump: RecordDump::open()?,
            follower: ChangeMonitor::of_routes(BACKLOG)?,
            table: KernelTable::default(),
            links: HashMap::new(),
            resync_at: Some(Instant::now()),
            dumps: 0,
            last_logged: None,
        })
    }

    /// Follows until no element needs it.
    pub(super) fn run(mut self) {
        while !self.shared.is_over() {
            match self.follow_changes() {
                Ok(()) => self.last_logged = None,
                Err(error) => self.report_failure(&error),
            }
        }
    }

    fn report_failure(&mut self, error: &io::Error) {
        self.resync_at = Some(Instant::now() + RETRY);
        let line = format!("can't read the host's routes: {error}; trying again");
        if self.last_logged.as_ref() != Some(&line) {
            self.shared.lines.push_line(line.clone());
            self.last_logged = Some(line);
        }
        std::thread::sleep(INTERVAL);
    }

    fn follow_changes(&mut self) -> io::Result<()> {
        if !self.find_host_ports() {
            // Nothing is followed yet, or routes come by other means.
            std::thread::sleep(INTERVAL);
            return Ok(());
        }
        let (batch, is_lost) = self.receive_changes()?;
        let is_change = !batch.is_empty();
        if is_lost {
            self.resync_at = Some(Instant::now());
        }
        self.apply_changes(batch);
        if self.resync_at.is_some_and(|at| at <= Instant::now()) {
            self.resync_routes()?;
        } else if is_change {
            self.publish_status();
        } else {
            wait_for(self.follower.as_fd(), INTERVAL);
        }
        Ok(())
    }

    /// Finds out which interfaces are host ports; false where there are none.
    fn find_host_ports(&mut self) -> bool {
        let Some((_, FollowedRouter { names, has_routes: true })) = self.shared.followed_router() else {
            self.shared.publish_routes(RouteStatus::default());
            return false;
        };
        let find = |name: &String| Interface::find(name).ok().map(|found| (found.index, found.up));
        let links: HashMap<u32, bool> = names.iter().filter_map(|(_, interface)| find(interface)).collect();
        if links != self.links {
            self.links = links;
            self.resync_at = Some(Instant::now() + PAUSE);
        }
        true
    }

    /// What has changed since the last call, and whether some of it was lost.
    fn receive_changes(&mut self) -> io::Result<(Vec<News>, bool)> {
        let mut batch = Vec::new();
        while batch.len() < AT_ONCE {
            match self.follower.read(|news| batch.push(news))? {
                ReadOutcome::More => {}
                ReadOutcome::Nothing => break,
                ReadOutcome::Overrun => return Ok((batch, true)),
            }
        }
        Ok((batch, false))
    }

    /// Applies changes. A route that is removed and added again in them changes once.
    fn apply_changes(&mut self, batch: Vec<News>) {
        let shared = self.shared.clone();
        let mut rib = shared.lock_rib();
        let mut changed: HashSet<AnyPrefix> = HashSet::new();
        for News { is_gone, manner, record } in batch {
            match record {
                Record::Route(route) => changed.extend(self.table.apply_change(is_gone, manner, route)),
                Record::NextHop(object) => {
                    self.install_routes(&mut rib, changed.drain().collect());
                    let routers = rib.routers();
                    let mut tables: Vec<_> = routers.iter().map(|router| router.lock_tables()).collect();
                    let kind = (!is_gone).then_some(object.kind);
                    rib.change_next_hop(object.id, kind, &mut tables, engine_clock());
                    changed.extend(self.table.by_object(|other| rib.next_hops.depends_on(other, object.id)));
                }
                _ => {}
            }
        }
        self.install_routes(&mut rib, changed.into_iter().collect());
    }

    /// Installs the table's routes for these prefixes in the routers.
    fn install_routes(&self, rib: &mut Rib, prefixes: Vec<AnyPrefix>) {
        let routers = rib.routers();
        for some in prefixes.chunks(AT_ONCE) {
            let mut tables: Vec<_> = routers.iter().map(|router| router.lock_tables()).collect();
            for prefix in some {
                let best =
                    self.table.best_route(*prefix, |path| leads_by_port(path, &rib.next_hops, &self.links));
                match best {
                    Some(best) => {
                        let path = forwardable_path(&best.path);
                        rib.replace_route(*prefix, (best.protocol, path), true, &mut tables, engine_clock());
                    }
                    None => _ = rib.remove_route(*prefix, &mut tables, engine_clock()),
                }
            }
        }
    }

    /// Reads all, and removes what is not there any more.
    fn resync_routes(&mut self) -> io::Result<()> {
        let mut objects = Vec::new();
        let is_whole = self.read_everything(&mut objects)?;
        // Routes missed meanwhile stay until the next reading.
        self.resync_at = (!is_whole).then(|| Instant::now() + RETRY);
        let shared = self.shared.clone();
        let mut rib = shared.lock_rib();
        rib.begin_session();
        for news in objects {
            if let Record::NextHop(object) = news.record {
                rib.next_hops.replace_object(object.id, object.kind);
            }
        }
        self.install_routes(&mut rib, self.table.prefixes());
        let stale = if is_whole { rib.stale_prefixes() } else { Vec::new() };
        let routers = rib.routers();
        for some in stale.chunks(AT_ONCE) {
            let mut tables: Vec<_> = routers.iter().map(|router| router.lock_tables()).collect();
            for prefix in some {
                rib.remove_route(*prefix, &mut tables, engine_clock());
            }
        }
        drop(rib);
        self.publish_status();
        Ok(())
    }

    /// Reads next-hop objects, and routes into the table; returns whether nothing changed meanwhile.
    fn read_everything(&mut self, objects: &mut Vec<News>) -> io::Result<bool> {
        self.dumps += 1;
        let mut table = KernelTable::default();
        let mut is_whole = self.read_all(RecordKind::NextHops, |news| objects.push(news))?;
        for family in [Family::V4, Family::V6] {
            is_whole &= self.read_all(RecordKind::Routes(family), |news| {
                if let Record::Route(route) = news.record {
                    // In the order in which the kernel prefers them.
                    table.apply_change(false, Manner::Append, route);
                }
            })?;
        }
        self.table = table;
        Ok(is_whole)
    }

    /// Reads a part; returns whether nothing changed meanwhile.
    fn read_all(&mut self, part: RecordKind, mut each: impl FnMut(News)) -> io::Result<bool> {
        self.dump.begin(part)?;
        loop {
            match self.dump.read(&mut each)? {
                DumpProgress::More => {}
                DumpProgress::Waiting => {
                    if !wait_for(self.dump.as_fd(), SILENCE) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                DumpProgress::Done { was_interrupted } => return Ok(!was_interrupted),
            }
        }
    }

    fn publish_status(&self) {
        let rib = self.shared.lock_rib();
        let refusal = |reason: &RejectReason| Some((*reason, rib.last_refusal(*reason)?.to_string()));
        self.shared.publish_routes(RouteStatus {
            is_on: true,
            dumps: self.dumps,
            families: rib.family_counts(),
            counts: rib.counts().clone(),
            refusals: RejectReason::ALL.iter().filter_map(refusal).collect(),
        });
    }
}

/// Waits until a file can be read; says whether it can.
fn wait_for(file: BorrowedFd<'_>, time: Duration) -> bool {
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    let mut files = [PollFd::from_borrowed_fd(file, PollFlags::IN)];
    // An interruption is harmless: it causes one extra check.
    !matches!(poll(&mut files, Some(&timeout)), Ok(0))
}

/// Whether a route is one for the router: some next hop of it is by a host port, or packets end.
fn leads_by_port(path: &Path, next_hops: &NextHops, links: &HashMap<u32, bool>) -> bool {
    let is_by_port = |hops: &[RouteHop]| hops.iter().any(|hop| links.contains_key(&hop.link));
    match path.kind {
        RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => true,
        RouteKind::Unicast if path.object == 0 => is_by_port(&path.hops),
        RouteKind::Unicast => match next_hops.resolve_next_hop(path.object) {
            Ok(ResolvedNextHop::Hops(hops)) => is_by_port(&hops),
            Ok(ResolvedNextHop::Blackhole) => true,
            Err(_) => false,
        },
        _ => false,
    }
}

/// What the router can do with a route.
fn forwardable_path(path: &Path) -> Result<Path, RejectReason> {
    match path.hops.iter().any(|hop| hop.has_encapsulation) {
        true => Err(RejectReason::Encapsulation),
        false => Ok(path.clone()),
    }
}
