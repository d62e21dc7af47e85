//! Measures how late a session follows the kernel while its routes change: how long a route that was deleted
//! is still forwarded by, and one that was added is not.
//!
//! ```sh
//! cargo build --release -p artery-adopt --example churn
//! unshare -n sh -c 'for n in 1 2; do ip link add eth$n type veth peer name end$n
//!   ip link set end$n up; ip link set eth$n up
//!   ip addr add 10.0.$n.1/24 dev eth$n; ip neigh add 10.0.$n.2 lladdr 02:00:00:00:00:0$n dev eth$n; done
//!   sysctl -qw net.ipv4.ip_forward=1; target/release/examples/churn eth1 eth2 700000 20000 networks'
//! ```
use artery_adopt::Session;
use artery_adopt::blockers;
use artery_adopt::fast::{ForwardDecision, Mode};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::AsFd as _;
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Changes that are sent at once.
const BATCH: usize = 50;
/// Routes that are there at a time.
const LIVE: usize = 50_000;
/// Hosts from here on (198.18.0.0/15 is for measurements, RFC 2544; the rest follows).
const FIRST: u32 = 198 << 24 | 18 << 16;
/// Of so many hosts one is asked about.
const SAMPLE: usize = 100;
/// How long routes are checked after the last change.
const REST: Duration = Duration::from_secs(6);

/// Which prefixes the routes that change have.
#[derive(Clone, Copy)]
enum Kind {
    /// Hosts one beside the other.
    Hosts,
    /// Hosts far from each other.
    Spread,
    Networks,
}

impl Kind {
    fn named(name: &str) -> Option<Kind> {
        Some(match name {
            "hosts" => Kind::Hosts,
            "spread" => Kind::Spread,
            "networks" => Kind::Networks,
            _ => return None,
        })
    }

    /// The prefix of a number: its address and length.
    fn prefix(self, number: usize) -> (u32, u8) {
        let number = number as u32;
        match self {
            Kind::Hosts => (FIRST + number, 32),
            Kind::Spread => (11 << 24 | number.wrapping_mul(0x9e_3779) & 0xff_ffff, 32),
            Kind::Networks => ((11 << 24) + (number << 8), 24),
        }
    }
}

/// A change of the route to the prefix of this number.
#[derive(Clone, Copy)]
struct Change {
    host: usize,
    is_added: bool,
    made: Instant,
}

/// How late changes were followed.
#[derive(Default)]
struct Lags {
    next: usize,
    late: Vec<Duration>,
    /// When the last change was followed, after the last was made.
    unseen: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, changes, rate, kind] = &arguments[..] else {
        return Err("FROM TO CHANGES RATE KIND".into());
    };
    let kind = Kind::named(kind).ok_or("hosts, spread or networks")?;
    let (changes, rate): (usize, usize) = (changes.parse()?, rate.parse()?);
    let port =
        |name: &str| blockers::port(name)?.ok_or(std::io::Error::other(format!("{name}: no such port")));
    let ports = [port(from)?, port(to)?];
    let modes = ports.clone().map(|port| (port, Mode::Tc));
    let mut session = Session::open(&modes, None, Instant::now())?;
    let (link, gateway) = (ports[1].index, Ipv4Addr::new(10, 0, 2, 2));
    let mac = session.driver().mirror().links().find(|link| link.index == ports[0].index);
    let mac = mac.and_then(|link| link.mac).ok_or("no link address")?;

    let made: Mutex<Vec<Change>> = Mutex::default();
    let is_done = AtomicBool::new(false);
    let other = eventfd(0, EventfdFlags::NONBLOCK)?;
    let mut lags = Lags::default();
    let mut worst_turn = Duration::ZERO;
    let still = std::thread::scope(|scope| -> Result<Vec<(u128, usize)>, Box<dyn std::error::Error>> {
        scope.spawn(|| {
            change(link, gateway, (changes, rate, kind), &made);
            is_done.store(true, Ordering::Release);
        });
        let (mut wait, mut end, mut still, mut seen) = (Duration::ZERO, None, Vec::new(), Vec::new());
        loop {
            session.wait(wait, other.as_fd())?;
            let begin = Instant::now();
            wait = session.poll(begin)?.0.min(Duration::from_millis(20));
            worst_turn = worst_turn.max(begin.elapsed());
            let done = is_done.load(Ordering::Acquire);
            seen.extend_from_slice(&made.lock().expect("no holder panics")[seen.len()..]);
            let forwards = |session: &mut Session, host: usize| {
                let frame = frame(mac.octets(), kind.prefix(host).0);
                let decided = session.accelerator_mut().decide_frame(ports[0].index, &frame);
                matches!(decided, Some(ForwardDecision::Send { .. }))
            };
            lags.look(&seen, |host| forwards(&mut session, host));
            if done {
                let end: Instant = *end.get_or_insert_with(Instant::now);
                let wrong =
                    (0..changes / 2).step_by(SAMPLE).filter(|host| forwards(&mut session, *host)).count();
                still.push((end.elapsed().as_millis(), wrong));
                if end.elapsed() > REST || wrong == 0 && end.elapsed() > Duration::from_secs(1) {
                    return Ok(still);
                }
            }
        }
    })?;
    lags.report();
    let driver = session.driver();
    println!(
        "{} changes, {} overruns, {} looks at everything, longest turn {:?}",
        driver.changes(),
        driver.overruns(),
        driver.resyncs(),
        session.pace().longest()
    );
    let show = |(after, wrong): &(u128, usize)| format!("{wrong} after {after} ms");
    let mut last = usize::MAX;
    let shown: Vec<String> = still
        .iter()
        .filter(|(_, wrong)| std::mem::replace(&mut last, *wrong) != *wrong)
        .map(show)
        .take(12)
        .collect();
    println!("deleted routes of {} still forwarded: {}", changes / 2 / SAMPLE, shown.join(", "));
    println!("as the session says: {:?}", session.lag());
    Ok(())
}

