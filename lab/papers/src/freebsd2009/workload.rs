//! What is sent, through which routes and to which neighbors; and what is right at any moment.

use super::network::{Control, Mac, Packet, Sent};
use anyhow::anyhow;
use artery_lpm::Prefix;
use artery_wire::Random;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

/// What is sent, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Workload {
    /// A thousand destinations behind one default router
    W1,
    /// A thousand destinations that are neighbors
    W2,
    /// A million destinations behind four routers
    W3,
    /// A thousand destinations behind two routers, while routes and neighbors change
    W4,
    /// Neighbors, of those that there are beside
    Near,
}

/// 10.0.0.0/16 is on the first interface, with all routers.
pub(super) const LINK: u32 = 0x0a00_0000;
/// 10.1.0.0/16 is on the second, with the neighbors that there are beside.
pub(super) const BESIDE: u32 = 0x0a01_0000;
/// Destinations of all workloads but the third.
const FEW: usize = 1024;
/// Those of the third.
const MANY: usize = 1 << 20;
/// Routes of the third: /12 from 11.0.0.0 to 99.255.255.255.
const ROUTES: std::ops::Range<u32> = 11 << 4..100 << 4;
/// Destinations of the fourth are in that many /16, from 20.0.0.0 on.
const CHANGING: u32 = 64;

/// Most routes that a workload has.
pub(super) const MOST_ROUTES: usize = 2048;

/// The address of the n-th router; they count from 1.
pub(super) fn router(n: u8) -> u32 {
    LINK + u32::from(n)
}

/// The n-th neighbor on the first interface; behind the routers.
pub(super) fn near(n: u32) -> u32 {
    LINK + 256 + n
}

/// The n-th neighbor on the second interface.
pub(super) fn beside(n: u32) -> u32 {
    BESIDE + 1 + n
}

pub(super) fn link(first: u32) -> Prefix<u32> {
    Prefix::of(first, 16)
}

fn changing(n: u32) -> Prefix<u32> {
    Prefix::of((20 << 24) + (n << 16), 16)
}

/// Packets, and where each has to leave.
pub(super) struct Trace {
    pub(super) packets: Vec<Packet>,
    pub(super) wanted: Vec<Sent>,
}

impl Workload {
    pub(super) fn name(self) -> &'static str {
        match self {
            Workload::W1 => "W1",
            Workload::W2 => "W2",
            Workload::W3 => "W3",
            Workload::W4 => "W4",
            Workload::Near => "near",
        }
    }

    /// Makes routes and neighbors, and as many neighbors beside.
    pub(super) fn furnish(self, control: &impl Control, neighbors: u32) -> anyhow::Result<()> {
        let full = |_| anyhow!("no room for the routes");
        control.connect(link(LINK), 0).map_err(full)?;
        control.connect(link(BESIDE), 1).map_err(full)?;
        (1..=4).for_each(|n| _ = control.learn(router(n), Mac::new(n, 1)));
        if self == Workload::W2 {
            (0..FEW as u32).for_each(|n| _ = control.learn(near(n), Mac::new(9, n)));
        }
        (0..neighbors).for_each(|n| _ = control.learn(beside(n), Mac::new(8, n)));
        control.add_route(Prefix::ALL, router(1)).map_err(full)?;
        if self == Workload::W3 {
            for n in ROUTES {
                control.add_route(Prefix::of(n << 20, 12), router(1 + (n % 4) as u8)).map_err(full)?;
            }
        }
        Ok(())
    }

    /// All packets that are sent again and again, of which a thread sends its part.
    pub(super) fn trace(self, neighbors: u32) -> Trace {
        let mut random = Random::new(2009);
        let count = if self == Workload::W3 { MANY } else { FEW };
        let (mut packets, mut wanted) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for socket in 0..count as u32 {
            let (destination, out) = self.packet(socket, neighbors, &mut random);
            packets.push(Packet { destination, socket });
            wanted.push(out);
        }
        Trace { packets, wanted }
    }

    fn packet(self, n: u32, neighbors: u32, random: &mut Random) -> (u32, Sent) {
        let by_router = |n| Sent::Out(0, Mac::new(n, 1));
        let far = |random: &mut Random| (11 << 24) + random.below(89 << 24) as u32;
        match self {
            Workload::W1 => (far(random), by_router(1)),
            Workload::W2 => (near(n), Sent::Out(0, Mac::new(9, n))),
            Workload::W3 => {
                let to = far(random);
                (to, by_router(1 + (to >> 20 & 3) as u8))
            }
            Workload::W4 => (changing(n % CHANGING).first() + 1 + random.below(60_000) as u32, by_router(1)),
            Workload::Near => {
                let n = random.below(neighbors.max(1).into()) as u32;
                (beside(n), Sent::Out(1, Mac::new(8, n)))
            }
        }
    }

    /// Destinations of one thread of so many: the third workload is shared out, the others are everybody's.
    pub(super) fn part(self, packets: &[Packet], thread: usize, threads: usize) -> Vec<Packet> {
        let start = packets.len() * thread / threads;
        let mut part = match self {
            Workload::W3 => packets[start..packets.len() * (thread + 1) / threads].to_vec(),
            _ => [&packets[start..], &packets[..start]].concat(),
        };
        (0..).zip(&mut part).for_each(|(socket, packet)| packet.socket = socket);
        part
    }
}

