//! Restores the state of a replaced router in its successor. Ports are the same if they have the same name.
use super::changes::TableChange;
use super::local_fragments::no_fragments;
use super::pending_queue::EnqueueOutcome;
use super::pending_queue::PendingPacket;
use super::slow_path::{SlowPath, SlowPathContext};
use super::verdict::{IngressInfo, Origin};
use artery_engine::DropReason;
use artery_engine::names::Names;
use artery_forward::shared::SharedRouter;
use artery_l3::PortId;
use artery_l3::router::{Ip, Tables};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// By number of an old port: that of the new one.
type PortMap = Vec<Option<PortId>>;

impl SlowPath {
    /// Restores the slow path of the replaced router: pending packets, and once for all workers learned
    /// neighbors and claimed addresses.
    pub(super) fn restore_from(
        &mut self,
        router: &SharedRouter,
        names: &Names,
        old: &mut SlowPath,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        let ports = same_ports(router, job.router);
        if !self.shared.is_successor.swap(true, Relaxed) {
            restore_tables(router, &ports, job);
            restore_changes(router, names, job);
            let (mut claims, mut before) = (self.shared.lock_claims(), old.shared.lock_claims());
            claims.restore_claims(
                &mut before,
                |id| ports.get(usize::from(id.0)).copied().flatten(),
                job.router.port_count(),
            );
        }
        for ((port, address), packets) in old.pending.drain() {
            let port = ports.get(usize::from(port.0)).copied().flatten();
            for waiting in packets {
                self.restore_packet(port.map(|port| (port, address)), waiting, &ports, job);
            }
        }
        self.reset_progress();
        self.counters = old.counters;
        // Reassembly keeps the ingress port of fragments.
        if ports.iter().zip(0..).all(|(port, number)| *port == Some(PortId(number))) {
            self.fragments = std::mem::replace(&mut old.fragments, no_fragments());
        }
    }

    fn restore_packet(
        &mut self,
        neighbor: Option<super::pending_queue::Neighbor>,
        PendingPacket { packet, ingress: came }: PendingPacket,
        ports: &PortMap,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        let from = match came.from {
            Origin::Port(port) => ports.get(usize::from(port.0)).copied().flatten().map(Origin::Port),
            other => Some(other),
        };
        let (Some(neighbor), Some(from)) = (neighbor, from) else {
            return job.cx.discard(packet, DropReason::Replaced);
        };
        let kept = self.pending.enqueue_packet(
            neighbor,
            PendingPacket { packet, ingress: IngressInfo { from, ..came } },
            job.now,
        );
        if let EnqueueOutcome::Replaced(waiting) | EnqueueOutcome::Refused(waiting) = kept {
            job.cx.discard(waiting.packet, DropReason::Replaced);
        }
    }
}

fn same_ports(old: &SharedRouter, new: &SharedRouter) -> PortMap {
    let old = old.lock_tables().ports();
    let tables = new.lock_tables();
    old.iter().map(|port| tables.find_port(&port.name)).collect()
}

/// Restores learned neighbors. Static ones come from the configuration or by [`restore_changes`].
fn restore_tables(old: &SharedRouter, ports: &PortMap, job: &SlowPathContext<'_, '_>) {
    let old = old.lock_tables();
    let mut new = job.router.lock_tables();
    for (from, to) in (0..).map(PortId).zip(ports) {
        if let Some(to) = to {
            restore_neighbors::<u32>(&old, from, &mut new, *to, job.now);
            restore_neighbors::<u128>(&old, from, &mut new, *to, job.now);
        }
    }
}

/// Restores routes and neighbors that handlers set.
fn restore_changes(old: &SharedRouter, names: &Names, job: &mut SlowPathContext<'_, '_>) {
    let (router, now) = (job.router, job.now);
    let (routes, neighbors) = {
        let mut change = TableChange { router, tables: &mut router.lock_tables(), names, now };
        (change.restore_routes(old), change.restore_neighbors(old))
    };
    for (what, lost) in [("route", routes), ("neighbor", neighbors)] {
        for why in lost {
            let name = router.name();
            job.cx.print_message(&format!("{name}: a {what} that was added by hand is gone: {why}"));
        }
    }
}

fn restore_neighbors<A: Ip>(old: &Tables, from: PortId, new: &mut Tables, to: PortId, now: Duration) {
    for (address, entry) in old.learned_neighbors::<A>(from) {
        if !new.neighbor(to, address, now).is_some_and(|view| view.is_static) {
            // A neighbor that finds no room is resolved again.
            let _ = new.restore_neighbor(to, address, entry, now);
        }
    }
}
