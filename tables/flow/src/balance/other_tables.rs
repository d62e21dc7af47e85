//! Tables beside the present one, by which other machines may choose for the flows of this one: that of a
//! change which is planned, and that of a fleet whose machines reach members which this one does not reach.
use super::members::{Table, check_list, replace_seats};
use super::seats::{Seat, Seats};
use super::{BalanceError, Choice, Member, Members, Settings};
use crate::Seed;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// A table that flows are compared with beside the present one. Members of both have one number.
#[derive(Debug)]
pub struct OtherTable {
    choice: Choice,
    seed: Option<Seed>,
}

impl OtherTable {
    /// The seed of the hash that its members are chosen by; `present` is that of the present table.
    #[inline]
    pub fn seed<'a>(&'a self, present: &'a Seed) -> &'a Seed {
        self.seed.as_ref().unwrap_or(present)
    }
}

impl Deref for OtherTable {
    type Target = Choice;

    #[inline]
    fn deref(&self) -> &Choice {
        &self.choice
    }
}

/// What members will be by a change that is planned.
#[derive(Clone, Debug)]
pub struct PlannedChange {
    /// All members of then.
    pub members: Vec<Member>,
    /// How they will be chosen.
    pub settings: Settings,
    /// The seed of the hash that they will be chosen by, if it is another one.
    pub seed: Option<Seed>,
}

/// A name, an address and a port: a member with another one of them is another member.
type Identity = (Arc<str>, IpAddr, Option<u16>);

fn identity(member: &Member) -> Identity {
    (member.name.clone(), member.address, member.port)
}

/// A planned change, until it is forgotten.
pub(super) struct Planned {
    change: PlannedChange,
    until: Duration,
    /// Of members that are not there yet: whether their checks pass.
    checked: BTreeMap<Identity, Option<bool>>,
}

impl Planned {
    /// Takes what checks found of members that are not there yet; whether that is new.
    pub(super) fn update_health(&mut self, is_up: impl Fn(&Member) -> Option<bool>) -> bool {
        let mut has_changed = false;
        for member in &self.change.members {
            if let Some(checked) = self.checked.get_mut(&identity(member)) {
                let is_up = is_up(member).or(*checked);
                has_changed |= is_up != *checked;
                *checked = is_up;
            }
        }
        has_changed
    }

    /// Members as they will be, if all of them can be.
    fn seats(&self, present: &Seats, starts_up: bool) -> Result<Seats, BalanceError> {
        let mut seats = present.clone();
        replace_seats(&mut seats, self.change.members.clone(), starts_up)?;
        for seat in seats.iter_mut() {
            if let Some(checked) = self.checked.get(&identity(&seat.member)) {
                seat.is_up = checked.unwrap_or(starts_up);
            }
        }
        Ok(seats)
    }
}

/// Members that are down for a time, whatever checks find.
#[derive(Clone, Debug)]
pub(super) struct HeldDown {
    names: BTreeSet<Arc<str>>,
    until: Duration,
}

impl HeldDown {
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

impl Members {
    /// Has flows compared, until then, with the table that a change will make. Refuses one that could not be
    /// made. One that was planned before is forgotten.
    pub fn plan_change(
        &mut self,
        change: PlannedChange,
        until: Duration,
        now: Duration,
    ) -> Result<(), BalanceError> {
        check_list(change.settings.method, &change.members)?;
        let mut planned = Planned { change, until, checked: BTreeMap::new() };
        let seats = planned.seats(&self.seats, self.settings.starts_up)?;
        let before = self.planned.take();
        for seat in seats.iter().filter(|seat| self.is_new(seat)) {
            let identity = identity(&seat.member);
            let known = before.as_ref().and_then(|before| *before.checked.get(&identity)?);
            planned.checked.insert(identity, known);
        }
        self.planned = Some(planned);
        self.publish_choice(now);
        Ok(())
    }

    fn is_new(&self, seat: &Seat) -> bool {
        !self.seats.get(&seat.member.name).is_ok_and(|present| present.id == seat.id)
    }

    /// Forgets the change that is planned.
    pub fn abandon_plan(&mut self, now: Duration) {
        if self.planned.take().is_some() {
            self.publish_choice(now);
        }
    }