/// What is right at any moment of the fourth workload.
pub(super) struct Book {
    /// The version of each router's link address; older ones are freed.
    versions: [AtomicU32; 3],
    /// Of each prefix that changes: how often it did, and in the last bit whether it leads
    /// to the second router.
    routes: Vec<AtomicU32>,
}

/// A route is being changed.
const BUSY: u32 = 1 << 31;

/// What the book said before a batch was sent.
#[derive(Default)]
pub(super) struct Before {
    versions: [u32; 3],
    routes: Vec<u32>,
}

/// What was found out about packets that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Packets that were checked.
    pub packets: u64,
    /// Packets that left with a link address that had been freed before the lookup, or that no neighbor has.
    pub wrong: u64,
    /// Those that took a route which was not the best any more, or not yet, before they were looked up.
    pub stale: u64,
    /// Those that had to wait for a link address.
    pub held: u64,
    /// Packets for which no route was found, though there always was one.
    pub lost: u64,
}

impl Verified {
    /// Adds that of another thread.
    pub(super) fn add(&mut self, other: Verified) {
        self.packets += other.packets;
        self.wrong += other.wrong;
        self.stale += other.stale;
        self.held += other.held;
        self.lost += other.lost;
    }
}

impl Book {
    pub(super) fn new() -> Book {
        let routes = (0..CHANGING).map(|_| AtomicU32::new(0)).collect();
        Book { versions: [1, 1, 1].map(AtomicU32::new), routes }
    }

    fn route(&self, destination: u32) -> u32 {
        self.routes[(destination >> 16) as usize % CHANGING as usize].load(Acquire)
    }

    /// Takes note of what is right before a batch is looked up.
    pub(super) fn before(&self, packets: &[Packet], before: &mut Before) {
        before.versions = [0, 1, 2].map(|n| self.versions[n].load(Acquire));
        before.routes.clear();
        before.routes.extend(packets.iter().map(|packet| self.route(packet.destination)));
    }

    /// Compares what became of the batch.
    pub(super) fn verify(&self, packets: &[Packet], sent: &[Sent], before: &Before, found: &mut Verified) {
        for ((packet, sent), route) in packets.iter().zip(sent).zip(&before.routes) {
            found.packets += 1;
            match sent {
                Sent::Out(_, mac) => self.verify_one(*packet, *mac, *route, before, found),
                Sent::Held => found.held += 1,
                Sent::NoRoute => found.lost += 1,
            }
        }
    }

    fn verify_one(&self, packet: Packet, mac: Mac, route: u32, before: &Before, found: &mut Verified) {
        let neighbor = usize::from(mac.neighbor());
        let is_right = (1..=2).contains(&neighbor)
            && (before.versions[neighbor]..=self.versions[neighbor].load(Acquire)).contains(&mac.version());
        found.wrong += u64::from(!is_right);
        let has_changed = route & BUSY != 0 || self.route(packet.destination) != route;
        let best = 1 + (route & 1) as usize;
        found.stale += u64::from(is_right && !has_changed && neighbor != best);
    }

