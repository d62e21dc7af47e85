//! Members as their owner changes them.
use super::choice::Used;
use super::other_tables::{HeldDown, Planned};
use super::places::MemberEndpoints;
use super::seats::{self, Seat, Seats};
use super::turns::Turns;
use super::{BalanceError, Balancer, Choice, Down, Member, MemberId, Method, Settings, maglev};
use artery_rcu::{Domain, Published};
use artery_storage::{Buckets, by_weight, slot_shares};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The members of a balancer, for the thread that changes them. Each change is seen by the next batch of
/// every worker; none waits.
///
/// A change that fails changes nothing. `now` is the time since any instant that stays the same.
pub struct Members {
    pub(super) settings: Settings,
    pub(super) seats: Seats,
    /// A change that will come, as it was announced.
    pub(super) planned: Option<Planned>,
    /// Members that are down whatever checks find.
    pub(super) held_down: Option<HeldDown>,
    resilient: Option<Resilient>,
    generation: u32,
    latest: Latest,
    published: Arc<Published<Choice>>,
}

fn address_bits(seat: &Seat) -> u128 {
    match seat.member.address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// What was published last.
#[derive(Clone, Debug, Default)]
struct Latest {
    /// By slot: a place.
    slots: Vec<u16>,
    /// By place: 0 for members that take no new flows.
    weights: Vec<u32>,
}

/// Buckets, by place, and when they were used.
struct Resilient {
    buckets: Buckets,
    used: Arc<Used>,
    /// Since when some have more than their share.
    unfair_since: Option<Duration>,
}

/// A member, to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Number that flows keep for the member.
    pub id: MemberId,
    /// Name, address, port and weight.
    pub member: Arc<Member>,
    /// Whether it can take flows: its checks pass, and it is not held down.
    pub is_up: bool,
    /// Whether its checks pass; None before the first result, and without checks.
    pub checked: Option<bool>,
    /// Whether it takes new flows.
    pub takes_new: bool,
    /// How many slots of the table lead to it, if the method has one.
    pub slots: usize,
}

/// What became of members by [`Members::replace_members`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replaced {
    /// Number of members that were added.
    pub added: usize,
    /// Number of members that were removed.
    pub removed: usize,
    /// So many have another weight now.
    pub changed: usize,
}

impl Members {
    /// None yet, for workers that take turns of `domain`.
    pub fn new(domain: &Arc<Domain>, settings: Settings) -> Result<Members, BalanceError> {
        check_size(settings.method, 0)?;
        let choice = Choice { method: settings.method, ..Choice::default() };
        Ok(Members {
            settings,
            seats: Seats::default(),
            planned: None,
            held_down: None,
            resilient: None,
            generation: 0,
            latest: Latest::default(),
            published: Arc::new(Published::new(domain, choice)),
        })
    }

    /// The handle by which a worker reads choices.
    pub fn balancer(&self) -> Balancer {
        Balancer::new(self.published.clone())
    }

    /// The same with members, for which one choice is made. An error is that of the member with this index.
    pub fn with_members(mut self, members: Vec<Member>) -> Result<Members, (usize, BalanceError)> {
        for (index, member) in members.into_iter().enumerate() {
            let added = check_size(self.settings.method, self.seats.len() + 1)
                .and_then(|()| self.seats.add_member(member, self.settings.starts_up));
            added.map_err(|error| (index, error))?;
        }
        self.publish_choice(Duration::ZERO);
        Ok(self)
    }

    /// Adds a member. Fails if its name or address is taken, or if there are too many.
    pub fn add_member(&mut self, member: Member, now: Duration) -> Result<MemberId, BalanceError> {
        check_size(self.settings.method, self.seats.len() + 1)?;
        let id = self.seats.add_member(member, self.settings.starts_up)?;
        self.apply_health();
        self.publish_choice(now);
        Ok(id)
    }

    /// Removes a member. Its flows must be assigned again.
    pub fn remove(&mut self, name: &str, now: Duration) -> Result<(), BalanceError> {
        self.seats.remove(name)?;
        self.publish_choice(now);
        Ok(())
    }

    /// Makes these the members. Those of the same name, address and port stay what they are.
    pub fn replace_members(&mut self, members: Vec<Member>, now: Duration) -> Result<Replaced, BalanceError> {
        check_list(self.settings.method, &members)?;
        let replaced = replace_seats(&mut self.seats, members, self.settings.starts_up)?;
        if replaced != Replaced::default() {
            self.apply_health();
            self.publish_choice(now);
        }
        Ok(replaced)
    }

