//! Lookups of workers: the member that takes a new flow, and the member of a known one. See
//! [`Members`](super::Members).
use super::maglev::{mix_word, name_hash};
use super::places::MemberEndpoints;
use super::{Local, Member, MemberId, Method, OtherTable};
use artery_rcu::{Published, Turn};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What methods choose by, of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flow {
    /// A hash of its addresses, ports and protocol; the upper half decides. Whoever knows the hash's seed can
    /// send all flows to one member.
    pub hash: u64,
    /// Its addresses and ports, combined by exclusive or; for [`Method::Xor`] alone.
    pub xor: u32,
}

/// A worker's handle to the latest choice.
#[derive(Clone, Debug)]
pub struct Balancer(Arc<Published<Choice>>);

impl Balancer {
    pub(crate) fn new(published: Arc<Published<Choice>>) -> Balancer {
        Balancer(published)
    }
    /// The choice as of this turn or newer.
    ///
    /// # Panics
    /// When `turn` is of another domain than the members.
    #[inline]
    pub fn choice_at<'t>(&'t self, turn: &'t Turn<'_>) -> &'t Choice {
        self.0.read(turn)
    }
}

/// Members as of one time.
#[derive(Debug, Default)]
pub struct Choice {
    pub(crate) generation: u32,
    pub(crate) method: Method,
    /// Member index by slot. None if no member takes new flows.
    pub(crate) slots: Box<[u16]>,
    /// Member ids by member index.
    pub(crate) ids: Box<[u32]>,
    /// By place: 0 for members that take no new flows.
    pub(crate) weights: Box<[u32]>,
    /// Members by member index.
    pub(crate) members: Box<[Option<Arc<Member>>]>,
    /// By place: the bits of its address.
    pub(crate) addresses: Box<[u128]>,
    /// Places in the order of names.
    pub(crate) by_name: Box<[u16]>,
    /// Of the members that flows can have.
    pub(crate) places: MemberEndpoints,
    pub(crate) used: Arc<Used>,
    pub(crate) others: Box<[OtherTable]>,
    /// Of the table, once it was asked for.
    pub(crate) digest: OnceLock<u64>,
}

impl Choice {
    /// The generation: it changes with each change of members. A flow found under another generation must be
    /// checked again: if [`member`](Self::member) still knows its member, it keeps it.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }
    /// How members are chosen.
    #[inline]
    pub fn method(&self) -> Method {
        self.method
    }
    /// Other tables that flows are compared with, of methods that [are pure](Method::is_pure).
    #[inline]
    pub fn others(&self) -> &[OtherTable] {
        &self.others
    }

    /// The member that takes a new flow, or, where the [method is for packets](Method::is_for_packets), a
    /// packet. None if no member does.
    #[inline]
    pub fn pick_member(&self, local: &mut Local, flow: Flow, now: Duration) -> Option<MemberId> {
        match self.method {
            Method::Maglev(_) | Method::Hash => self.in_slot(fold_hash(flow.hash, self.slots.len())),
            Method::Xor => self.in_slot(flow.xor as usize % self.slots.len().max(1)),
            Method::Resilient { .. } => {
                let slot = fold_hash(flow.hash, self.slots.len());
                self.used.mark_used(slot, now);
                self.in_slot(slot)
            }
            Method::PerPacket => local.next_in_rotation(self),
            Method::Flowlet { gap } => local.flowlet_member(self, flow.hash, gap, now),
            Method::LeastLoaded => local.least_loaded(self),
        }
    }

    /// The member that the table has for a flow, where the [method is pure](Method::is_pure): the one that it
    /// would get if it were new.
    #[inline]
    pub fn table_member(&self, flow: Flow) -> Option<MemberId> {
        match self.method {
            Method::Xor => self.in_slot(flow.xor as usize % self.slots.len().max(1)),
            _ => self.in_slot(fold_hash(flow.hash, self.slots.len())),
        }
    }

    /// A digest of what [`table_member`](Self::table_member) finds, if the [method is pure](Method::is_pure):
    /// of the method, and of the member of each slot, by name. It is the same on all machines and of all
    /// versions. It takes a moment when it is first asked for.
    pub fn table_digest(&self) -> Option<u64> {
        self.method.is_pure().then(|| *self.digest.get_or_init(|| self.compute_digest()))
    }

    fn compute_digest(&self) -> u64 {
        let hash = |text: &str| name_hash(text, 0x6469_6765_7374_0001);
        let name = |member: &Option<Arc<Member>>| member.as_ref().map_or(0, |member| hash(&member.name));
        let names: Vec<u64> = self.members.iter().map(name).collect();
        let slot = |(slot, place): (u64, &u16)| mix_word(mix_word(slot) ^ names[usize::from(*place)]);
        let slots = (0..).zip(&self.slots).map(slot).fold(self.slots.len() as u64, u64::wrapping_add);
        mix_word(slots ^ hash(self.method.name()))
    }

    /// The member that most likely has a flow of which no state is kept: the one that a new flow would get,
    /// if a hash decides; else one that is the same each time. Nothing is recorded.
    pub fn guess_member(&self, local: &Local, flow: Flow, now: Duration) -> Option<MemberId> {
        match self.method {
            Method::Flowlet { gap } => {
                let member = local.flowlet_under_way(self, flow.hash, gap, now);
                member.or_else(|| self.table_member(flow))
            }
            Method::LeastLoaded => {
                let takes_new = || self.members().map(|(id, _)| id).filter(|id| self.takes_new(*id));
                takes_new().nth(fold_hash(flow.hash, takes_new().count()))
            }
            _ => self.table_member(flow),
        }
    }