impl Lags {
    /// Notes which of the changes have been followed, in their order.
    fn look(&mut self, made: &[Change], mut forwards: impl FnMut(usize) -> bool) {
        while let Some(change) = made.get(self.next) {
            if !change.host.is_multiple_of(SAMPLE) {
                self.next += 1;
                continue;
            }
            if forwards(change.host) == change.is_added {
                self.late.push(change.made.elapsed());
            } else if change.is_added && self.next + LIVE < made.len() {
                // It came and went between two looks.
                self.unseen += 1;
            } else {
                return;
            }
            self.next += 1;
        }
    }

    fn report(&mut self) {
        self.late.sort_unstable();
        let at =
            |share: f64| self.late.get(((self.late.len() as f64 * share) as usize).min(self.late.len() - 1));
        println!(
            "{} changes seen, {} not: late by {:?} (half), {:?} (99 %), {:?} (all)",
            self.late.len(),
            self.unseen,
            at(0.5),
            at(0.99),
            self.late.last()
        );
    }
}

/// Adds host routes and deletes them again, at a rate.
fn change(
    link: u32,
    gateway: Ipv4Addr,
    (changes, rate, kind): (usize, usize, Kind),
    made: &Mutex<Vec<Change>>,
) {
    let mut socket = Socket::new(NETLINK_ROUTE).expect("there are sockets");
    socket.bind_auto().expect("any address will do");
    socket.connect(&SocketAddr::new(0, 0)).expect("the kernel is there");
    let begin = Instant::now();
    let hosts = changes / 2;
    let (mut added, mut deleted) = (0, 0);
    while deleted < hosts {
        let mut batch = Vec::new();
        let mut all = Vec::new();
        for _ in 0..BATCH {
            let is_added = added < hosts && (added - deleted < LIVE || all.len() % 2 == 0);
            let counter = if is_added { &mut added } else { &mut deleted };
            if *counter == hosts {
                break;
            }
            let host = *counter;
            *counter += 1;
            batch.extend(message(is_added, link, gateway, kind.prefix(host)));
            all.push(Change { host, is_added, made: Instant::now() });
        }
        socket.send(&batch, 0).expect("the kernel takes it");
        made.lock().expect("no holder panics").extend(all);
        let due = Duration::from_secs_f64((added + deleted) as f64 / rate as f64);
        std::thread::sleep(due.saturating_sub(begin.elapsed()));
    }
    println!("{changes} changes in {:.2} s", begin.elapsed().as_secs_f64());
}

/// A route to one host by a gateway: RTM_NEWROUTE, or RTM_DELROUTE.
fn message(is_added: bool, link: u32, gateway: Ipv4Addr, (host, len): (u32, u8)) -> Vec<u8> {
    let kind: u16 = if is_added { 24 } else { 25 };
    // NLM_F_REQUEST | NLM_F_CREATE for table main, protocol static, scope universe, unicast.
    let route = [2, len, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
    let attribute =
        |kind: u16, value: [u8; 4]| [&8u16.to_ne_bytes(), &kind.to_ne_bytes(), &value[..]].concat();
    let attributes =
        [attribute(1, host.to_be_bytes()), attribute(4, link.to_ne_bytes()), attribute(5, gateway.octets())];
    let attributes = attributes.concat();
    let total = (16 + route.len() + attributes.len()) as u32;
    let header = [&total.to_ne_bytes()[..], &kind.to_ne_bytes(), &0x401u16.to_ne_bytes(), &[0; 8]].concat();
    [&header[..], &route, &attributes].concat()
}

/// A frame to a host.
fn frame(to: [u8; 6], host: u32) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 1, 2];
    header.extend(host.to_be_bytes());
    let sum = !artery_wire::checksum::sum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&to[..], &[2, 0, 0, 0, 0, 9, 8, 0], &header].concat()
}
