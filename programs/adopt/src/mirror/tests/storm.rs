//! Random storms of changes.
use super::evaluator::{Answer, is_like};
use super::*;
use crate::kernel::{NextHopObject, ObjectKind, RecordKind};

const LINKS: u32 = 4;
const TABLES: [u32; 5] = [255, 254, 253, 100, 200];

struct Storm {
    random: Random,
    kernel: Evaluator,
    mirror: Mirror,
    sink: RecordingSink,
    /// Whether the mirror receives changes.
    is_heard: bool,
    /// Whether interfaces join VRFs and leave them.
    has_vrfs: bool,
}

/// The interfaces of the VRFs that there may be.
const VRFS: [u32; 2] = [LINKS + 1, LINKS + 2];

impl Storm {
    fn new(seed: u64) -> Storm {
        let (mirror, sink) = start(LINKS);
        let kernel = Evaluator {
            links: (1..=LINKS).map(|index| (index, link(index, true, true))).collect(),
            rules: [default_rules(Family::V4), default_rules(Family::V6)].concat(),
            ..Evaluator::default()
        };
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut storm = Storm { random, kernel, mirror, sink, is_heard: true, has_vrfs: false };
        // With a rule more, local is a table like the others in both families.
        for family in [Family::V4, Family::V6] {
            storm.add_rule(rule(family, 32000, RuleAction::Nothing));
        }
        storm
    }

    /// One in which interfaces belong to VRFs, whose tables rules lead to, too.
    fn with_vrfs(seed: u64) -> Storm {
        let mut storm = Storm::new(seed);
        storm.has_vrfs = true;
        storm.sink.follows_vrfs = true;
        for family in [Family::V4, Family::V6] {
            let mut l3mdev = rule(family, 1000, RuleAction::Table(0));
            l3mdev.selectors.is_vrf = true;
            storm.add_rule(l3mdev);
        }
        VRFS.into_iter().for_each(|vrf| storm.add_vrf(vrf));
        storm
    }

    fn add_vrf(&mut self, index: u32) {
        let table = self.random.pick(&[100, 200, 300]);
        let vrf = Link { kind: LinkKind::Vrf { table }, ..link(index, true, true) };
        self.kernel.links.insert(index, vrf.clone());
        self.tell(came(Record::Link(vrf)));
    }

    /// A VRF comes or goes, or an interface joins or leaves one.
    fn change_vrf(&mut self) {
        let vrf = self.random.pick(&VRFS);
        let port = self.random.below(LINKS as usize) as u32 + 1;
        if !self.kernel.links.contains_key(&vrf) {
            self.add_vrf(vrf);
        } else if self.random.one_in(4) {
            let is_port = |link: &&Link| link.master == Some(vrf);
            let ports: Vec<u32> = self.kernel.links.values().filter(is_port).map(|link| link.index).collect();
            ports.into_iter().for_each(|port| self.set_master(port, None));
            let gone = self.kernel.links.remove(&vrf).unwrap();
            self.tell(went(Record::Link(gone)));
        } else {
            let master = (!self.random.one_in(3)).then_some(vrf);
            self.set_master(port, master);
        }
    }

    fn set_master(&mut self, port: u32, master: Option<u32>) {
        let link = self.kernel.links.get_mut(&port).unwrap();
        link.master = master;
        let link = link.clone();
        self.tell(came(Record::Link(link)));
    }

    fn tell(&mut self, news: News) {
        if self.is_heard {
            self.mirror.apply_change(news, &mut self.sink);
        }
    }

    fn step(&mut self) {
        if self.has_vrfs && self.random.one_in(20) {
            return self.change_vrf();
        }
        match self.random.below(40) {
            0 => self.change_link(),
            1 => self.change_rules(),
            2..5 => self.change_object(),
            5..15 => self.remove_route(),
            _ => self.add_route(),
        }
    }

