//! A router in the place of another: what it takes over. Ports are the same if they have the same name.
use super::changes::Change;
use super::held::Kept;
use super::local::no_fragments;
use super::shared::SharedRouter;
use super::slow::{Job, Slow};
use super::verdict::{Came, Origin};
use super::waiting::Waiting;
use artery_engine::DropReason;
use artery_engine::names::Names;
use artery_table::PortId;
use artery_table::neighbor::Kind;
use artery_table::router::{Ip, Tables};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// By number of an old port: that of the new one.
type Ports = Vec<Option<PortId>>;

impl Slow {
    /// Takes over what the slow path of a router that is being replaced holds: packets that wait, and once for all
    /// workers neighbors that were learnt and addresses that were claimed.
    pub(super) fn take_over(
        &mut self,
        router: &SharedRouter,
        names: &Names,
        old: &mut Slow,
        job: &mut Job<'_, '_>,
    ) {
        let ports = same_ports(router, job.router);
        if !self.together.is_heir.swap(true, Relaxed) {
            take_tables(router, &ports, job);
            take_routes(router, names, job);
            let (mut claims, mut before) = (self.together.claims(), old.together.claims());
            claims.take(
                &mut before,
                |id| ports.get(usize::from(id.0)).copied().flatten(),
                job.router.ports(),
            );
        }
        for ((port, address), packets) in old.held.drain() {
            let port = ports.get(usize::from(port.0)).copied().flatten();
            for waiting in packets {
                self.inherit(port.map(|port| (port, address)), waiting, &ports, job);
            }
        }
        self.has_heard_nothing();
        self.counters = old.counters;
        // It is kept of fragments by which port they came.
        if ports.iter().zip(0..).all(|(port, number)| *port == Some(PortId(number))) {
            self.fragments = std::mem::replace(&mut old.fragments, no_fragments());
        }
    }

    fn inherit(
        &mut self,
        neighbor: Option<super::held::Neighbor>,
        Waiting { packet, came }: Waiting,
        ports: &Ports,
        job: &mut Job<'_, '_>,
    ) {
        let from = match came.from {
            Origin::Port(port) => ports.get(usize::from(port.0)).copied().flatten().map(Origin::Port),
            other => Some(other),
        };
        let (Some(neighbor), Some(from)) = (neighbor, from) else {
            return job.cx.discard(packet, DropReason::Replaced);
        };
        let kept = self.held.hold(neighbor, Waiting { packet, came: Came { from, ..came } }, job.now);
        if let Kept::InsteadOf(waiting) | Kept::Refused(waiting) = kept {
            job.cx.discard(waiting.packet, DropReason::Replaced);
        }
    }
}

fn same_ports(old: &SharedRouter, new: &SharedRouter) -> Ports {
    let old = old.tables().ports();
    let tables = new.tables();
    old.iter().map(|port| tables.port(&port.name)).collect()
}

/// Takes over the neighbors that were learnt. Those that were set are the configuration's affair.
fn take_tables(old: &SharedRouter, ports: &Ports, job: &Job<'_, '_>) {
    let old = old.tables();
    let mut new = job.router.tables();
    for (from, to) in (0..).map(PortId).zip(ports) {
        if let Some(to) = to {
            take_neighbors::<u32>(&old, from, &mut new, *to, job.now);
            take_neighbors::<u128>(&old, from, &mut new, *to, job.now);
        }
    }
}

/// Takes over the routes that were set by hand.
fn take_routes(old: &SharedRouter, names: &Names, job: &mut Job<'_, '_>) {
    let (router, now) = (job.router, job.now);
    let lost = Change { router, tables: &mut router.tables(), names, now }.take_routes(old);
    for why in lost {
        job.cx.say(&format!("{}: a route that was added by hand is gone: {why}", router.name()));
    }
}

fn take_neighbors<A: Ip>(old: &Tables, from: PortId, new: &mut Tables, to: PortId, now: Duration) {
    for view in old.neighbors::<A>(from, now) {
        let is_known = new.neighbor(to, view.address, now).is_some_and(|view| view.is_static);
        if let Some(link) = view.link.filter(|_| !view.is_static && !is_known) {
            // Where there is no room for it, it is asked for again.
            let _ = new.set_neighbor(to, view.address.to_ip(), link, Kind::Temporary, now);
        }
    }
}