    /// Gives a member another weight; 0 drains it: it keeps its flows and takes no new ones.
    pub fn set_weight(&mut self, name: &str, weight: u32, now: Duration) -> Result<(), BalanceError> {
        let seat = self.seats.get_mut(name)?;
        if seat.member.weight != weight {
            seat.member = Arc::new(Member { weight, ..(*seat.member).clone() });
            self.publish_choice(now);
        }
        Ok(())
    }

    /// Says of members whether their checks pass; None leaves one as it is. One choice is made for all.
    pub fn update_health(&mut self, is_up: impl Fn(&Member) -> Option<bool>, now: Duration) {
        for seat in self.seats.iter_mut() {
            seat.checked = is_up(&seat.member).or(seat.checked);
        }
        let is_planned = self.planned.as_mut().is_some_and(|planned| planned.update_health(is_up));
        if self.apply_health() || is_planned {
            self.publish_choice(now);
        }
    }

    /// Has members take flows as far as checks and the fleet let them; says whether that changes anything.
    pub(super) fn apply_health(&mut self) -> bool {
        let (starts_up, held_down) = (self.settings.starts_up, &self.held_down);
        let mut has_changed = false;
        for seat in self.seats.iter_mut() {
            let is_held = held_down.as_ref().is_some_and(|held| held.has(&seat.member.name));
            let (is_up, was_up) = (seat.checked.unwrap_or(starts_up) && !is_held, seat.is_up);
            has_changed |= is_up != was_up;
            seat.is_up = is_up;
        }
        has_changed
    }

    /// Changes the method. Members keep their health.
    pub fn update_settings(&mut self, settings: Settings, now: Duration) -> Result<(), BalanceError> {
        check_size(settings.method, self.seats.len())?;
        if settings != self.settings {
            if !matches!(settings.method, Method::Resilient { .. }) {
                self.resilient = None;
            }
            self.settings = settings;
            self.publish_choice(now);
        }
        Ok(())
    }

    /// Does what is due, and says when to come again: buckets go to members that have too few. What was said
    /// for a time ends with it.
    pub fn poll(&mut self, now: Duration) -> Option<Duration> {
        self.end_expired(now);
        let method = self.settings.method;
        let Method::Resilient { idle, force, .. } = method else { return None };
        if self.resilient.as_mut()?.rebalance_buckets(&self.latest.weights, method, now) > 0 {
            self.publish_choice(now);
        }
        let since = self.resilient.as_ref()?.unfair_since?;
        let look = now.saturating_add((idle / 16).clamp(Duration::from_millis(100), Duration::from_secs(10)));
        Some(force.map_or(look, |force| look.min(since.saturating_add(force))))
    }

    /// A member, to be shown.
    pub fn view_member(&self, name: &str) -> Result<MemberView, BalanceError> {
        Ok(self.view_of(self.seats.get(name)?, &self.slots_by_place()))
    }

    /// All members in the order of their names.
    pub fn view_members(&self) -> impl Iterator<Item = MemberView> {
        let slots = self.slots_by_place();
        self.seats.iter().map(move |seat| self.view_of(seat, &slots))
    }

    fn view_of(&self, seat: &Seat, slots: &[usize]) -> MemberView {
        let place = seat.id.place();
        MemberView {
            id: seat.id,
            member: seat.member.clone(),
            is_up: seat.is_up,
            checked: seat.checked,
            takes_new: self.latest.weights.get(place).is_some_and(|weight| *weight > 0),
            slots: slots[place],
        }
    }

    fn slots_by_place(&self) -> Vec<usize> {
        let mut counts = vec![0; self.seats.places().len()];
        self.latest.slots.iter().for_each(|place| counts[usize::from(*place)] += 1);
        counts
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.seats.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// How they are chosen.
    pub fn settings(&self) -> Settings {
        self.settings
    }
    /// The number of the latest choice.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    pub(super) fn publish_choice(&mut self, now: Duration) {
        let (weights, fails_open) = member_weights(&self.seats, self.settings);
        let slots = self.build_slots(&weights, now);
        self.generation = self.generation.wrapping_add(1);
        let used = self.resilient.as_ref().map(|resilient| resilient.used.clone()).unwrap_or_default();
        let table = Table { weights: weights.clone(), fails_open, slots: slots.clone() };
        let choice = table.into_choice(&self.seats, self.settings, self.generation);
        let others = self.other_tables(&choice);
        self.published.publish(Choice { used, others, ..choice });
        self.latest = Latest { slots, weights };
    }