    /// Lets a thousand routes a second change, and one router a second lose its link address and get another.
    pub(super) fn churn(&self, control: &impl Control, is_over: &AtomicBool) -> anyhow::Result<()> {
        let start = Instant::now();
        let (mut routes, mut flaps, mut random) = (0u64, 0u64, Random::new(4));
        while !is_over.load(Relaxed) {
            let seconds = start.elapsed().as_secs_f64();
            while (routes as f64) < seconds * 1000.0 {
                self.change_route(control, random.below(CHANGING.into()) as u32)?;
                routes += 1;
            }
            while (flaps as f64) < seconds {
                self.flap(control, 1 + (flaps % 2) as u8);
                flaps += 1;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    }

    fn change_route(&self, control: &impl Control, n: u32) -> anyhow::Result<()> {
        let word = &self.routes[(changing(n).first() >> 16) as usize % CHANGING as usize];
        let before = word.load(Relaxed);
        word.store(before | BUSY, Release);
        if before & 1 == 0 {
            control.add_route(changing(n), router(2)).map_err(|_| anyhow!("no room for a route"))?;
        } else {
            control.delete_route(changing(n));
        }
        word.store(((before + 2) ^ 1) & !BUSY, Release);
        Ok(())
    }

    fn flap(&self, control: &impl Control, neighbor: u8) {
        let version = &self.versions[usize::from(neighbor)];
        let next = version.load(Relaxed) + 1;
        control.forget(router(neighbor));
        version.store(next, Release);
        control.learn(router(neighbor), Mac::new(neighbor, next));
    }
}

#[cfg(test)]
mod tests {
    use super::super::lock::Plain;
    use super::super::network::Sender;
    use super::super::split::{Split, SplitSender};
    use super::*;

    const ALL: [Workload; 5] = [Workload::W1, Workload::W2, Workload::W3, Workload::W4, Workload::Near];

    #[test]
    fn packets_leave_where_they_are_wanted() {
        for workload in ALL {
            let tables = Split::<Plain>::new(MOST_ROUTES);
            workload.furnish(&tables, 100).unwrap();
            let trace = workload.trace(100);
            let mut sent = Vec::new();
            SplitSender(&tables).send(&trace.packets, &mut sent);
            assert!(sent == trace.wanted, "{workload:?}");
        }
    }

    #[test]
    fn threads_share_the_third_workload_out_and_have_all_of_the_others() {
        for workload in ALL {
            let packets = workload.trace(10).packets;
            let parts: Vec<_> = (0..3).map(|thread| workload.part(&packets, thread, 3)).collect();
            let count: usize = parts.iter().map(Vec::len).sum();
            let is_shared = workload == Workload::W3;
            assert_eq!(count, if is_shared { packets.len() } else { 3 * packets.len() });
            assert!(parts.iter().all(|part| part.last().unwrap().socket as usize == part.len() - 1));
            assert!(parts[0][0].destination == packets[0].destination);
        }
    }

    /// What a batch of one is found to be.
    fn found(book: &Book, before: &Before, mac: Mac) -> Verified {
        let packet = Packet { destination: changing(5).first(), socket: 0 };
        let mut found = Verified::default();
        book.verify(&[packet], &[Sent::Out(0, mac)], before, &mut found);
        found
    }

    fn noted(book: &Book) -> Before {
        let mut before = Before::default();
        book.before(&[Packet { destination: changing(5).first(), socket: 0 }], &mut before);
        before
    }

    #[test]
    fn freed_addresses_and_stale_routes_are_noticed_and_nothing_else() {
        let tables = Split::<Plain>::new(MOST_ROUTES);
        Workload::W4.furnish(&tables, 0).unwrap();
        let book = Book::new();
        let first = noted(&book);
        let right = Verified { packets: 1, ..Verified::default() };
        assert_eq!(found(&book, &first, Mac::new(1, 1)), right);
        assert_eq!(found(&book, &first, Mac::new(2, 1)), Verified { stale: 1, ..right });
        for nobodys in [Mac::new(1, 0), Mac::new(1, 2), Mac::new(3, 1), Mac::new(0, 0)] {
            assert_eq!(found(&book, &first, nobodys), Verified { wrong: 1, ..right }, "{nobodys:?}");
        }
        book.flap(&tables, 1);
        assert_eq!(found(&book, &first, Mac::new(1, 1)), right, "it was sent before");
        assert_eq!(found(&book, &noted(&book), Mac::new(1, 1)), Verified { wrong: 1, ..right });
        assert_eq!(found(&book, &noted(&book), Mac::new(1, 2)), right);
        book.change_route(&tables, 5).unwrap();
        assert_eq!(found(&book, &first, Mac::new(2, 1)), right, "it may have been sent after");
        assert_eq!(found(&book, &noted(&book), Mac::new(2, 1)), right);
        assert_eq!(found(&book, &noted(&book), Mac::new(1, 2)), Verified { stale: 1, ..right });
        book.change_route(&tables, 5).unwrap();
        assert_eq!(found(&book, &noted(&book), Mac::new(1, 2)), right);
    }
}