    fn change_link(&mut self) {
        let index = self.random.below(LINKS as usize) as u32 + 1;
        if self.kernel.links[&index].is_admin_up {
            self.kernel.down(index);
        } else {
            self.kernel.links.get_mut(&index).unwrap().is_admin_up = true;
        }
        let link = self.kernel.links[&index].clone();
        self.tell(came(Record::Link(link)));
    }

    fn add_rule(&mut self, rule: Rule) {
        self.kernel.rules.push(rule.clone());
        self.tell(came(Record::Rule(rule)));
    }

    fn change_rules(&mut self) {
        let family = self.random.pick(&[Family::V4, Family::V6]);
        let own: Vec<Rule> =
            self.kernel.rules.iter().filter(|rule| rule.priority % 10 == 1).cloned().collect();
        if own.len() > 4 {
            let gone = self.random.pick(&own);
            self.kernel.rules.retain(|rule| *rule != gone);
            return self.tell(went(Record::Rule(gone)));
        }
        let priority = self.random.below(3300) as u32 * 10 + 1;
        let action = match self.random.below(10) {
            0 => RuleAction::Goto(32766),
            1 => RuleAction::Refuse,
            _ => RuleAction::Table(self.random.pick(&TABLES)),
        };
        if matches!(action, RuleAction::Goto(_)) && priority > 32766 {
            return;
        }
        let mut rule = rule(family, priority, action);
        if self.has_vrfs && self.random.one_in(3) {
            rule.selectors.is_vrf = true;
        }
        if self.random.one_in(3) && matches!(action, RuleAction::Table(_)) {
            rule.suppressed_len = Some(self.random.below(20) as u32);
        }
        if !self.kernel.rules.iter().any(|old| old.family == family && old.priority == priority) {
            self.add_rule(rule);
        }
    }

    fn change_object(&mut self) {
        let id = self.random.below(6) as u32 + 1;
        if self.random.one_in(4) && self.kernel.objects.contains_key(&id) {
            let object = self.kernel.objects[&id].clone();
            self.kernel.without_object(id);
            return self.tell(went(Record::NextHop(object)));
        }
        let is_group = id > 4;
        let kind = if is_group { self.random_group() } else { self.random_single() };
        // The kernel doesn't turn a single object into a group, nor a group into a single one, and makes none
        // by an interface that is down.
        if let Some(kind) = kind {
            let object = NextHopObject { id, kind };
            self.kernel.objects.insert(id, object.clone());
            self.tell(came(Record::NextHop(object)));
        }
    }

    fn random_link(&mut self) -> Option<u32> {
        let link = self.random.below(LINKS as usize) as u32 + 1;
        self.kernel.links[&link].is_admin_up.then_some(link)
    }

    fn random_single(&mut self) -> Option<ObjectKind> {
        let gateway = Some(format!("10.0.0.{}", self.random.below(4)).parse().unwrap());
        Some(ObjectKind::Single { link: self.random_link()?, gateway })
    }

    fn random_group(&mut self) -> Option<ObjectKind> {
        let there: Vec<u32> = self.kernel.objects.keys().copied().filter(|id| *id <= 4).collect();
        if there.is_empty() {
            return None;
        }
        let mut members = vec![self.random.pick(&there), self.random.pick(&there)];
        members.dedup();
        Some(ObjectKind::Group(members.into_iter().map(|id| (id, id as u16 + 1)).collect()))
    }

    fn random_prefix(&mut self) -> String {
        if self.random.one_in(2) {
            let len = self.random.pick(&[0, 8, 9, 10, 16, 24, 31, 32]);
            let address =
                10 << 24 | self.random.below(3) << 22 | self.random.below(3) << 8 | self.random.below(3);
            Prefix::<u32>::of(address as u32, len).to_string()
        } else {
            let len = self.random.pick(&[0, 32, 33, 48, 64, 127, 128]);
            let high = 0x2001_0db8u128 << 96 | (self.random.below(3) as u128) << 94;
            let low = (self.random.below(3) as u128) << 64 | self.random.below(3) as u128;
            Prefix::<u128>::of(high | low, len).to_string()
        }
    }