    /// By slot: a place.
    fn build_slots(&mut self, weights: &[u32], now: Duration) -> Vec<u16> {
        let method = self.settings.method;
        if let Method::Resilient { buckets, .. } = method {
            return self.build_buckets(buckets as usize, weights, now);
        }
        table_slots(&self.seats, method, weights)
    }

    /// The owners of buckets, after those of members that take no new flows were given away.
    fn build_buckets(&mut self, count: usize, weights: &[u32], now: Duration) -> Vec<u16> {
        if weights.iter().all(|weight| *weight == 0) {
            return Vec::new(); // whoever comes back finds the buckets as they were
        }
        let resilient = self.resilient.take().filter(|had| had.buckets.owners().len() == count);
        let mut resilient = resilient.unwrap_or_else(|| Resilient {
            buckets: Buckets::new(count, weights),
            used: Arc::new(Used::new(count)),
            unfair_since: None,
        });
        resilient.buckets.fill_vacant(weights);
        resilient.rebalance_buckets(weights, self.settings.method, now);
        let owners = resilient.buckets.owners().to_vec();
        self.resilient = Some(resilient);
        owners
    }
}

impl Resilient {
    /// Moves buckets that are idle, or all if the time for that has come, to members that have too
    /// few. Says how many.
    fn rebalance_buckets(&mut self, weights: &[u32], method: Method, now: Duration) -> usize {
        let Method::Resilient { idle, force, .. } = method else { return 0 };
        if weights.iter().all(|weight| *weight == 0) {
            return 0;
        }
        let unfair = |since: Duration| now.saturating_sub(since);
        let forced = self.unfair_since.zip(force).is_some_and(|(since, force)| unfair(since) >= force);
        let used = &self.used;
        let may_move = |bucket| forced || used.is_idle(bucket, idle, now);
        let moved = self.buckets.balance_where(weights, usize::MAX, may_move);
        let is_unfair = self.buckets.misplaced_count(weights) > 0;
        self.unfair_since = is_unfair.then(|| self.unfair_since.unwrap_or(now));
        moved
    }
}

/// What a choice is made of, beside the members.
pub(super) struct Table {
    /// By place: 0 for members that take no new flows.
    weights: Vec<u32>,
    /// Whether members that are down are used since no other is left.
    fails_open: bool,
    /// By slot: a place.
    slots: Vec<u16>,
}

impl Table {
    /// That of a method which has no state.
    pub(super) fn new(seats: &Seats, settings: Settings) -> Table {
        let (weights, fails_open) = member_weights(seats, settings);
        let slots = table_slots(seats, settings.method, &weights);
        Table { weights, fails_open, slots }
    }

    pub(super) fn into_choice(self, seats: &Seats, settings: Settings, generation: u32) -> Choice {
        let Table { weights, fails_open, slots } = self;
        let stays = |seat: &Seat| seat.is_up || fails_open || settings.down == Down::Stays;
        let places = seats.places();
        let id =
            |seat: &Option<Seat>| seat.as_ref().filter(|seat| stays(seat)).map_or(0, |seat| seat.id.action());
        let reachable = seats.iter().filter(|seat| stays(seat));
        Choice {
            generation,
            method: settings.method,
            slots: slots.into(),
            ids: places.iter().map(id).collect(),
            weights: weights.into(),
            members: places.iter().map(|seat| seat.as_ref().map(|seat| seat.member.clone())).collect(),
            addresses: places.iter().map(|seat| seat.as_ref().map_or(0, address_bits)).collect(),
            by_name: seats.iter().map(|seat| seat.id.place() as u16).collect(),
            places: MemberEndpoints::from_members(reachable.map(|seat| &*seat.member)),
            used: Arc::default(),
            others: Box::default(),
            digest: OnceLock::new(),
        }
    }
}

