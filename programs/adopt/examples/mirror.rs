//! Measures the mirror in this network namespace: how long it takes to read all that the kernel has, to look
//! at it again, and how late it is while routes change.
//!
//! ```sh
//! unshare -n sh -c 'ip link add eth1 type veth peer name end1; ip link set end1 up; ip link set eth1 up
//!   ip addr add 10.255.0.1/16 dev eth1
//!   zcat prefixes.txt.gz | awk "{ print \"route add\", \$1, \"via 10.255.0.\" NR % 200 + 2 }" | ip -batch -
//!   target/release/examples/mirror eth1 50000'
//! ```
use artery_adopt::kernel::{Family, Link};
use artery_adopt::mirror::{Exclusion, MirrorDriver, NextHopSet, NextHopSetId, PollOutcome, Sink};
use artery_lpm::Prefix;
use artery_wire::EtherAddr;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Changes that are made one after the other before the next pause, so that there are 10,000 a second.
const AT_ONCE: usize = 50;
const PAUSE: Duration = Duration::from_millis(5);
/// Changed prefixes are host routes from here on (198.18.0.0/15 is for measurements, RFC 2544).
const FIRST: u32 = 198 << 24 | 18 << 16;
const HOSTS: usize = 1 << 17;

/// The time at which each prefix was changed, and the delay until the sink received the change.
struct Late<'a> {
    changed: &'a Mutex<Vec<Option<Instant>>>,
    lags: Vec<Duration>,
    routes: usize,
}

impl Sink for Late<'_> {
    fn set_next_hops(&mut self, _: Family, _: NextHopSetId, _: Option<&NextHopSet>) {}
    fn set_route4(&mut self, prefix: Prefix<u32>, _: Option<NextHopSetId>) {
        self.routes += 1;
        let number = prefix.first().wrapping_sub(FIRST) as usize;
        if prefix.len() == 32 && number < HOSTS {
            let changed = self.changed.lock().expect("no holder panics")[number].take();
            self.lags.extend(changed.map(|changed| changed.elapsed()));
        }
    }
    fn set_route6(&mut self, _: Prefix<u128>, _: Option<NextHopSetId>) {
        self.routes += 1;
    }
    fn set_neighbor(&mut self, _: u32, _: IpAddr, _: Option<EtherAddr>) {}
    fn set_link(&mut self, _: u32, _: Option<&Link>) {}
    fn exclude(&mut self, _: Family, _: &Exclusion) {}
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let changes = arguments.get(2).and_then(|count| count.parse().ok()).unwrap_or(0);
    let changed = Mutex::new(vec![None; HOSTS]);
    let mut sink = Late { changed: &changed, lags: Vec::new(), routes: 0 };

    let begin = Instant::now();
    let mut driver = MirrorDriver::open()?;
    driver.load(begin, &mut sink)?;
    let (v4, v6) = (driver.mirror().prefixes(Family::V4), driver.mirror().prefixes(Family::V6));
    println!("{v4} + {v6} prefixes, {} paths: read in {:.3} s", driver.mirror().paths(), seconds(begin));
    println!("{} kB resident", resident_kb());
    resync_late(&mut driver, &mut sink)?;

    let name = arguments.get(1).cloned().unwrap_or_default();
    let link = driver.mirror().links().find(|link| link.name == name).map(|link| link.index);
    if let Some(link) = link.filter(|_| changes > 0) {
        for during in ["nothing else", "a look at everything"] {
            sink.lags.clear();
            follow(&mut driver, &mut sink, link, changes, during != "nothing else")?;
            report(&mut sink.lags, changes, during);
        }
        println!("{} overruns, {} looks at everything", driver.overruns(), driver.resyncs());
    }
    Ok(())
}

fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

fn resync_late(driver: &mut MirrorDriver, sink: &mut Late<'_>) -> std::io::Result<()> {
    // There is a pause between two looks, whatever the reason.
    std::thread::sleep(Duration::from_secs(1));
    let (begin, before, looks) = (Instant::now(), sink.routes, driver.resyncs());
    driver.request_resync();
    while driver.resyncs() == looks {
        driver.poll(Instant::now(), sink)?;
    }
    println!("resync in {:.3} s, {} routes", seconds(begin), sink.routes - before);
    Ok(())
}

/// Follows while another thread makes changes.
fn follow(
    driver: &mut MirrorDriver,
    sink: &mut Late<'_>,
    link: u32,
    changes: usize,
    looks: bool,
) -> std::io::Result<()> {
    let (is_done, changed) = (AtomicBool::new(false), sink.changed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            change(link, changes, changed);
            is_done.store(true, Ordering::Release);
        });
        let mut rest = None;
        while rest.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(300)) {
            if is_done.load(Ordering::Acquire) {
                rest.get_or_insert_with(Instant::now);
            }
            if looks {
                driver.request_resync();
            }
            if let PollOutcome::Sleep(_) = driver.poll(Instant::now(), sink)? {
                let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                poll(&mut [PollFd::new(&*driver, PollFlags::IN)], Some(&timeout))?;
            }
        }
        Ok(())
    })
}

/// Adds host routes and takes them away again, 10,000 a second.
fn change(link: u32, changes: usize, changed: &Mutex<Vec<Option<Instant>>>) {
    let mut socket = Socket::new(NETLINK_ROUTE).expect("there are sockets");
    socket.bind_auto().expect("any address will do");
    socket.connect(&SocketAddr::new(0, 0)).expect("the kernel is there");
    let begin = Instant::now();
    for number in 0..changes {
        // RTM_NEWROUTE and, half a thousand changes later, RTM_DELROUTE.
        let (kind, host) = if number / 500 % 2 == 0 { (24u16, number) } else { (25, number - 500) };
        let host = host % HOSTS;
        let message = message(kind, link, FIRST + host as u32);
        changed.lock().expect("no holder panics")[host] = Some(Instant::now());
        socket.send(&message, 0).expect("the kernel takes it");
        if number % AT_ONCE == AT_ONCE - 1 {
            let due = PAUSE * (number / AT_ONCE + 1) as u32;
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
    }
    println!("{changes} changes in {:.2} s", seconds(begin));
}

/// A route to one host by an interface.
fn message(kind: u16, link: u32, host: u32) -> Vec<u8> {
    // NLM_F_REQUEST | NLM_F_CREATE for table main, protocol static, scope link, unicast.
    let route = [2, 32, 0, 0, 254, 4, 253, 1, 0, 0, 0, 0];
    let attribute =
        |kind: u16, value: [u8; 4]| [&8u16.to_ne_bytes(), &kind.to_ne_bytes(), &value[..]].concat();
    let attributes = [attribute(1, host.to_be_bytes()), attribute(4, link.to_ne_bytes())].concat();
    let len = (16 + route.len() + attributes.len()) as u32;
    let header = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &0x401u16.to_ne_bytes(), &[0; 8]].concat();
    [&header[..], &route, &attributes].concat()
}

fn report(lags: &mut [Duration], changes: usize, during: &str) {
    lags.sort_unstable();
    let at = |share: f64| lags.get(((lags.len() as f64 * share) as usize).min(lags.len().saturating_sub(1)));
    let (half, most, last) = (at(0.5), at(0.99), lags.last());
    println!(
        "with {during}: {} of {changes} received; late by {half:?} (half), {most:?} (99 %), {last:?} (all)",
        lags.len()
    );
}

/// Memory of this process, by /proc.
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