    fn add_route(&mut self) {
        let table = self.random.pick(&TABLES);
        let prefix = self.random_prefix();
        let kinds = [RouteKind::Local, RouteKind::Unreachable, RouteKind::Throw, RouteKind::Throw];
        let mut new = if self.random.one_in(4) {
            route(table, &prefix, self.random.pick(&kinds), &[])
        } else {
            let mut new = route(table, &prefix, RouteKind::Unicast, &[]);
            self.lead_somewhere(&mut new.path);
            new
        };
        new.priority = self.random.below(3) as u32;
        if self.random.one_in(8) && new.family == Family::V6 {
            new.source = Some(("2001:db8:b::".parse().unwrap(), self.random.pick(&[48, 64])));
        } else if self.random.one_in(8) && new.family == Family::V4 {
            new.tos = 16;
        }
        if new.path.kind == RouteKind::Unicast && new.path.hops.is_empty() && new.path.object == 0 {
            return;
        }
        self.kernel.put(new.clone());
        let manner = Manner::Replace;
        self.tell(News { manner, ..came(Record::Route(new)) });
    }

    /// Gives a path next hops that are up, or an object that there is.
    fn lead_somewhere(&mut self, path: &mut Path) {
        let id = self.random.below(12) as u32;
        if self.kernel.objects.contains_key(&id) {
            path.object = id;
            return;
        }
        for _ in 0..=self.random.below(3) {
            let gateway = format!("10.0.0.{}", self.random.below(5));
            if let Some(link) = self.random_link() {
                let mut hop = hop(link, &gateway);
                hop.weight = self.random.below(3) as u16 + 1;
                path.hops.push(hop);
            }
        }
        path.hops.dedup_by_key(|hop| (hop.link, hop.gateway));
    }

    fn remove_route(&mut self) {
        if self.kernel.routes.is_empty() {
            return;
        }
        let gone = self.random.pick(&self.kernel.routes);
        self.kernel.routes.retain(|route| !is_like(route, &gone));
        self.tell(went(Record::Route(gone)));
    }

    /// Looks at everything, in the middle of changes if there are to be some.
    fn look(&mut self, changes: usize) {
        for part in RecordKind::ALL {
            self.mirror.begin_part(part);
            for record in self.records(part) {
                self.mirror.add_found(record, &mut self.sink);
                if changes > 0 && self.random.one_in(4) {
                    (0..changes).for_each(|_| self.step());
                }
            }
            self.mirror.end_part(true, &mut self.sink);
            while self.mirror.sweep_routes(&mut self.sink) {
                if self.random.one_in(4) {
                    (0..changes).for_each(|_| self.step());
                }
            }
        }
    }