    /// Whether a change is planned.
    pub fn has_plan(&self) -> bool {
        self.planned.is_some()
    }

    /// Members that the planned change adds, so that their health is known when it comes. Those that take the
    /// name of another one are left out.
    pub fn planned_members(&self) -> impl Iterator<Item = &Member> {
        let members = self.planned.iter().flat_map(|planned| &planned.change.members);
        members.filter(|member| self.seats.get(&member.name).is_err())
    }

    /// Whether members that the planned change adds have no result of their checks yet.
    pub fn awaits_planned(&self) -> bool {
        let Some(planned) = self.planned.as_ref().filter(|_| !self.settings.starts_up) else { return false };
        self.planned_members().any(|member| planned.checked.get(&identity(member)) == Some(&None))
    }

    /// Has these members, and no others, be down until then, as most machines of a fleet find them. Flows are
    /// compared with the table that those machines have, too, who reach all others. Names that no member has
    /// are kept for members to come.
    pub fn hold_down<'a>(&mut self, names: impl Iterator<Item = &'a str>, until: Duration, now: Duration) {
        let names: BTreeSet<Arc<str>> = names.map(Arc::from).collect();
        let is_new = self.held_down.as_ref().is_none_or(|held| held.names != names);
        self.held_down = Some(HeldDown { names, until });
        if self.apply_health() || is_new {
            self.publish_choice(now);
        }
    }

    /// Takes over which members another balancer holds down, and with `takes_checks` what checks found of
    /// members that it has, too, or was to have.
    pub fn adopt_health(&mut self, old: &Members, takes_checks: bool, now: Duration) {
        self.held_down.clone_from(&old.held_down);
        let known = |member: &Member| {
            let seat = old.seats.get(&member.name).ok();
            let seat = seat.filter(|seat| identity(&seat.member) == identity(member));
            let planned = || old.planned.as_ref()?.checked.get(&identity(member)).copied().flatten();
            seat.and_then(|seat| seat.checked).or_else(planned)
        };
        for seat in self.seats.iter_mut().filter(|_| takes_checks) {
            seat.checked = known(&seat.member).or(seat.checked);
        }
        if self.apply_health() || self.held_down.is_some() {
            self.publish_choice(now);
        }
    }

    /// Ends what was said for a time that is over.
    pub(super) fn end_expired(&mut self, now: Duration) {
        let has_planned = self.planned.take_if(|planned| planned.until <= now).is_some();
        let was_held = self.held_down.take_if(|held| held.until <= now).is_some();
        if was_held {
            self.apply_health();
        }
        if was_held || has_planned {
            self.publish_choice(now);
        }
    }

    /// The tables that flows are compared with beside the present one, as far as they are others.
    pub(super) fn other_tables(&self, present: &Choice) -> Box<[OtherTable]> {
        if !self.settings.method.is_pure() {
            return Box::default();
        }
        let tables = [self.planned_table(present), self.fleet_table(present)];
        tables.into_iter().flatten().collect()
    }

    fn planned_table(&self, present: &Choice) -> Option<OtherTable> {
        let planned = self.planned.as_ref()?;
        let PlannedChange { settings, seed, .. } = planned.change;
        if !settings.method.is_pure() {
            return None;
        }
        let seats = planned.seats(&self.seats, self.settings.starts_up).ok()?;
        let choice = Table::new(&seats, settings).into_choice(&seats, settings, present.generation());
        (seed.is_some() || differ(&choice, present)).then_some(OtherTable { choice, seed })
    }

    /// The table of machines that reach all members which are not held down.
    fn fleet_table(&self, present: &Choice) -> Option<OtherTable> {
        let held = self.held_down.as_ref()?;
        let mut seats = self.seats.clone();
        for seat in seats.iter_mut() {
            seat.is_up = !held.has(&seat.member.name);
        }
        let choice =
            Table::new(&seats, self.settings).into_choice(&seats, self.settings, present.generation());
        differ(&choice, present).then_some(OtherTable { choice, seed: None })
    }
}

/// Whether some flow may get another member by one than by the other.
fn differ(one: &Choice, other: &Choice) -> bool {
    let members =
        |choice: &'_ Choice| (0..choice.slots.len()).map(|slot| choice.in_slot(slot)).collect::<Vec<_>>();
    one.method != other.method || members(one) != members(other)
}
