//! Paths of routes, each different one once, with what it is to each router.
use super::next_hops::NextHops;
use super::reason::RejectReason;
use super::target::Target;
use artery_l3::router::{Protocol, RouteSpec};
use artery_netlink::Path;
use std::collections::HashMap;

/// The number of a path.
pub(super) type PathId = u32;

/// The properties that distinguish paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PathKey {
    pub(super) protocol: Protocol,
    /// The path, or why the router can't have it.
    pub(super) path: Result<Path, RejectReason>,
    /// Whether numbers of interfaces are those of this host.
    pub(super) is_local: bool,
    /// The connection that sent it, if it uses a next-hop object of that connection; else 0.
    pub(super) session: u32,
}

pub(super) struct PathRecord {
    pub(super) key: PathKey,
    /// The route for each target, by the target's number.
    specs: Vec<Result<RouteSpec, RejectReason>>,
    routes: u32,
}

#[derive(Default)]
pub(super) struct Paths {
    records: Vec<Option<PathRecord>>,
    free: Vec<PathId>,
    numbers: HashMap<PathKey, PathId>,
}

impl Paths {
    /// The number of a path, for one more route.
    pub(super) fn acquire_path(&mut self, key: PathKey, next_hops: &NextHops, targets: &[Target]) -> PathId {
        if let Some(number) = self.numbers.get(&key) {
            if let Some(record) = &mut self.records[*number as usize] {
                record.routes += 1;
                for (spec, target) in record.specs.iter_mut().zip(targets) {
                    // The kernel may be able to answer now.
                    if matches!(spec, Err(RejectReason::UnknownInterface)) {
                        *spec = compute_spec(&record.key, next_hops, target);
                    }
                }
            }
            return *number;
        }
        let specs = targets.iter().map(|target| compute_spec(&key, next_hops, target)).collect();
        let record = PathRecord { key: key.clone(), specs, routes: 1 };
        let number = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            (self.records.len() - 1) as PathId
        });
        self.records[number as usize] = Some(record);
        self.numbers.insert(key, number);
        number
    }

    /// Counts one route less, and removes the path with its last route.
    pub(super) fn release_path(&mut self, number: PathId) {
        let slot = &mut self.records[number as usize];
        let Some(record) = slot else { return };
        record.routes -= 1;
        if record.routes == 0 {
            self.numbers.remove(&record.key);
            *slot = None;
            self.free.push(number);
        }
    }

    /// The protocol of a path.
    pub(super) fn path_protocol(&self, number: PathId) -> Protocol {
        self.path_record(number).key.protocol
    }

    /// What a path is to a target.
    pub(super) fn route_spec(&self, number: PathId, target: usize) -> Result<&RouteSpec, RejectReason> {
        self.path_record(number).specs[target].as_ref().map_err(|reason| *reason)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// There is one more target, the last one.
    pub(super) fn add_target(&mut self, next_hops: &NextHops, target: &Target, session: u32) {
        for record in self.records.iter_mut().flatten() {
            // Objects of an earlier connection are removed; their results are in the specs of other targets.
            let is_gone = record.key.session != 0 && record.key.session != session;
            let known = record.specs.first().cloned().filter(|_| is_gone);
            record.specs.push(known.unwrap_or_else(|| compute_spec(&record.key, next_hops, target)));
        }
    }

    /// Removes a target; those after it move up.
    pub(super) fn remove_target(&mut self, target: usize) {
        self.records.iter_mut().flatten().for_each(|record| _ = record.specs.remove(target));
    }

    /// Recomputes the paths of a connection that depend on a changed next-hop object, and
    /// returns those that changed.
    pub(super) fn update_changed(
        &mut self,
        object: u32,
        session: u32,
        next_hops: &NextHops,
        targets: &[Target],
    ) -> Vec<PathId> {
        let mut changed = Vec::new();
        for (number, record) in (0..).zip(&mut self.records) {
            let Some(record) = record.as_mut().filter(|record| record.key.session == session) else {
                continue;
            };
            let Ok(path) = &record.key.path else { continue };
            if path.object == 0 || !next_hops.depends_on(path.object, object) {
                continue;
            }
            let specs: Vec<_> =
                targets.iter().map(|target| compute_spec(&record.key, next_hops, target)).collect();
            if specs != record.specs {
                record.specs = specs;
                changed.push(number);
            }
        }
        changed
    }

    fn path_record(&self, number: PathId) -> &PathRecord {
        self.records[number as usize].as_ref().unwrap_or_else(|| unreachable!("a route has path {number}"))
    }
}

fn compute_spec(key: &PathKey, next_hops: &NextHops, target: &Target) -> Result<RouteSpec, RejectReason> {
    target.route_spec(key.path.as_ref().map_err(|reason| *reason)?, next_hops, key.is_local)
}