    fn records(&self, part: RecordKind) -> Vec<Record> {
        match part {
            RecordKind::Links => self.kernel.links.values().cloned().map(Record::Link).collect(),
            RecordKind::NextHops => self.kernel.objects.values().cloned().map(Record::NextHop).collect(),
            RecordKind::Rules(family) => {
                let mut rules: Vec<Rule> =
                    self.kernel.rules.iter().filter(|rule| rule.family == family).cloned().collect();
                rules.sort_by_key(|rule| rule.priority);
                rules.into_iter().map(Record::Rule).collect()
            }
            RecordKind::Routes(family) => {
                let mut routes: Vec<Route> =
                    self.kernel.routes.iter().filter(|route| route.family == family).cloned().collect();
                // Routes for some sources only come before all others.
                routes.sort_by_key(|route| {
                    (
                        route.table,
                        route.source.is_none(),
                        route.destination,
                        route.len,
                        route.source,
                        255 - route.tos,
                        route.priority,
                    )
                });
                routes.into_iter().map(Record::Route).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Compares for many addresses, those at the ends of prefixes among them.
    fn compare(&mut self, when: &str) {
        for _ in 0..60 {
            let prefix = self.random_prefix();
            let address: IpAddr = prefix.split_once('/').unwrap().0.parse().unwrap();
            let near = self.random.below(4) as u32;
            let address = match address {
                IpAddr::V4(address) => IpAddr::V4((address.to_bits() ^ near).into()),
                IpAddr::V6(address) => IpAddr::V6((address.to_bits() ^ u128::from(near)).into()),
            };
            let answer = |told: Option<&NextHopSet>| match told {
                None | Some(NextHopSet::Kernel) => Answer::Kernel,
                Some(NextHopSet::Hops(hops)) => Answer::Hops(hops.clone()),
            };
            let told = answer(self.sink.lookup(address));
            let right = self.kernel.lookup(address);
            assert_eq!(told, right, "{when}: {address}{}", self.kernel.told_of(address));
            for link in 1..=if self.has_vrfs { LINKS } else { 0 } {
                let told = answer(self.sink.lookup_from(link, address));
                let right = self.kernel.lookup_from(link, address);
                let master = self.kernel.links[&link].master;
                let why = self.kernel.told_of(address);
                assert_eq!(told, right, "{when}: {address} from {link} of {master:?}{why}");
            }
        }
    }

    /// In how many VRFs some address goes elsewhere than by the routes of no VRF.
    fn count_differing(&self) -> usize {
        let differs =
            |routes: &&crate::mirror::VrfRoutes| routes.v4 != self.sink.v4 || routes.v6 != self.sink.v6;
        self.sink.vrfs.values().filter(differs).count()
    }
}

#[test]
fn after_each_change_all_is_as_the_kernel_does_it() {
    for seed in 0..60 {
        let mut storm = Storm::new(seed);
        for step in 0..400 {
            storm.step();
            if step % 4 == 0 {
                storm.compare(&format!("seed {seed} step {step}"));
            }
        }
    }
}

#[test]
fn ports_of_vrfs_go_by_their_own_tables_after_each_change() {
    let (mut most, mut differing) = (0, 0);
    for seed in 300..340 {
        let mut storm = Storm::with_vrfs(seed);
        for step in 0..400 {
            storm.step();
            if step % 4 == 0 {
                storm.compare(&format!("seed {seed} step {step}"));
                most = most.max(storm.sink.vrfs.len());
                differing += storm.count_differing();
            }
        }
    }
    assert!(most == 2 && differing > 1000, "{most} {differing}");
}

#[test]
fn what_was_missed_of_vrfs_is_found_by_looking_at_everything() {
    for seed in 400..420 {
        let mut storm = Storm::with_vrfs(seed);
        for round in 0..12 {
            storm.is_heard = true;
            (0..40).for_each(|_| storm.step());
            storm.is_heard = false;
            (0..10).for_each(|_| storm.step());
            storm.is_heard = true;
            storm.look(0);
            storm.compare(&format!("seed {seed} round {round}"));
        }
    }
}

#[test]
fn what_was_missed_is_found_by_looking_at_everything() {
    for seed in 100..140 {
        let mut storm = Storm::new(seed);
        for round in 0..12 {
            storm.is_heard = true;
            (0..40).for_each(|_| storm.step());
            storm.is_heard = false;
            (0..10).for_each(|_| storm.step());
            storm.is_heard = true;
            storm.look(0);
            storm.compare(&format!("seed {seed} round {round}"));
            assert_eq!(storm.mirror.prefixes(Family::V4) + storm.mirror.prefixes(Family::V6), {
                let mut prefixes: Vec<_> = storm
                    .kernel
                    .routes
                    .iter()
                    .map(|route| (route.table, route.destination, route.len, route.source))
                    .collect();
                prefixes.sort_unstable();
                prefixes.dedup();
                prefixes.len()
            });
        }
    }
}

#[test]
fn changes_in_the_middle_of_a_look_are_not_undone() {
    for seed in 200..230 {
        let mut storm = Storm::new(seed);
        for round in 0..12 {
            (0..40).for_each(|_| storm.step());
            storm.look(1);
            // What a resync may have missed because changes arrived during it, the next resync keeps.
            storm.look(0);
            storm.look(0);
            storm.compare(&format!("seed {seed} round {round}"));
        }
    }
}