/// Weights by place, 0 for those that take no new flows; and whether members that are down are used, since
/// no other member is left.
fn member_weights(seats: &Seats, settings: Settings) -> (Vec<u32>, bool) {
    let of = |is_fit: &dyn Fn(&Seat) -> bool| -> Vec<u32> {
        let weight = |seat: &Seat| if is_fit(seat) { seat.member.weight } else { 0 };
        seats.places().iter().map(|seat| seat.as_ref().map_or(0, weight)).collect()
    };
    let up = of(&|seat| seat.is_up);
    let is_any = |weights: &[u32]| weights.iter().any(|weight| *weight > 0);
    if is_any(&up) || !settings.fails_open {
        return (up, false);
    }
    let all = of(&|_| true);
    let fails_open = is_any(&all);
    (all, fails_open)
}

/// By slot: a place, for a method whose table has no past.
fn table_slots(seats: &Seats, method: Method, weights: &[u32]) -> Vec<u16> {
    let weight = |seat: &Seat| weights[seat.id.place()];
    let by_name: Vec<&Seat> = seats.iter().filter(|seat| weight(seat) > 0).collect();
    let named: Vec<(&str, u32)> = by_name.iter().map(|seat| (&*seat.member.name, weight(seat))).collect();
    let owners = members_by_slot(method, &named);
    owners.into_iter().map(|member| by_name[usize::from(member)].id.place() as u16).collect()
}

/// Makes these the members who have seats. Those of the same name, address and port stay what they are.
pub(super) fn replace_seats(
    seats: &mut Seats,
    members: Vec<Member>,
    starts_up: bool,
) -> Result<Replaced, BalanceError> {
    let mut replaced = Replaced::default();
    for name in seats_without(seats, &members) {
        seats.remove(&name)?;
        replaced.removed += 1;
    }
    for member in members {
        if let Ok(seat) = seats.get_mut(&member.name) {
            replaced.changed += usize::from(seat.member.weight != member.weight);
            seat.member = Arc::new(member);
        } else {
            seats.add_member(member, starts_up)?;
            replaced.added += 1;
        }
    }
    Ok(replaced)
}

/// Names of members that are not among these, or elsewhere.
fn seats_without(seats: &Seats, members: &[Member]) -> Vec<Arc<str>> {
    let places: BTreeSet<_> = members.iter().map(|to| (&to.name, to.address, to.port)).collect();
    let goes = |seat: &&Seat| {
        let Member { name, address, port, .. } = &*seat.member;
        !places.contains(&(name, *address, *port))
    };
    seats.iter().filter(goes).map(|seat| seat.member.name.clone()).collect()
}

/// Refuses members that can't be together, or with this method.
pub(super) fn check_list(method: Method, members: &[Member]) -> Result<(), BalanceError> {
    check_size(method, members.len())?;
    let mut names = BTreeSet::new();
    for member in members {
        seats::check_member(member)?;
        if !names.insert(&member.name) {
            return Err(BalanceError::Exists(member.name.to_string()));
        }
    }
    Ok(())
}

/// By slot: which of the members, which are given in the order of their names with weights that are not 0.
fn members_by_slot(method: Method, members: &[(&str, u32)]) -> Vec<u16> {
    let weights: Vec<u32> = members.iter().map(|(_, weight)| *weight).collect();
    match method {
        Method::Maglev(slots) => maglev::build_table(members, slots),
        Method::Hash | Method::Xor => by_weight(&weights),
        Method::PerPacket | Method::Flowlet { .. } => {
            let slots = by_weight(&weights).len();
            let exact: Vec<u32> =
                slot_shares(&weights, slots).into_iter().map(|share| share as u32).collect();
            Turns::new(&exact).take(slots).map(|member| member as u16).collect()
        }
        Method::Resilient { .. } | Method::LeastLoaded => Vec::new(),
    }
}

/// Whether a method can serve this many members.
fn check_size(method: Method, members: usize) -> Result<(), BalanceError> {
    match method {
        Method::Maglev(slots) if members > slots.count() as usize => {
            Err(BalanceError::TooFewSlots { members, slots: slots.count() })
        }
        Method::Resilient { buckets, .. } if !(1..=Method::MOST_BUCKETS).contains(&buckets) => {
            Err(BalanceError::Buckets(buckets))
        }
        Method::Resilient { buckets, .. } if members > buckets as usize => {
            Err(BalanceError::TooFewSlots { members, slots: buckets })
        }
        Method::Flowlet { gap } if gap > Method::LONGEST_GAP => Err(BalanceError::Gap(gap)),
        _ if members > super::MOST_MEMBERS => Err(BalanceError::TooMany(members)),
        _ => Ok(()),
    }
}