    #[inline]
    pub(crate) fn in_slot(&self, slot: usize) -> Option<MemberId> {
        let place = self.slots.get(slot)?;
        MemberId::from_action(*self.ids.get(usize::from(*place))?)
    }

    /// The member that a known flow has the number of, as long as it lives: also when it takes no new flows.
    /// None if the flow must be assigned again.
    #[inline]
    pub fn member(&self, action: u32) -> Option<&Member> {
        let id = self.living_member(action)?;
        self.members.get(id.place())?.as_deref()
    }
    /// The bits of a member's address, of which an IPv4 address has the last 32; 0 if there
    /// is no such member.
    #[inline]
    pub fn address_bits(&self, id: MemberId) -> u128 {
        self.addresses.get(id.place()).copied().unwrap_or(0)
    }
    /// The number of the member that a known flow has the number of, if it lives.
    #[inline]
    pub fn living_member(&self, action: u32) -> Option<MemberId> {
        let id = MemberId::from_action(action)?;
        (*self.ids.get(id.place())? == action).then_some(id)
    }
    /// Whether a member takes new flows.
    #[inline]
    pub fn takes_new(&self, id: MemberId) -> bool {
        self.living_member(id.action()).is_some() && self.weights[id.place()] > 0
    }
    /// The member of this name, if flows can have it: for flows from elsewhere, which know it by name.
    pub fn find_named(&self, name: &str) -> Option<MemberId> {
        let of = |place: &u16| self.members[usize::from(*place)].as_deref();
        let at =
            self.by_name.binary_search_by(|place| of(place).map(|member| &*member.name).cmp(&Some(name)));
        MemberId::from_action(self.ids[usize::from(self.by_name[at.ok()?])])
    }
    /// The members that flows can have, in the order of their names.
    pub fn members(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        self.by_name.iter().filter_map(|place| {
            let place = usize::from(*place);
            Some((MemberId::from_action(self.ids[place])?, self.members[place].as_deref()?))
        })
    }
    /// Whether a member that flows can have sends from there. One without a port of its own has `port`; if
    /// that is none, any.
    #[inline]
    pub fn has_member_at(&self, address: IpAddr, at: u16, port: Option<u16>) -> bool {
        self.places.has_member(address, at, port)
    }
    /// How many places there are, for arrays with room for each member.
    pub fn place_count(&self) -> usize {
        self.ids.len()
    }
}

/// Where a hash falls among this many.
#[inline]
fn fold_hash(hash: u64, count: usize) -> usize {
    (((hash >> 32) * count as u64) >> 32) as usize
}

/// When buckets were used last, as all workers report.
#[derive(Debug, Default)]
pub(crate) struct Used(Box<[AtomicU32]>);

impl Used {
    /// Of buckets that were never used.
    pub(crate) fn new(buckets: usize) -> Used {
        Used((0..buckets).map(|_| AtomicU32::new(0)).collect())
    }
    /// Says that a bucket is used. It is stored eight times a second at most.
    #[inline]
    fn mark_used(&self, bucket: usize, now: Duration) {
        if let Some(used) = self.0.get(bucket)
            && used.load(Relaxed) != tick_of(now)
        {
            used.store(tick_of(now), Relaxed);
        }
    }
    /// Whether a bucket was not used for so long.
    pub(crate) fn is_idle(&self, bucket: usize, idle: Duration, now: Duration) -> bool {
        let Some(used) = self.0.get(bucket).map(|used| used.load(Relaxed)) else { return true };
        // A clock that has gone back makes none idle.
        let silent = (tick_of(now).wrapping_sub(used) as i32).max(0);
        used == 0 || silent as u128 > idle.as_millis().div_ceil(1 << TICK)
    }
}

/// Log2 of milliseconds per tick: 128 ms.
const TICK: u32 = 7;

/// Ticks since the start; 0 means "never".
#[inline]
fn tick_of(now: Duration) -> u32 {
    ((now.as_secs().wrapping_mul(1000).wrapping_add(now.subsec_millis().into()) >> TICK) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_never_idle_too_early_nor_much_too_late() {
        for ms in 0..2000 {
            let (used, now) = (Used::new(1), Duration::from_millis(5000 + ms));
            used.mark_used(0, now);
            let idle =
                |after: u64| used.is_idle(0, Duration::from_millis(1000), now + Duration::from_millis(after));
            let first = (0..2000).find(|after| idle(*after)).unwrap();
            assert!((1000..1000 + 3 * 128).contains(&first), "after {first} ms");
            assert!(!used.is_idle(0, Duration::ZERO, Duration::from_millis(1)), "a clock that goes back");
        }
        assert!(Used::new(1).is_idle(0, Duration::MAX, Duration::ZERO), "it was never used");
    }

    #[test]
    fn hashes_fall_on_all_slots_alike_and_on_no_other() {
        assert_eq!((fold_hash(0, 3), fold_hash(u64::MAX, 3), fold_hash(u64::MAX, 0)), (0, 2, 0));
        assert_eq!((fold_hash(u64::MAX / 3 + (1 << 32), 3), fold_hash(u64::MAX / 3 - (1 << 32), 3)), (1, 0));
    }
}
